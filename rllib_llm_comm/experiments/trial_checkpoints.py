"""Whole checkpoints of a trial: each gets a seal, written last, that lists its files."""

from __future__ import annotations

import json
import pickletools
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rllib_llm_comm.core.files import digest_of, move_aside, read_foreign_json, sync_tree, write_atomically

SEAL = "complete.json"
_INCOMPLETE = "incomplete_"
_MOST_BYTES = 2**27  # of a seal, and of other JSON in a checkpoint
# Without these RLlib could not go on.
_PARTS = ("class_and_ctor_args.pkl", "learner_group/learner/rl_module")


def seal(checkpoint: Path, metrics: Mapping[str, Any]) -> None:
    """Waits until a checkpoint is on the disk itself, then says so in a file of its own.

    Args:
        checkpoint: A checkpoint folder to which nothing is added any more.
        metrics: The result of the training iteration it was written after; must be JSON-able.

    Raises:
        OSError: If the disk fails; the checkpoint does not count then.
    """
    sync_tree(checkpoint)
    files = {str(path.relative_to(checkpoint)): digest_of(path) for path in _files(checkpoint)}
    write_atomically(checkpoint / SEAL, json.dumps({"files": files, "metrics": dict(metrics)}) + "\n")


def sealed_metrics(checkpoint: Path) -> dict[str, Any] | None:
    """The result that a checkpoint was sealed with; `None` without a (readable) seal."""
    content = _read_seal(checkpoint)
    return None if content is None else dict(content["metrics"])


def whole_checkpoints(trial: Path) -> list[Path]:
    """The checkpoints of a trial from which training can go on, the newest last.

    A checkpoint without a seal counts if it is older than all that have one (earlier versions wrote none) and every
    file of it can be read to its end. Nothing is unpickled.
    """
    found = _checkpoints(trial)
    first = next((number for number, path in enumerate(found) if (path / SEAL).exists()), len(found))
    return [
        path for number, path in enumerate(found) if (_seal_holds(path) if number >= first else _reads_to_its_end(path))
    ]


def put_incomplete_aside(trial: Path) -> list[Path]:
    """Renames the checkpoints that are not whole, so that nothing is written into them or read from them.

    Returns:
        Their former paths.
    """
    whole = set(whole_checkpoints(trial))
    incomplete = [path for path in _checkpoints(trial) if path not in whole]
    for path in incomplete:
        move_aside(path, _INCOMPLETE + path.name)
    return incomplete


def remove_incomplete(trial: Path) -> None:
    """Deletes what `put_incomplete_aside` renamed; to be called when a newer checkpoint is sealed."""
    for path in trial.glob(f"{_INCOMPLETE}checkpoint_*"):
        shutil.rmtree(path, ignore_errors=True)


def highest_number(trial: Path) -> int:
    """The largest number of a checkpoint of a trial, whole or not; -1 where there is none."""
    names = [path.name.removeprefix(_INCOMPLETE) for path in trial.glob("*checkpoint_*") if path.is_dir()]
    numbers = [name.removeprefix("checkpoint_").split("-")[0] for name in names]
    return max((int(number) for number in numbers if number.isdigit()), default=-1)


def pickle_ends(path: Path) -> bool:
    """True if a pickle was written to its end; nothing is unpickled."""
    try:
        _read_pickle(path)
    except (OSError, ValueError):
        return False
    return True


def _checkpoints(trial: Path) -> list[Path]:
    return sorted(path for path in trial.glob("checkpoint_*") if path.is_dir())


def _files(checkpoint: Path) -> list[Path]:
    return sorted(path for path in checkpoint.rglob("*") if path.is_file() and path != checkpoint / SEAL)


def _read_seal(checkpoint: Path) -> dict[str, Any] | None:
    try:
        content = read_foreign_json(checkpoint / SEAL, _MOST_BYTES)
    except (OSError, ValueError):
        return None
    valid = isinstance(content, dict) and all(isinstance(content.get(key), dict) for key in ("files", "metrics"))
    return content if valid else None


def _seal_holds(checkpoint: Path) -> bool:
    content = _read_seal(checkpoint)
    if content is None:
        return False
    try:
        return all(digest_of(checkpoint / name) == digest for name, digest in content["files"].items())
    except OSError:
        return False


def _reads_to_its_end(checkpoint: Path) -> bool:
    """True if a checkpoint without a seal has the parts of RLlib's and no file that ends too early."""
    if not all((checkpoint / part).exists() for part in _PARTS) or not list(checkpoint.glob("algorithm_state*")):
        return False
    for folder in {path.parent for path in checkpoint.rglob("class_and_ctor_args.pkl")}:
        if not list(folder.glob("*state.*")) or not list(folder.glob("*.json")):
            return False
    try:
        for path in _files(checkpoint):
            _READERS.get(path.suffix, lambda path: None)(path)
    except (OSError, ValueError):
        return False
    return True


def _read_pickle(path: Path) -> None:
    """Goes through the operations of a pickle without doing any of them.

    Raises:
        ValueError: If it ends before its last one.
    """
    with path.open("rb") as handle:
        for _ in pickletools.genops(handle):
            pass


def _read_tensors(path: Path) -> None:
    """Compares the length of a safetensors file with what its head says.

    Raises:
        ValueError: If it is another one.
    """
    with path.open("rb") as handle:
        length = int.from_bytes(handle.read(8), "little")
        if length > min(path.stat().st_size, _MOST_BYTES):
            raise ValueError(f"{path.name} ends in its head, or has a head of more than {_MOST_BYTES} bytes")
        head = json.loads(handle.read(length))
    end = max((entry["data_offsets"][1] for name, entry in head.items() if name != "__metadata__"), default=0)
    if path.stat().st_size != 8 + length + end:
        raise ValueError(f"{path.name} does not have the length that its head says")


_READERS: dict[str, Callable[[Path], Any]] = {
    ".pkl": _read_pickle,
    ".json": lambda path: read_foreign_json(path, _MOST_BYTES),
    ".safetensors": _read_tensors,
}
