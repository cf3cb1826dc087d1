"""Publishes a policy on the Hugging Face hub: its folder, with adapters as plain PEFT, and a model card."""

from __future__ import annotations

import json
import re
import socket
import tempfile
from collections.abc import Mapping
from numbers import Real
from pathlib import Path
from typing import Any, Protocol

from rllib_llm_comm.core.errors import UserError, one_line, shown
from rllib_llm_comm.envs.minirts.officers import checkpoints_of
from rllib_llm_comm.policies.find_checkpoint import FILES, HUB_PREFIX, endpoint, in_markdown, is_repo, is_shipped
from rllib_llm_comm.policies.policy_folder import write_policy
from rllib_llm_comm.policies.policy_manifest import LANGUAGE, MANIFEST, PolicyManifest
from rllib_llm_comm.policies.recorded_settings import Withheld, withhold

CARD = "README.md"
_LICENCE = re.compile(r"[\w.+-]*")
_NAME = re.compile(r"\w{1,64}")
# Of a policy's origin only these figures are told: no texts, such as samples of labels, folders or settings.
_ORIGIN = ("training_iteration", "game_steps", "score", "decisions", "held_out_nll", "agreement")
# Sentences of controls, told only where the policy says them.
_SENTENCES = {"constant_message": "constant", "message_menu": "menu"}
_PLACE = re.compile(r"(?:^|[\s'\"=:(,\[])(?:/|~[/\\]|[A-Za-z]:\\|\\\\)\S")
# Texts of a game's settings are names and kitchens; what looks like a path could be one, relative to any folder.
_GAME_TEXT = re.compile(r"[^/\\.~]*")


class Publishable(Protocol):
    """What can be published: a policy with its manifest."""

    manifest: PolicyManifest

    def files(self) -> dict[str, bytes]:
        """The files of its folder but the manifest."""


def push_policy(
    policy: Publishable,
    repo: str,
    *,
    private: bool = False,
    figures: Mapping[str, float] | None = None,
    licence: str = "",
) -> str:
    """Writes a policy into a repository on the hub, which is made if it is not there.

    Told are the settings with which it plays and figures of its training, nothing else (`public_manifest`). The token
    is that of the hub's own client (`hf auth login`, or `HF_TOKEN`).

    Args:
        policy: A loaded policy.
        repo: `user/name`.
        private: True if only you may see a repository that is made.
        figures: Figures for the card, such as those of `evaluate_checkpoint`; empty: the card says that there are none.
        licence: An identifier of the hub for the card, such as "apache-2.0"; empty: the card names none.

    Returns:
        The address of the commit.

    Raises:
        UserError: If the base model is a folder of this machine, the name, a figure or the licence is none, or the
            hub refuses.
    """
    from huggingface_hub import HfApi

    _require_words(repo, figures, licence)
    manifest = public_manifest(policy.manifest)
    api = HfApi(endpoint=endpoint())
    with tempfile.TemporaryDirectory() as scratch:
        folder = write_policy(Path(scratch) / "policy", policy.files(), manifest)
        (folder / CARD).write_text(model_card(manifest, repo, figures or {}, licence), encoding="utf-8")
        try:
            api.create_repo(repo, private=private, exist_ok=True)
            told = api.upload_folder(
                repo_id=repo,
                folder_path=folder,
                commit_message="A policy of rllib_llm_comm",
                delete_patterns=list(FILES),  # weights of a policy that was published there before
            )
        except Exception as error:  # the hub's client raises kinds of three libraries
            reason = one_line(str(error), 300)
            raise UserError(
                f"the policy cannot be published as {repo!r} ({type(error).__name__}: {reason}); look at the name "
                "(user/name), at the network, and whether you are logged in (`hf auth login`)."
            ) from error
    return str(told.commit_url)


def _require_words(repo: str, figures: Mapping[str, float] | None, licence: str) -> None:
    if not is_repo(repo):
        raise UserError(
            f"the policy cannot be published as {repo!r}, which is no name of a repository; give user/name."
        )
    if figures is not None and not isinstance(figures, Mapping):
        raise UserError(f"`figures` is {figures!r} but must be names with numbers, such as {{'return': 1.35}}.")
    for name, value in (figures or {}).items():
        if not isinstance(value, Real):
            raise UserError(f"`figures[{name!r}]` is {value!r} but must be a number.")
    if _LICENCE.fullmatch(licence) is None:
        raise UserError(f"`licence` is {licence!r} but must be an identifier of the hub, such as 'apache-2.0'.")


