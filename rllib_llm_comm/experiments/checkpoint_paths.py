"""Paths in stages: something must be there, or a checkpoint must go by a name (`zoo:NAME`, `hf:user/repo`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.places import fetched, local_path, scheme_of
from rllib_llm_comm.policies.find_checkpoint import is_named
from rllib_llm_comm.policies.zoo import is_shipped, shipped_policy


def require_path(setting: str, path: str) -> None:
    """Refuses a path at which nothing is.

    Args:
        setting: Name of the setting, for messages.
        path: Its value.

    Raises:
        UserError: If nothing is there.
    """
    if not local_path(path, setting).exists():
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


# Settings that are read and never written; a stage gets a copy of what lies in a store.
_READ = (
    "action_checkpoint", "base_model", "checkpoint", "demonstrations", "input", "input_", "manual",
    "message_checkpoint", "officer", "paper", "partners", "player", "policy", "population_from", "prompts", "reference",
    "restore", "sessions", "subgoal_file", "text_encoder", "translation",
)  # fmt: skip
# RLlib's own algorithms read and write these themselves, wherever pyarrow can.
_OFFLINE_DATA = ("input", "input_", "output")
_PYARROWS = ("abfs", "abfss", "file", "gcs", "gs", "hdfs", "s3", "viewfs")
_ADDRESSES = ("http", "https", "ws", "wss")


def on_this_machine(setting: str, values: Mapping[str, Any], rllibs_own: bool = False) -> dict[str, Any]:
    """Settings with paths of this machine in place of URIs.

    Args:
        setting: The name above them, for messages.
        values: The settings.
        rllibs_own: True if they are of an algorithm of RLlib's own.

    Raises:
        UserError: If a URI is of an unknown kind, leads to nothing, or is of a setting that cannot lie in a store.
    """

    def local(name: str, key: str, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {inner: local(f"{name}.{inner}", str(inner), item) for inner, item in value.items()}
        if isinstance(value, list):
            return [local(name, key, item) for item in value]
        if not isinstance(value, str) or "://" not in value or scheme_of(value) in ("", *_ADDRESSES):
            return value
        if rllibs_own and key in _OFFLINE_DATA and scheme_of(value) in _PYARROWS:
            return value
        return str(fetched(value, name) if key in _READ else local_path(value, name))

    return {key: local(f"{setting}.{key}", key, value) for key, value in values.items()}
