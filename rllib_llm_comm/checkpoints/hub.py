"""Policies on the Hugging Face hub: `hf:user/repo` stands for a checkpoint's path."""

from __future__ import annotations

import os
import re
from pathlib import Path

from rllib_llm_comm.errors import UserError

PREFIX = "hf:"
FILES = ("policy.json", "*.safetensors", "*adapter_config.json", "README.md")
"""The files that are fetched; a policy has nothing else, above all no pickles and no code."""
_SECONDS = 30.0
_REPO = r"\w[\w.-]*/\w[\w.-]*"
_NAME = re.compile(rf"hf:(?P<repo>{_REPO})(?:@(?P<revision>[\w./-]+))?")


def is_on_hub(path: str | os.PathLike[str]) -> bool:
    """True if a path is `hf:` and a name; whether there is such a repository is not asked."""
    return os.fspath(path).startswith(PREFIX)


def is_repo(name: str) -> bool:
    """True if a name is one of a repository, `user/name`; whether there is such a repository is not asked."""
    return re.fullmatch(_REPO, name) is not None


def endpoint() -> str | None:
    """The hub's address in `HF_ENDPOINT`; `None` for the public one."""
    return os.environ.get("HF_ENDPOINT") or None


def fetch_policy(path: str | os.PathLike[str]) -> Path:
    """The policy folder of a repository on the hub, in the hub's cache on this machine.

    Args:
        path: `hf:user/repo`, or `hf:user/repo@revision` for a branch, tag or commit.

    Raises:
        UserError: If the name is none, or the repository cannot be fetched.
    """
    from huggingface_hub import snapshot_download

    named = _NAME.fullmatch(os.fspath(path))
    if named is None:
        raise UserError(f"{os.fspath(path)!r} names no repository; write hf:user/repo, or hf:user/repo@revision.")
    try:
        # One file after the other: after a fault the client's threads close each other's connection.
        found = snapshot_download(
            named["repo"], revision=named["revision"], allow_patterns=list(FILES), endpoint=endpoint(), max_workers=1,
            etag_timeout=_SECONDS,
        )  # fmt: skip
    except Exception as error:  # the hub's client raises kinds of three libraries
        reason = " ".join(str(error).split())[:300]
        raise UserError(
            f"{os.fspath(path)!r} cannot be fetched ({type(error).__name__}: {reason}); look at the name, at the "
            "network, and whether you are logged in (`hf auth login`) if it is private."
        ) from error
    return Path(found)
