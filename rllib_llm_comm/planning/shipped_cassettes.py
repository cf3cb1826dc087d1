"""Recorded sessions with chat models that come with the package, by their names."""

from __future__ import annotations

import os
from importlib import resources
from pathlib import Path

from rllib_llm_comm.errors import UserError, did_you_mean

_ENDINGS = (".jsonl", ".jsonl.gz")


def recording(name: str) -> Path:
    """The path of a cassette that comes with the package, or that it would have.

    Args:
        name: Its name without ending, such as "smollm2_plans".
    """
    folder = Path(str(resources.files(__package__).joinpath("cassettes")))
    paths = [folder / f"{name}{ending}" for ending in _ENDINGS]
    return next((path for path in paths if path.is_file()), paths[0])


def recordings() -> list[str]:
    """The names of all cassettes that come with the package."""
    files = recording("any").parent.iterdir()
    return sorted(path.name.split(".")[0] for path in files if path.name.endswith(_ENDINGS))


def find_recording(named: str | os.PathLike[str]) -> Path:
    """A cassette's path from a setting: a file, or the name of one that comes with the package.

    Args:
        named: The setting.

    Raises:
        UserError: If it is neither.
    """
    path = Path(named)
    if path.is_file():
        return path
    shipped = recording(str(named))
    if path.name != str(named) or not shipped.is_file():
        raise UserError(
            f"`cassette` is {str(named)!r} but must be a file or one of {', '.join(recordings())}, which come with the "
            f"package; correct it or give a chat `model` to record it.{did_you_mean(str(named), recordings())}"
        )
    return shipped
