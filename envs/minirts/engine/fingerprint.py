"""Fingerprint of the sources of the compiled rules, by which numba's cache on disk is known to be up to date.

numba sees only changes of the file in which a compiled function lies, but not of those whose functions it calls.
"""

from __future__ import annotations

import zlib
from pathlib import Path


def fingerprint() -> int:
    """A number that changes with any source in this folder, which holds all that is compiled."""
    total = 0
    for path in sorted(Path(__file__).parent.glob("*.py")):
        total = zlib.crc32(path.read_bytes(), total)
    return total
