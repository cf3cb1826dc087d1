"""Paths in stages: something must be there, or a checkpoint must go by a name (`zoo:NAME`, `hf:user/repo`)."""

from __future__ import annotations

from pathlib import Path

from rllib_llm_comm.checkpoints.find_checkpoint import is_named
from rllib_llm_comm.checkpoints.zoo import is_shipped, shipped_policy
from rllib_llm_comm.errors import UserError


def require_path(setting: str, path: str) -> None:
    """Refuses a path at which nothing is.

    Args:
        setting: Name of the setting, for messages.
        path: Its value.

    Raises:
        UserError: If nothing is there.
    """
    if not Path(path).expanduser().exists():
        raise UserError(
            f"`{setting}` is {path!r} but nothing is there; give a path that exists, or the `${{NAME}}` of a stage "
            "above."
        )


def require_checkpoint(setting: str, path: str) -> None:
    """Refuses a checkpoint that is not there; what is on a hub is left to who fetches it.

    Args:
        setting: Name of the setting, for messages.
        path: Its value, as of `find_checkpoint`.

    Raises:
        UserError: If nothing is there, or no shipped policy has the name.
    """
    if not is_named(path):
        require_path(setting, path)
    elif is_shipped(path):
        try:
            shipped_policy(path)
        except UserError as error:
            raise UserError(f"In `{setting}`: {error}") from None
