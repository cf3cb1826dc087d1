"""What a killed stage goes on from: whole checkpoints, Tune's state put right, and only what was written here."""

from __future__ import annotations

import base64
import fnmatch
import gzip
import json
import pickletools
import shutil
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.files import (
    digest_of,
    move_aside,
    open_regular,
    read_foreign_json,
    sync_tree,
    write_atomically,
)
from rllib_llm_comm.experiments.console import short_path
from rllib_llm_comm.experiments.stages import Stage
from rllib_llm_comm.policies.policy_manifest import MANIFEST, read_manifest
from rllib_llm_comm.policies.signatures import OwnStates, is_own_checkpoint, signed_algorithm

if TYPE_CHECKING:
    from ray.rllib.algorithms.algorithm import Algorithm
    from ray.tune.experiment import Trial

SEAL = "complete.json"
_INCOMPLETE = "incomplete_"
_MOST_BYTES = 2**27  # of a seal, of a state, and of all that its copy holds


def seal(checkpoint: Path, metrics: Mapping[str, Any]) -> None:
    """Waits until a finished checkpoint is on the disk itself, then says so in a file of its own.

    `metrics` is the result of the training iteration it was written after; must be JSON-able.

    Raises:
        OSError: If the disk fails; the checkpoint does not count then.
    """
    sync_tree(checkpoint)
    paths = sorted(path for path in checkpoint.rglob("*") if path.is_file() and path != checkpoint / SEAL)
    files = {str(path.relative_to(checkpoint)): digest_of(path) for path in paths}
    write_atomically(checkpoint / SEAL, json.dumps({"files": files, "metrics": dict(metrics)}) + "\n")


def sealed_metrics(checkpoint: Path) -> dict[str, Any] | None:
    """The result that a checkpoint was sealed with; `None` without a (readable) seal."""
    content = _read_seal(checkpoint)
    return None if content is None else dict(content["metrics"])


def whole_checkpoints(trial: Path) -> list[Path]:
    """The checkpoints of a trial from which training can go on, the newest last: sealed, with all of their files."""
    return [path for path in _checkpoints(trial) if _seal_holds(path)]


def put_incomplete_aside(trial: Path) -> list[Path]:
    """Renames checkpoints that are not whole, so that nothing is written or read there; gives their former paths."""
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
    """True if a pickle was written to its end; its operations are gone through without doing any of them."""
    try:
        with path.open("rb") as handle:
            for _ in pickletools.genops(handle):
                pass
    except (OSError, ValueError):
        return False
    return True


def _checkpoints(trial: Path) -> list[Path]:
    return sorted(path for path in trial.glob("checkpoint_*") if path.is_dir())


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


STATE_COPY = "tune_state.json.gz"
STATE_FILES = "experiment_state-*.json"
# Further files that Tune reads of an earlier call (pickles, whatever their names): trials that are still to be made,
# and the memory of its callbacks.
_OTHER_FILES = ("basic-variant-state-*.json", "search_gen_state-*.json", "callback-states-*.pkl")
# What Tune still meant to do with each trial after its save or its last result; it keeps both in its state. For a trial
# that died in a save it notes STOP, and would end it after the first save of the run that goes on.
_DECISIONS = ("_cached_trial_decisions", "_queued_trial_decisions")


def keep_state(folder: Path, staging: Path, kept: int) -> int:
    """Copies Tune's state from its staging folder to the stage's if Tune has written it anew.

    Times are in ns: `kept` is when the state was written that was copied last, the result that of the copy now.

    Raises:
        OSError: If the disk fails; the copy before stays.
    """
    states = sorted(staging.glob(STATE_FILES))
    if not states or (written := states[-1].stat().st_mtime_ns) == kept:
        return kept
    files = [states[-1], *(sorted(staging.glob(form))[-1] for form in _OTHER_FILES if list(staging.glob(form)))]
    packed = {path.name: base64.b64encode(path.read_bytes()).decode() for path in files}
    write_atomically(folder / STATE_COPY, gzip.compress(json.dumps(packed).encode(), compresslevel=1))
    return written


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
    """Makes the trials of a state that can be read go on from their newest whole checkpoints in a stage's folder.

    Decisions that were still to be carried out are dropped: the iterations they followed from are done again, and
    decided anew, unless their checkpoint is whole.

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
    try:
        content = read_foreign_json(path, _MOST_BYTES)
    except (OSError, ValueError):
        return []
    data = content.get("trial_data") if isinstance(content, Mapping) else None
    return data if isinstance(data, list) else []


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


def unsigned_parts(stage: Stage) -> list[Path]:
    """The state files and checkpoints that Tune would unpickle and that were not written here; none of a trusted stage.

    Raises:
        UserError: If nothing there was written here: then this is somebody else's run.
    """
    if stage.trust:
        return []
    states = OwnStates(stage.folder)
    files = sorted({path for form in _UNPICKLED for path in stage.folder.glob(form)})
    checkpoints = [path for path in sorted(stage.folder.glob("trial_*/checkpoint_*")) if path.is_dir()]
    unsigned = [path for path in files if not states.holds(path)]
    unsigned += [path for path in checkpoints if not is_own_checkpoint(path)]
    if unsigned and len(unsigned) == len(files) + len(checkpoints) and not states.has_begun(stage.fingerprint):
        raise UserError(
            f"{short_path(stage.folder)} holds an unfinished run ({unsigned[0].name}) that {_WHY}; give `--trust` if "
            "you know where it comes from, or `--no-resume` to put it aside and begin anew."
        )
    return unsigned


def put_unsigned_aside(stage: Stage) -> list[str]:
    """Renames what Tune would unpickle and was not written here: half written in a kill, changed, or from elsewhere.

    Checkpoints that were never sealed are put aside as incomplete, and are deleted when the next one is whole.

    Returns:
        Sentences about checkpoints that are passed over.

    Raises:
        UserError: If nothing there was written here.
    """
    told = []
    for path in unsigned_parts(stage):
        kind = "unsigned" if path.is_file() or (path / SEAL).is_file() else "incomplete"
        if path.is_dir():
            told.append(f"{path.parent.name}/{path.name} is not whole and is passed over.")
        move_aside(path, f"{kind}_{path.name}")
    return told
