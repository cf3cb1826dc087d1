"""The done share of a running pass over the data, told by a trial's process to the one that shows it.

An iteration of minutes gives no result before its end. So the trial writes a small file into its working folder, and
the command that started it looks there. Where the two run on different machines, nothing is found.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from rllib_llm_comm.core.files import read_text

_FILE = "pass_share.json"

Part = TypeVar("Part")


def with_progress(
    parts: Iterable[Part], count: int, folder: str, iteration: int, interval: float = 0.5
) -> Iterator[Part]:
    """Hands on the parts of a pass, and writes the share of them that is done.

    Args:
        parts: Minibatches.
        count: Their number.
        folder: The trial's working folder.
        iteration: Number of iterations that are done.
        interval: Least time in seconds between two writings.
    """
    told = time.monotonic()
    for done, part in enumerate(parts, start=1):
        yield part
        if time.monotonic() - told >= interval:
            # The pass counts as done with its result: losses and messages of held-out prompts come after it.
            _write(Path(folder), iteration, done / (count + 1))
            told = time.monotonic()


def _write(folder: Path, iteration: int, share: float) -> None:
    scratch = folder / f"{_FILE}.tmp"
    with contextlib.suppress(OSError):  # a bar that stands still is no reason to stop a training
        scratch.write_text(json.dumps([iteration, share]), encoding="utf-8")
        os.replace(scratch, folder / _FILE)


def read_progress(folder: str | Path, iteration: int) -> float:
    """The share in [0, 1) of the pass that follows an iteration; 0 where nothing is told of it.

    Args:
        folder: The trial's working folder.
        iteration: Number of iterations that are done.
    """
    try:
        told, share = json.loads(read_text(Path(folder) / _FILE))
    except (OSError, ValueError, TypeError):
        return 0.0
    return float(share) if told == iteration else 0.0
