"""The `rllib` command."""

import os
import sys

try:
    os.getcwd()
except OSError:  # before the commands are imported, as PettingZoo asks for it, too
    sys.exit("Error: The current folder is gone; change to another one and type the same command again.")
