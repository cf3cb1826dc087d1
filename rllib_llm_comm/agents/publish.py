"""Publishes a policy on the Hugging Face hub: its folder, with adapters as plain PEFT, and a model card."""

from __future__ import annotations

import dataclasses
import json
import re
import tempfile
from collections.abc import Mapping
from numbers import Real
from pathlib import Path
from typing import Any

from rllib_llm_comm.agents.policy_folder import LANGUAGE, network_file, policy_files, write_policy
from rllib_llm_comm.agents.policy_manifest import PolicyManifest
from rllib_llm_comm.agents.recorded_settings import Withheld, withhold
from rllib_llm_comm.checkpoints.hub import FILES, endpoint, is_repo
from rllib_llm_comm.errors import UserError

CARD = "README.md"
_LICENCE = re.compile(r"[\w.+-]*")


class Publishable:
    """A loaded policy that can be published."""

    def push_to_hub(
        self, repo: str, *, private: bool = False, figures: Mapping[str, float] | None = None, licence: str = ""
    ) -> str:
        """Publishes the policy on the Hugging Face hub; `load_policy("hf:user/name")` loads it.

        Args:
            repo: `user/name`.
            private: As of `push_policy`.
            figures: As of `push_policy`.
            licence: As of `push_policy`.

        Returns:
            The address of the commit.

        Raises:
            UserError: As of `push_policy`.
        """
        return push_policy(self, repo, private=private, figures=figures, licence=licence)


def push_policy(
    policy: Any, repo: str, *, private: bool = False, figures: Mapping[str, float] | None = None, licence: str = ""
) -> str:
    """Writes a policy into a repository on the hub, which is made if it is not there.

    Recorded servers, names of keys and places of this machine are left out. The token is that of the hub's own client
    (`hf auth login`, or `HF_TOKEN`).

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
        folder = write_policy(Path(scratch) / "policy", _files(policy), manifest)
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
            reason = " ".join(str(error).split())[:300]
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
    """A manifest without what reaches beyond the program: servers, names of keys, places of this machine.

    Args:
        manifest: Of the policy.

    Raises:
        UserError: If the policy needs such a thing: a base model or text encoder that is a folder here.
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
    return dataclasses.replace(
        inside,
        communication=_without_withheld(inside.communication),
        env_config=_without_withheld(inside.env_config),
        teacher=None if isinstance(inside.teacher, Withheld) else inside.teacher,
        planning=planning,
        provenance={name: value for name, value in inside.provenance.items() if name != "message_checkpoint"},
        agents=tuple(inside.agents),
    )


def _without_withheld(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if not isinstance(value, Withheld)}


def _files(policy: Any) -> dict[str, bytes]:
    """The files of a policy folder but its manifest."""
    manifest = policy.manifest
    if manifest.kind != LANGUAGE:
        return network_file(policy.network)
    if not manifest.agents:
        return policy_files(policy.core)
    return {
        f"{agent}/{name}": content
        for agent in manifest.agents
        for name, content in policy_files(policy.core_of(agent)).items()
    }


def model_card(manifest: PolicyManifest, repo: str, figures: Mapping[str, float], licence: str) -> str:
    """A model card in the hub's form.

    Args:
        manifest: The public manifest.
        repo: `user/name`.
        figures: Name -> figure.
        licence: The hub's identifier of a licence, or empty.
    """
    head = ["library_name: rllib_llm_comm", "tags: [reinforcement-learning, multi-agent]"]
    head += [f"license: {licence}"] if licence else []
    rows = "\n".join(f"| {name} | {value:g} |" for name, value in figures.items())
    measured = f"| Figure | Value |\n| --- | --- |\n{rows}" if figures else "No figures were given with it."
    settings = json.dumps({"env": manifest.env, "env_config": dict(manifest.env_config)}, indent=2, default=str)
    parts = ""
    if manifest.kind == LANGUAGE:
        base = manifest.model_config.get("base_model")
        parts = f"\nIts adapters (`adapters/message`, `adapters/action`) are plain PEFT adapters of `{base}`.\n"
    return (
        "---\n" + "\n".join(head) + "\n---\n\n"
        f"# {repo}\n\nA policy that {manifest.algorithm} of rllib_llm_comm trained. It holds JSON and safetensors, no "
        f"pickles.\n{parts}\n"
        f'```python\nfrom rllib_llm_comm import load_policy\n\npolicy = load_policy("hf:{repo}")\n```\n\n'
        f"## Game\n\n```json\n{settings}\n```\n\n## Figures\n\n{measured}\n"
    )
