"""The check of the results that a stage goes on from: written here, unless the user trusts them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.files import move_aside
from rllib_llm_comm.experiments.console import short_path
from rllib_llm_comm.experiments.stages import Stage
from rllib_llm_comm.experiments.trial_checkpoints import SEAL
from rllib_llm_comm.policies.policy_manifest import MANIFEST, read_manifest
from rllib_llm_comm.policies.signatures import OwnStates, is_own_checkpoint, signed_algorithm

if TYPE_CHECKING:
    from ray.rllib.algorithms.algorithm import Algorithm

_UNPICKLED = ("*state*.json", "*.pkl")
_WHY = (
    "was not written by this user's `rllib train` on this machine, or was changed since; going on from it unpickles "
    "its files, which can run any program"
)


def check_restore(stage: Stage, algorithm: type[Algorithm]) -> None:
    """Checks the checkpoint that a stage's trials start from, without unpickling anything.

    Args:
        stage: The stage, its references replaced.
        algorithm: The algorithm that it trains.

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
    written_by = written_by or _told_algorithm(Path(restore))
    if written_by not in (None, run, algorithm.__name__):
        alone = hasattr(algorithm.get_default_config(), "message_checkpoint")
        adapter = ", or take an adapter alone with `message_checkpoint` or `action_checkpoint`" if alone else ""
        raise UserError(
            f"`{stage.name}.restore` is {restore!r}, a checkpoint of {written_by}, but `run` is {run}, which would "
            f"take over its weights and optimizers as if they were its own; write `run: {written_by}`{adapter}."
        )


def _told_algorithm(checkpoint: Path) -> str | None:
    """The algorithm that a checkpoint's policy folder names; `None` if it has none."""
    folder = checkpoint / "policy"
    return read_manifest(folder).algorithm if (folder / MANIFEST).is_file() else None


def unsigned_parts(stage: Stage) -> list[Path]:
    """The state files and checkpoints of a stage's folder that Tune would unpickle and that were not written here.

    Args:
        stage: The stage; if it is trusted, there are none.

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

    Args:
        stage: The stage.

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
