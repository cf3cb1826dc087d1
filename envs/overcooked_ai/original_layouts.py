"""The kitchens of the original package by their names there, with their own orders, times and points.

`original_layouts.json` holds its layout files as data (PyPI `overcooked-ai` 1.1.0, MIT; the notice is in the file). Two
of the 45 are for one cook or for four and are left out.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

PREFIX = "original:"
"""Before a name it says that the original's kitchen of that name is meant, not ours."""


@cache
def original_kitchens() -> dict[str, dict[str, Any]]:
    """The dictionaries of all kitchens by the original's names; not to be changed."""
    text = (Path(__file__).parent / "original_layouts.json").read_text(encoding="utf-8")
    found: dict[str, dict[str, Any]] = json.loads(text)["layouts"]
    return found
