"""Tells whether the compiled rules that numba keeps on disk are still those of the sources.

numba sees only changes of the file in which a compiled function lies, but not of those whose functions it calls.
"""

from __future__ import annotations

import zlib
from pathlib import Path

_TABLES = ("mapgen.py", "state.py", "units.py")
"""Files whose constants are compiled into the rules; the others contain compiled functions."""


def fingerprint() -> int:
    """A number that changes with any source of the compiled rules."""
    total = 0
    for path in sorted(Path(__file__).parent.glob("*.py")):
        source = path.read_bytes()
        if path.name in _TABLES or b"import njit" in source:
            total = zlib.crc32(source, total)
    return total
