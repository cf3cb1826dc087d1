"""The log of a run in Python tells nothing that its reader can neither use nor change."""

from __future__ import annotations

import subprocess
import sys

RUN = """
from rllib_llm_comm import MessageSFTConfig, VercoConfig

for config in (MessageSFTConfig().offline_data(input_="labels"), VercoConfig().environment("any")):
    config.validate()
MessageSFTConfig().get_default_rl_module_spec().build()
print("built")
"""


def test_neither_the_new_api_stack_nor_old_names_inside_libraries_are_told(tmp_path):
    done = subprocess.run([sys.executable, "-c", RUN], cwd=tmp_path, capture_output=True, text=True, timeout=500)
    assert done.stdout.endswith("built\n"), done.stderr
    noise = [line for line in done.stderr.split("\n") if "You are running" in line or "Warning:" in line]
    assert noise == []
