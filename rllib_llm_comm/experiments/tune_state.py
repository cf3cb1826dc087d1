"""What a killed stage goes on from: whole checkpoints, Tune's state put right, and only what was written here."""

from __future__ import annotations

import base64
import fnmatch
import gzip
import json
import math
import pickletools
import shutil
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.files import move_aside, open_regular, read_foreign_json, write_atomically
from rllib_llm_comm.experiments.console import lookup, short_path
from rllib_llm_comm.experiments.stages import Stage
from rllib_llm_comm.policies.policy_manifest import MANIFEST, read_manifest
from rllib_llm_comm.policies.signatures import (
    OwnStates,
    is_own_checkpoint,
    is_whole,
    sealed_metrics,
    signed_algorithm,
)

if TYPE_CHECKING:
    from ray.rllib.algorithms.algorithm import Algorithm
    from ray.tune.experiment import Trial

_INCOMPLETE = "incomplete_"
_MOST_BYTES = 2**27  # of a state, and of all that its copy holds


def whole_checkpoints(trial: Path) -> list[Path]:
    """The checkpoints of a trial from which training can go on, the newest last: sealed, with all of their files."""
    return [path for path in _checkpoints(trial) if is_whole(path)]


def _checkpoints(trial: Path) -> list[Path]:
    return sorted(path for path in trial.glob(f"checkpoint_{6 * '[0-9]'}") if path.is_dir())


def remove_incomplete(trial: Path) -> None:
    """Deletes checkpoints that `put_aside` found without a seal; to be called when a newer one is sealed."""
    for path in trial.glob(f"{_INCOMPLETE}checkpoint_*"):
        shutil.rmtree(path, ignore_errors=True)


STATE_COPY = "tune_state.json.gz"
STATE_FILES = "experiment_state-*.json"
_SEARCHER_FILES = "basic-variant-state-*.json"  # pickles
# What Tune still meant to do with each trial after its save or its last result; it keeps both in its state. For a trial
# that died in a save it notes STOP, and would end it after the first save of the run that goes on.
_DECISIONS = ("_cached_trial_decisions", "_queued_trial_decisions")


def keep_state(folder: Path, staging: Path) -> None:
    """Copies the state that Tune has written to its staging folder to the stage's, before Tune itself does so in place.

    Raises:
        OSError: If the disk fails; the copy before stays.
    """
    state = max(staging.glob(STATE_FILES))
    packed = {path.name: base64.b64encode(path.read_bytes()).decode() for path in (state, _searcher_of(state))}
    write_atomically(folder / STATE_COPY, gzip.compress(json.dumps(packed).encode(), compresslevel=1))


def find_state(folder: Path, may_use: Callable[[str, bytes], bool]) -> Path | None:
    """The newest state in a stage's folder from which Tune can go on; newer ones are moved out of its sight.

    Args:
        folder: The stage's folder.
        may_use: True if a file of this name and content may be unpickled; asked of all that the copy brings back.
    """
    for name, content in _read_copy(folder).items():
        if may_use(name, content):
            write_atomically(folder / name, content)
    found = max(filter(_is_usable, folder.glob(STATE_FILES)), default=None)
    for path in folder.glob(STATE_FILES):
        if found is None or path.name > found.name:
            move_aside(path, f"damaged_{path.name}")
    return found


def repair_state(path: Path, folder: Path) -> None:
    """Makes the trials of a state go on from their newest checkpoints in a stage's folder, of which all are whole.

    Decisions that were still to be carried out are dropped: the iterations they followed from are done again, and
    decided anew, unless their checkpoint is whole.
    """
    from ray.tune.experiment import Trial

    content = read_foreign_json(path, _MOST_BYTES)
    repaired: list[tuple[str, str]] = []
    for description, metadata in content["trial_data"]:
        trial = Trial.from_json_state(description)
        trial.restore_run_metadata(metadata)
        # Of a copied run; Tune itself leaves checkpoints that are too many where they were, and deletes them there.
        trial.storage.storage_fs_path = str(folder.parent.absolute())
        trial.storage.experiment_dir_name = folder.name
        _repair_trial(trial, folder / trial.storage.trial_dir_name)
        trial.invalidate_json_state()
        trial.run_metadata.invalidate_cache()
        repaired.append(trial.get_json_state())
    runner = {**content["runner_data"], **{name: {} for name in _DECISIONS}}
    write_atomically(path, json.dumps({**content, "runner_data": runner, "trial_data": repaired}))


