"""The checkpoint behind the path of a checkpoint, a trial, a stage or a run."""

from __future__ import annotations

import os
from pathlib import Path

from rllib_llm_comm.core.errors import UserError, did_you_mean
from rllib_llm_comm.core.places import fetched, is_remote
from rllib_llm_comm.policies.hub import fetch_policy, is_on_hub
from rllib_llm_comm.policies.stage_record import MARKER, read_record, require_readable
from rllib_llm_comm.policies.zoo import is_shipped, shipped_policy

_POLICY = "policy"


def is_named(path: str | os.PathLike[str]) -> bool:
    """True if a checkpoint is not given by its place on this machine: `zoo:NAME`, `hf:user/repo`, `s3://BUCKET/...`.

    Args:
        path: As of `find_checkpoint`.
    """
    return is_shipped(path) or is_on_hub(path) or is_remote(path)


def find_checkpoint(path: str | os.PathLike[str]) -> Path:
    """The checkpoint folder of a checkpoint, a trained stage, or a run with trained stages.

    Args:
        path: A checkpoint or trial folder, a stage's folder (of `run: clone_officer`, too), or the folder above the
            stages (of which the one trained last is taken), at `s3://BUCKET/...`, too; or `zoo:NAME` for a policy that
            comes with the package, or `hf:user/repo` for one on the Hugging Face hub.

    Raises:
        UserError: If nothing is there, or a stage has several checkpoints or none.
    """
    if is_shipped(path):
        return shipped_policy(path)
    if is_on_hub(path):
        return fetch_policy(path)
    folder = fetched(path, "checkpoint")
    if not folder.exists():
        parent = folder.parent
        near = [entry.name for entry in parent.iterdir() if entry.is_dir()] if parent.is_dir() else []
        raise UserError(
            f"There is no checkpoint at {str(path)!r}; give a checkpoint, a trial, a stage or a run, such as "
            f"results/verco.{did_you_mean(folder.name, near)}"
        )
    require_readable(folder)
    record = read_record(folder)
    if record is None:
        below = sorted(folder.glob(f"*/{MARKER}"), key=lambda marker: marker.stat().st_mtime) if folder.is_dir() else []
        trained = [marker.parent for marker in below if _outputs(marker.parent)]
        return find_checkpoint(trained[-1]) if trained else folder
    outputs = _outputs(folder)
    if not outputs:
        written = sorted(found for found in folder.glob("trial_*/checkpoint_*") if found.is_dir())
        remedy = f" Give one that it has written so far, such as {str(written[-1])!r}." if written else ""
        raise UserError(
            f"Stage {str(path)!r} has no finished checkpoint; it is {record.run} and {record.status}.{remedy}"
        )
    if len(outputs) > 1:
        listed = ", ".join(str(output) for output in outputs)
        raise UserError(f"Stage {str(path)!r} is a sweep with {len(outputs)} checkpoints; give one of {listed}.")
    return outputs[0]


def _outputs(stage: Path) -> list[Path]:
    """The checkpoints or the policy folder that a stage ended with."""
    record = read_record(stage)
    if record is None or record.status != "finished":
        return []
    names = {path: Path(path).name for path in record.outputs}
    return [stage / path for path, name in names.items() if "checkpoint_" in name or name == _POLICY]
