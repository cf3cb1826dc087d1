"""The rows of a trial's `result.json`: one per training iteration, ascending, also where runs were resumed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rllib_llm_comm.core.files import foreign_lines

_MOST_BYTES, _MOST_LINE = 2**32, 2**24  # of a file, and of a line of it

ITERATION = "training_iteration"


def current_rows(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows that belong to the run as it went on.

    A run that goes on from a checkpoint does the iterations behind it once more. What it had written of them before
    was lost with it, so a row takes back all earlier rows of the same or a later iteration.

    Args:
        rows: In the order in which they were written.

    Returns:
        One row per iteration, ascending; a row without a number counts as the one after its neighbour.
    """
    kept: list[dict[str, Any]] = []
    numbers: list[int] = []
    for row in rows:
        number = row.get(ITERATION)
        if isinstance(number, bool) or not isinstance(number, int):
            number = numbers[-1] + 1 if numbers else 1
        while numbers and numbers[-1] >= number:
            numbers.pop()
            kept.pop()
        numbers.append(number)
        kept.append(row)
    return kept


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The current rows of a `result.json`, whichever version wrote it; lines cut by a kill are left out.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If it is no text.
        TypeError: If a line is JSON, but no mapping.
    """
    rows: list[dict[str, Any]] = []
    for line in foreign_lines(path, _MOST_BYTES, _MOST_LINE):
        text = line.decode("utf-8-sig")
        try:
            row = json.loads(text)
        except (ValueError, RecursionError):  # the last line of a run that was killed
            continue
        if not isinstance(row, dict):
            raise TypeError(f"a line is {type(row).__name__}, not a mapping")
        rows.append(row)
    return current_rows(rows)