def _repair_trial(trial: Trial, place: Path) -> None:
    """Tells a trial its checkpoints; it is done if the newest was made at its end, and is not if that one is lost."""
    from ray.train._internal.session import _TrainingResult
    from ray.tune import Checkpoint

    storage, manager = trial.storage, trial.run_metadata.checkpoint_manager
    fresh = type(manager)(replace(manager.checkpoint_config, num_to_keep=None))  # it would delete what is too many
    score = manager.checkpoint_config.checkpoint_score_attribute
    whole = {path.name: sealed_metrics(path) or {} for path in _checkpoints(place)}
    for name, metrics in whole.items():
        before = Checkpoint(f"{storage.trial_fs_path}/{name}", storage.storage_filesystem)
        # It multiplies scores, also one that is no number: a result that lacks it ranks last.
        ranked = {score: math.nan} if score is not None and lookup(metrics, score) is None else metrics
        fresh.register_checkpoint(_TrainingResult(checkpoint=before, metrics=ranked))
    fresh._checkpoint_config = manager.checkpoint_config
    trial.run_metadata.checkpoint_manager = fresh
    newest, latest = max(whole, default=""), manager.latest_checkpoint_result
    if whole:
        number = int(newest.removeprefix("checkpoint_"))
        storage.current_checkpoint_index = max(number, storage.current_checkpoint_index)
    if whole and whole[newest].get("done"):
        trial.run_metadata.last_result = {**whole[newest], "config": trial.config}
        trial.status = trial.TERMINATED
    elif latest is not None and Path(latest.checkpoint.path).name > newest:
        trial.status = trial.PENDING


def _searcher_of(state: Path) -> Path:
    """Which trials are still to be made, as Tune wrote it beside a state; without it Tune would make all once more."""
    return state.with_name(state.name.replace("experiment_state", "basic-variant-state"))


def _is_usable(state: Path) -> bool:
    try:
        content = read_foreign_json(state, _MOST_BYTES)
    except (OSError, ValueError):
        return False
    trials = content.get("trial_data") if isinstance(content, Mapping) else None
    return isinstance(trials, list) and bool(trials) and _pickle_ends(_searcher_of(state))


def _pickle_ends(path: Path) -> bool:
    """True if a pickle was written to its end; its operations are gone through without doing any of them."""
    try:
        with path.open("rb") as handle:
            for _ in pickletools.genops(handle):
                pass
    except (OSError, ValueError):
        return False
    return True


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
    forms = (STATE_FILES, _SEARCHER_FILES)
    return {name: held for name, held in found.items() if any(fnmatch.fnmatchcase(name, form) for form in forms)}


_UNPICKLED = ("*state*.json", "*.pkl")
_WHY = (
    "was not written by this user's `rllib train` on this machine, or was changed since; going on from it unpickles "
    "its files, which can run any program"
)


def check_restore(stage: Stage, algorithm: type[Algorithm]) -> None:
    """Checks the checkpoint that a stage's trials start from, without unpickling anything.

    Raises:
        UserError: If the checkpoint was not written here and is not trusted, or is another algorithm's.
    """
    restore, run = stage.experiment.restore, stage.experiment.run
    if restore is None:
        return
    written_by = signed_algorithm(restore)
    if written_by is None and not stage.trust:
        raise UserError(
            f"`{stage.name}.restore` is {restore!r}, which {_WHY}; give `--trust` if you know where it comes from."
        )
    policy = Path(restore) / "policy"
    written_by = written_by or (read_manifest(policy).algorithm if (policy / MANIFEST).is_file() else None)
    if written_by not in (None, run, algorithm.__name__):
        alone = hasattr(algorithm.get_default_config(), "message_checkpoint")
        adapter = ", or take an adapter alone with `message_checkpoint` or `action_checkpoint`" if alone else ""
        raise UserError(
            f"`{stage.name}.restore` is {restore!r}, a checkpoint of {written_by}, but `run` is {run}, which would "
            f"take over its weights and optimizers as if they were its own; write `run: {written_by}`{adapter}."
        )


def unusable_parts(stage: Stage) -> list[Path]:
    """The state files and checkpoints that were not written here; of a trusted stage, checkpoints that are not whole.

    Raises:
        UserError: If nothing there was written here: then this is somebody else's run.
    """
    checkpoints = [path for path in sorted(stage.folder.glob("trial_*/checkpoint_*")) if path.is_dir()]
    if stage.trust:
        return [path for path in checkpoints if not is_whole(path)]
    files = sorted({path for form in _UNPICKLED for path in stage.folder.glob(form)})
    states = OwnStates(stage.folder)
    unsigned = [path for path in files if not states.holds(path)]
    unsigned += [path for path in checkpoints if not is_own_checkpoint(path)]
    if unsigned and len(unsigned) == len(files) + len(checkpoints) and not states.has_begun(stage.fingerprint):
        raise UserError(
            f"{short_path(stage.folder)} holds an unfinished run ({unsigned[0].name}) that {_WHY}; give `--trust` if "
            "you know where it comes from, or `--no-resume` to put it aside and begin anew."
        )
    return unsigned


def put_aside(stage: Stage) -> list[str]:
    """Renames what a stage cannot go on from: half written in a kill, changed, or from elsewhere.

    Checkpoints that were never sealed are put aside as incomplete, and are deleted when the next one is whole.

    Returns:
        Sentences about checkpoints that are passed over.

    Raises:
        UserError: If nothing there was written here.
    """
    told = []
    for path in unusable_parts(stage):
        kind = "unsigned_"
        if path.is_dir():
            told.append(f"{path.parent.name}/{path.name} is not whole and is passed over.")
            kind = _INCOMPLETE if stage.trust or sealed_metrics(path) is None else kind
        move_aside(path, f"{kind}{path.name}")
    return told
