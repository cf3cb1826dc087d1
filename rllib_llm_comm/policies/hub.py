"""Policies on the Hugging Face hub: `hf:user/repo` stands for a checkpoint's path."""

from __future__ import annotations

import os
import re
from pathlib import Path

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.files import read_foreign_json

PREFIX = "hf:"
FILES = ("policy.json", "*.safetensors", "*adapter_config.json", "README.md")
"""The files of a published policy and its card; above all no pickles and no code."""
MOST_BYTES = 2**33
"""Most bytes that are fetched of a repository."""
_MANIFEST, _LANGUAGE = "policy.json", "language"
_MOST_MANIFEST, _MOST_AGENTS = 4 * 2**20, 64
_ROLES = ("message", "action", "reference")
_ADAPTER = ("adapter_config.json", "adapter_model.safetensors")
_AGENT = re.compile(r"[A-Za-z0-9_-]{1,64}")
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

    The manifest is fetched first, then the files that it stands for, if they are not too large.

    Args:
        path: `hf:user/repo`, or `hf:user/repo@revision` for a branch, tag or commit.

    Raises:
        UserError: If the name is none, or the repository cannot be fetched, holds no policy or a larger one.
    """
    from huggingface_hub import HfApi, constants, hf_hub_download, snapshot_download

    named = _NAME.fullmatch(os.fspath(path))
    if named is None:
        raise UserError(f"{os.fspath(path)!r} names no repository; write hf:user/repo, or hf:user/repo@revision.")
    repo, revision = named["repo"], named["revision"]
    try:
        if constants.HF_HUB_OFFLINE:  # what was fetched before
            return Path(snapshot_download(repo, revision=revision, local_files_only=True))
        about = HfApi(endpoint=endpoint()).model_info(repo, revision=revision, files_metadata=True, timeout=_SECONDS)
        sizes = {one.rfilename: one.size or 0 for one in about.siblings or ()}

        def fetch(name: str, revision: str | None) -> Path:
            return Path(hf_hub_download(repo, name, revision=revision, endpoint=endpoint(), etag_timeout=_SECONDS))

        if not 0 < sizes.get(_MANIFEST, 0) <= _MOST_MANIFEST:
            raise UserError(
                f"{os.fspath(path)!r} has no `{_MANIFEST}` of at most {_MOST_MANIFEST} bytes, so it is no policy of "
                "this package; look at the name."
            )
        manifest = fetch(_MANIFEST, revision)
        wanted = [name for name in _files_of(manifest) if name in sizes]
        if (most := sum(sizes[name] for name in wanted)) > MOST_BYTES:
            raise UserError(
                f"{os.fspath(path)!r} has {most} bytes but at most {MOST_BYTES} are fetched; fetch it with `hf "
                "download`, and give its folder."
            )
        for name in wanted:  # of the same commit, after which the cache names its folder
            fetch(name, manifest.parent.name)
        return manifest.parent
    except UserError:
        raise
    except Exception as error:  # the hub's client raises kinds of three libraries
        reason = " ".join(str(error).split())[:300]
        raise UserError(
            f"{os.fspath(path)!r} cannot be fetched ({type(error).__name__}: {reason}); look at the name, at the "
            "network, and whether you are logged in (`hf auth login`) if it is private."
        ) from error


def _files_of(manifest: Path) -> list[str]:
    """The files that a `policy.json` may stand for, relative to it; what it says beyond that is checked on loading."""
    told = read_foreign_json(manifest, _MOST_MANIFEST)
    if not isinstance(told, dict) or told.get("kind", _LANGUAGE) != _LANGUAGE:
        return ["network.safetensors"]
    agents = told.get("agents") or [""]
    if not isinstance(agents, list) or len(agents) > _MOST_AGENTS:
        raise ValueError(f"`agents` of its {_MANIFEST} must be a list of at most {_MOST_AGENTS} names")
    if any(agent != "" and not (isinstance(agent, str) and _AGENT.fullmatch(agent)) for agent in agents):
        raise ValueError(f"`agents` of its {_MANIFEST} must be plain names")
    own = ["critic.safetensors", *(f"adapters/{role}/{name}" for role in _ROLES for name in _ADAPTER)]
    return [f"{agent}/{name}" if agent else name for agent in agents for name in own]
