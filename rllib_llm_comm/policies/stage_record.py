"""The file `stage.json` in a stage's folder: the record of its settings, its state and its outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.files import read_text

MARKER = "stage.json"
_MOST_BYTES = 2**26


class StageRecord(BaseModel):
    """The content of `stage.json`.

    Attributes:
        stage: Name of the stage.
        run: The algorithm or the kind of stage that ran.
        status: "finished" once the stage has ended.
        fingerprint: Digest of everything that decides its result.
        outputs: The paths that `${stage}` stands for, relative to the stage's folder; one per trial.
        files: Further results worth knowing, name -> relative path.
        summary: Key figures, JSON-able.
        seconds: Duration (the last call's part of it, if it was interrupted).
        settings: The experiment as it ran, for the reader.
        stand_ins: What stands in for what the papers use (`evaluation.stand_ins`).
    """

    stage: str
    run: str
    status: Literal["running", "finished"] = "running"
    fingerprint: str
    outputs: list[str] = []
    files: dict[str, str] = {}
    summary: dict[str, Any] = {}
    seconds: float = 0.0
    settings: dict[str, Any] = {}
    stand_ins: list[str] = []


def read_record(folder: Path) -> StageRecord | None:
    """The stage record of a folder; `None` if there is none or none that can be read."""
    path = folder / MARKER
    try:
        return StageRecord.model_validate_json(read_text(path, _MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return None


def require_readable(folder: Path) -> None:
    """Refuses a folder whose stage record is damaged.

    Raises:
        UserError: If it has a `stage.json` that cannot be read.
    """
    if (folder / MARKER).exists() and read_record(folder) is None:
        raise UserError(
            f"{str(folder / MARKER)!r} is damaged, so nobody knows which settings the results beside it have; move "
            f"{str(folder)!r} away (its checkpoints can still be evaluated) or do the stage again with `--no-resume`."
        )
