"""The state that a stage's trials go on from: kept whole, put right after a kill or a full disk.

Ray Tune copies its state into the results' folder file by file and in place, so a kill or a full disk can leave half a
file. A copy of our own, replaced at once, lies beside it. Imports Ray late: unpickling a state is part of a resume.
"""

from __future__ import annotations

import base64
import fnmatch
import gzip
import json
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rllib_llm_comm.core.files import move_aside, open_regular, read_foreign_json, write_atomically
from rllib_llm_comm.experiments.trial_checkpoints import (
    highest_number,
    pickle_ends,
    put_incomplete_aside,
    sealed_metrics,
    whole_checkpoints,
)

if TYPE_CHECKING:
    from ray.tune.experiment import Trial

STATE_COPY = "tune_state.json.gz"
STATE_FILES = "experiment_state-*.json"
_MOST_BYTES = 2**27  # of a state, and of all that its copy holds
# Further files that Tune reads of an earlier call (pickles, whatever their names): trials that are still to be made,
# and the memory of its callbacks.
_OTHER_FILES = ("basic-variant-state-*.json", "search_gen_state-*.json", "callback-states-*.pkl")
# What Tune still meant to do with each trial after its save or its last result; it keeps both in its state. For a trial
# that died in a save it notes STOP, and would end it after the first save of the run that goes on.
_DECISIONS = ("_cached_trial_decisions", "_queued_trial_decisions")