def public_manifest(manifest: PolicyManifest) -> PolicyManifest:
    """The part of a manifest that is published: what it takes to play, and figures of the training.

    Left out are servers, names of keys, folders and files, sentences that the policy does not say, and of its origin
    all but figures.

    Raises:
        UserError: If the policy needs such a thing: a base model, text encoder or executor that is a folder here; or if
            what is left names a place on this machine.
    """
    inside = withhold(manifest)
    for name in ("base_model", "text_encoder"):
        value = manifest.model_config.get(name)
        if isinstance(inside.model_config.get(name), Withheld) or (value and Path(str(value)).expanduser().is_dir()):
            raise UserError(
                f"`{name}` of the policy is {value!r}, which others do not have; only policies of models that come "
                "with the package can be published."
            )
    planning = inside.planning
    if planning is not None and isinstance(planning.get("planner"), Withheld):
        planning = None
    talk = _without_withheld(inside.communication)
    public = PolicyManifest(
        algorithm=inside.algorithm,
        model_config=inside.model_config,
        communication={n: v for n, v in talk.items() if n not in _SENTENCES or _SENTENCES[n] == talk.get("messages")},
        env=inside.env,
        env_config={**_without_withheld(inside.env_config), **_executors(manifest.env_config)},
        teacher=inside.teacher if isinstance(inside.teacher, str) and _NAME.fullmatch(inside.teacher) else None,
        planning=planning,
        base_model_digest=inside.base_model_digest,
        base_model_sha256=inside.base_model_sha256,
        provenance={name: inside.provenance[name] for name in _ORIGIN if _is_figure(inside.provenance.get(name))},
        kind=inside.kind,
        agents=tuple(inside.agents),
    )
    for name, value in public.__dict__.items():
        _require_no_place(name, value)
    return public


def _without_withheld(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if not isinstance(value, Withheld)}


def _executors(env_config: Mapping[str, Any]) -> dict[str, Any]:
    """The setting `executor` of a game, if it has one; without it the policy would play another game.

    Raises:
        UserError: If it names a checkpoint that others do not have.
    """
    if "executor" not in env_config:
        return {}
    named = env_config["executor"]
    if not all(is_shipped(one) or one.startswith(HUB_PREFIX) for one in checkpoints_of(named) or ()):
        raise UserError(
            f"`env_config.executor` of the policy is {shown(named)}, which others do not have; publish it, too, and "
            f"write 'trained:{HUB_PREFIX}user/name' into `{MANIFEST}` first."
        )
    return {"executor": named}


def _is_figure(value: Any) -> bool:
    return all(isinstance(one, int | float) for one in value) if isinstance(value, list) else isinstance(value, Real)


def _require_no_place(setting: str, value: Any) -> None:
    """Refuses texts, however nested, with a path, an address, or the name of this machine.

    Relative paths are told by their form, in settings of games alone: messages may have dots and slashes.
    """
    if isinstance(value, Mapping):
        for key, inner in value.items():
            _require_no_place(setting, str(key))
            _require_no_place(f"{setting}.{key}", inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            _require_no_place(setting, inner)
    elif isinstance(value, str):
        host = socket.gethostname()
        named_place = setting.startswith("env_config") and setting != "env_config.executor"  # which `_executors` checks
        relative = named_place and not _GAME_TEXT.fullmatch(value)
        named = host not in ("", "localhost") and re.search(rf"\b{re.escape(host)}\b", value)
        if relative or named or _PLACE.search(value):
            raise UserError(
                f"`{setting}` of the policy is {shown(value)}, which names a place on this machine and would be told "
                f"to everybody; take it out of `{MANIFEST}` first."
            )


def model_card(manifest: PolicyManifest, repo: str, figures: Mapping[str, float], licence: str) -> str:
    """A model card in the hub's form.

    Args:
        repo: `user/name`.
        figures: Name -> figure.
        licence: The hub's identifier of a licence, or empty.
    """
    head = ["library_name: rllib_llm_comm", "tags: [reinforcement-learning, multi-agent]"]
    head += [f"license: {licence}"] if licence else []
    rows = "\n".join(f"| {in_markdown(name)} | {value:g} |" for name, value in figures.items())
    measured = f"| Figure | Value |\n| --- | --- |\n{rows}" if figures else "No figures were given with it."
    settings = json.dumps({"env": manifest.env, "env_config": dict(manifest.env_config)}, indent=2, default=str)
    parts, algorithm = "", in_markdown(manifest.algorithm)
    if manifest.kind == LANGUAGE:
        base = manifest.model_config.get("base_model")
        digest = f", sha256 `{in_markdown(manifest.base_model_sha256)}`" if manifest.base_model_sha256 else ""
        parts = f"\nIts adapters (`adapters/message`, `adapters/action`) are plain PEFT adapters of `{base}`{digest}.\n"
    return (
        "---\n" + "\n".join(head) + "\n---\n\n"
        f"# {repo}\n\nA policy that {algorithm} of rllib_llm_comm trained. It holds JSON and safetensors, no "
        f"pickles.\n{parts}\n"
        f'```python\nfrom rllib_llm_comm import load_policy\n\npolicy = load_policy("hf:{repo}")\n```\n\n'
        f"## Game\n\n```json\n{settings}\n```\n\n## Figures\n\n{measured}\n"
    )