class StateKeeper:
    """Copies Tune's state whenever Tune has written it anew.

    Args:
        folder: The stage's folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen = 0

    def keep(self, scratch: Path) -> None:
        """Copies the state if it is a new one.

        Args:
            scratch: The folder that Tune writes its state to.

        Raises:
            OSError: If the disk fails; the copy before stays.
        """
        states = sorted(scratch.glob(STATE_FILES))
        if not states or (written := states[-1].stat().st_mtime_ns) == self._seen:
            return
        files = [states[-1], *(sorted(scratch.glob(form))[-1] for form in _OTHER_FILES if list(scratch.glob(form)))]
        packed = {path.name: base64.b64encode(path.read_bytes()).decode() for path in files}
        write_atomically(self._folder / STATE_COPY, gzip.compress(json.dumps(packed).encode(), compresslevel=1))
        self._seen = written


def find_state(folder: Path, trials: int, may_use: Callable[[str, bytes], bool]) -> Path | None:
    """The newest state in a stage's folder that can be read; damaged ones are moved out of Tune's sight.

    Args:
        folder: The stage's folder.
        trials: Number of the stage's trials.
        may_use: True if a file of this name and content may be unpickled; asked of all that the copy would bring back.
    """
    for path in (path for form in _OTHER_FILES for path in folder.glob(form)):
        if not pickle_ends(path):
            move_aside(path, f"damaged_{path.name}")
    copy = {name: content for name, content in _read_copy(folder).items() if may_use(name, content)}
    kept = next((name for name in sorted(copy) if name.startswith("experiment_state-")), "")
    for path in sorted(folder.glob(STATE_FILES), reverse=True):
        if path.name < kept:
            break
        if _trial_data(path):
            if _knows_all_trials(folder, path, trials):
                return path
            break
        move_aside(path, f"damaged_{path.name}")
    for name, content in copy.items():
        write_atomically(folder / name, content)
    state = folder / kept
    if kept and _trial_data(state):
        return state
    for path in folder.glob(STATE_FILES):
        move_aside(path, f"damaged_{path.name}")
    return None


def repair_state(path: Path, folder: Path) -> list[str]:
    """Makes the trials of a state go on from their newest whole checkpoints.

    Decisions that were still to be carried out are dropped: the iterations they followed from are done again, and
    decided anew, unless their checkpoint is whole.

    Args:
        path: A state that can be read.
        folder: The stage's folder, wherever it was when the state was written.

    Returns:
        Sentences about checkpoints that were passed over.
    """
    from ray.tune.experiment import Trial

    content = read_foreign_json(path, _MOST_BYTES)
    told: list[str] = []
    repaired: list[tuple[str, str]] = []
    for description, metadata in content["trial_data"]:
        trial = Trial.from_json_state(description)
        trial.restore_run_metadata(metadata)
        told += _repair_trial(trial, folder / trial.storage.trial_dir_name)
        trial.invalidate_json_state()
        trial.run_metadata.invalidate_cache()
        repaired.append(trial.get_json_state())
    runner = {**content["runner_data"], **{name: {} for name in _DECISIONS}}
    write_atomically(path, json.dumps({**content, "runner_data": runner, "trial_data": repaired}))
    return told


def _repair_trial(trial: Trial, place: Path) -> list[str]:
    from ray.train._internal.checkpoint_manager import _CheckpointManager
    from ray.train._internal.session import _TrainingResult
    from ray.tune import Checkpoint, CheckpointConfig

    number = highest_number(place)
    aside = put_incomplete_aside(place)
    whole = whole_checkpoints(place)
    manager = trial.run_metadata.checkpoint_manager
    known = {Path(found.checkpoint.path).name: found.metrics for found in manager.best_checkpoint_results}
    if latest := manager.latest_checkpoint_result:
        known[Path(latest.checkpoint.path).name] = latest.metrics
    settings = manager.checkpoint_config
    fresh = _CheckpointManager(
        CheckpointConfig(
            checkpoint_score_attribute=settings.checkpoint_score_attribute,
            checkpoint_score_order=settings.checkpoint_score_order,
        )
    )
    for checkpoint in whole:
        metrics = known.get(checkpoint.name) or sealed_metrics(checkpoint) or {}
        # Tune itself puts the present place of the results for the one that they had.
        before = Checkpoint(f"{trial.storage.trial_fs_path}/{checkpoint.name}", trial.storage.storage_filesystem)
        fresh.register_checkpoint(_TrainingResult(checkpoint=before, metrics=metrics))
    fresh._checkpoint_config = settings  # only now, as it would delete what is too many
    trial.run_metadata.checkpoint_manager = fresh
    trial.storage.current_checkpoint_index = max(number, trial.storage.current_checkpoint_index)
    _set_status(trial, whole, known)
    return [f"{path.parent.name}/{path.name} is not whole and is passed over." for path in aside]


def _set_status(trial: Trial, whole: list[Path], known: Iterable[str]) -> None:
    """A trial is done if its newest checkpoint was written at its end, and is not if that one is lost."""
    newest = whole[-1].name if whole else ""
    last = sealed_metrics(whole[-1]) if whole else None
    if last is not None and last.get("done") and trial.status != trial.TERMINATED:
        trial.run_metadata.last_result = {**last, "config": trial.config}
        trial.status = trial.TERMINATED
    elif trial.status == trial.TERMINATED and max(known, default="") > newest:
        trial.status = trial.PENDING


def _knows_all_trials(folder: Path, state: Path, trials: int) -> bool:
    """True if trials that are not in a state can still be made: Tune keeps what is to come in a file of its own."""
    return len(_trial_data(state)) >= trials or any(list(folder.glob(form)) for form in _OTHER_FILES[:2])


def _trial_data(path: Path) -> list[Any]:
    content = _read(path)
    data = content.get("trial_data") if isinstance(content, Mapping) else None
    return data if isinstance(data, list) else []


def _read(path: Path) -> Any:
    try:
        return read_foreign_json(path, _MOST_BYTES)
    except (OSError, ValueError):
        return None


def _read_copy(folder: Path) -> dict[str, bytes]:
    """Name -> content of the files of the copy; empty if there is none, or another program's."""
    try:
        with open_regular(folder / STATE_COPY, _MOST_BYTES) as file, gzip.GzipFile(fileobj=file) as unpacked:
            content = unpacked.read(_MOST_BYTES + 1)  # a small file may unpack to any size
        if len(content) > _MOST_BYTES:
            return {}
        found = {name: base64.b64decode(content) for name, content in json.loads(content).items()}
    except (OSError, EOFError, zlib.error, ValueError, AttributeError, TypeError, RecursionError):
        return {}
    # Of other names it could replace anything in the folder, such as the file with the signatures.
    forms = (STATE_FILES, *_OTHER_FILES)
    return {name: held for name, held in found.items() if any(fnmatch.fnmatchcase(name, form) for form in forms)}
