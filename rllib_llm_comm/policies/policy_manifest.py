"""`policy.json`: settings, environment and provenance of a policy folder, checked when it is read."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rllib_llm_comm.core.errors import UserError, require_whole, shown
from rllib_llm_comm.core.files import read_foreign_json
from rllib_llm_comm.core.registry import Registry
from rllib_llm_comm.core.trust import leaves
from rllib_llm_comm.policies.planning_settings import RecordedPlanning

MANIFEST, POLICY_FOLDER, NETWORK = "policy.json", "policy", "network.safetensors"
FORMAT = 1
LANGUAGE, NUMERIC, GROUNDED, VALUED, OFFICER = "language", "numeric", "grounded", "valued", "officer"
POLICY_KINDS: Registry[Any] = Registry(
    "kind",
    {
        LANGUAGE: "rllib_llm_comm.verco.policy:LanguagePolicy",
        NUMERIC: "rllib_llm_comm.baselines.numeric.policy:NumericPolicy",
        GROUNDED: "rllib_llm_comm.sama.emma.policy:GroundedPolicy",
        VALUED: "rllib_llm_comm.baselines.value.q_policy:QPolicy",
        OFFICER: "rllib_llm_comm.baselines.red.officer_policy:OfficerPolicy",
    },
)
"""The policy that each kind of policy folder is loaded as."""
WEIGHTS_MADE_OF = (
    "lora_r", "lora_alpha", "lora_layers", "lora_target_modules", "critic_hiddens", "network", "hiddens", "activation",
    "layer_norm", "communication", "communication_passes", "share_passes", "critic_observation", "use_value_norm",
    "text_encoder", "width", "frames", "filters", "stride", "words", "keys",
)  # fmt: skip
"""Settings of a `model_config` without which weights have another shape or mean something else."""
MOST_MANIFEST = 4 * 2**20
_MOST_NUMBER = 2**63
# Field -> its type, and the type in words.
_TYPES: Mapping[str, tuple[Any, str]] = {
    **dict.fromkeys(("model_config", "communication", "env_config", "provenance"), (Mapping, "a mapping")),
    **dict.fromkeys(("algorithm", "base_model_digest", "base_model_sha256"), (str, "a text")),
    "env": (str | None, "a text"),
    "teacher": (str | Mapping | None, "a name or a mapping"),
}
_LEFT_OUT = ("agents", "base_model_sha256")  # where they are empty
_AGENT = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True)
class PolicyManifest:
    """Contents of `policy.json`.

    Attributes:
        algorithm: Name of the algorithm that wrote it.
        model_config: Fields of `ModuleSettings`; of a numeric policy those of `NumericSettings`, `size`,
            `actions`, `critic_size` and, if it reads a team's vectors, the `team`'s names; of a grounded one those of
            `EmmaSettings` and the network's `sizes`; of a valued one those of `QSettings`, the network's `sizes`, and
            the `team`'s names, `choices` and `forms`; of an officer those of `OfficerSettings`.
        communication: Fields of `CommunicationSettings`.
        env: Id of the environment it was trained on, if it has one.
        env_config: That environment's settings.
        teacher: The teacher of `messages="teacher"`.
        planning: Source of subgoals: fields of `RecordedPlanning`; `None` if nobody did, or the environment itself.
        base_model_digest: Identifies the base model's weights as they are in memory, by a few of them.
        base_model_sha256: The digest of the file with the base model's weights; empty where it has none.
        provenance: Origin (iteration, message checkpoint, ...).
        kind: `"language"`, `"numeric"`, `"grounded"`, `"valued"` or `"officer"`.
        format: Version of this format.
        agents: The agents that have a policy of their own, each in a folder of its name; empty where all share one.
    """

    algorithm: str
    model_config: Mapping[str, Any]
    communication: Mapping[str, Any]
    env: str | None = None
    env_config: Mapping[str, Any] = field(default_factory=dict)
    teacher: Any = None
    planning: Mapping[str, Any] | None = None
    base_model_digest: str = ""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    kind: str = LANGUAGE
    format: int = FORMAT
    agents: Sequence[str] = ()
    base_model_sha256: str = ""

    def to_json(self) -> str:
        """The text of `policy.json`."""
        shown = {name: value for name, value in self.__dict__.items() if value or name not in _LEFT_OUT}
        return json.dumps(shown, indent=2, default=str) + "\n"


def names_a_folder(agent: Any) -> bool:
    """True if an agent's name can be that of its folder: letters, digits, `_` and `-`, at most 64 of them."""
    return isinstance(agent, str) and _AGENT.fullmatch(agent) is not None


def read_manifest(folder: str | os.PathLike[str]) -> PolicyManifest:
    """Reads `policy.json`.

    Raises:
        UserError: If it is damaged, of a later format, or holds what no manifest can hold.
    """
    path = Path(folder) / MANIFEST
    try:
        manifest = PolicyManifest(**read_foreign_json(path, MOST_MANIFEST))
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"{str(path)!r} cannot be read ({error}); save the checkpoint again.") from error
    try:
        _check(manifest)
    except UserError as error:
        raise UserError(f"{str(path)!r} cannot be used: {error}") from None
    return manifest


def _check(manifest: PolicyManifest) -> None:
    require_whole("format", manifest.format, 1)
    if manifest.format > FORMAT:
        raise UserError(
            f"it has format {manifest.format} but this version reads up to {FORMAT}; update rllib_llm_comm."
        )
    for name, (kind, words) in _TYPES.items():
        if not isinstance(getattr(manifest, name), kind):
            raise UserError(f"`{name}` is {shown(getattr(manifest, name))} but must be {words}.")
    POLICY_KINDS.require(manifest.kind)
    if manifest.planning is not None:
        RecordedPlanning.checked("planning", manifest.planning)
    if not isinstance(manifest.agents, list | tuple) or not all(map(names_a_folder, manifest.agents)):
        raise UserError(f"`agents` is {shown(manifest.agents)} but must be a list of plain names.")
    require_bounded("", manifest.__dict__)


def require_same_network(theirs: Mapping[str, Any], own: Mapping[str, Any], origin: str) -> None:
    """Raises a `UserError` unless a module can take over the weights of another one.

    Args:
        theirs: The `model_config` of the other one.
        own: That of the module.
        origin: Where the weights are, for the message.
    """
    for name in WEIGHTS_MADE_OF:
        was, wanted = (list(one) if isinstance(one, tuple) else one for one in (theirs.get(name), own.get(name)))
        if name == "lora_target_modules":  # whose order means nothing
            was, wanted = (sorted(one) if isinstance(one, list) else one for one in (was, wanted))
        if None not in (was, wanted) and "auto" not in (was, wanted) and was != wanted:
            raise UserError(
                f"`{name}` is {shown(wanted)} in this run but {shown(was)} in {origin}; restore it with the settings "
                "of its training, or begin anew."
            )


def require_silence(options: Mapping[str, Any], algorithm: str) -> None:
    """Raises a `UserError` if messages are set for agents of an algorithm that say nothing."""
    for name in ("messages", "message_server", "base_model", "reference", "max_prompt_tokens"):
        if options.get(name) not in (None, "none"):
            lack = "say nothing" if name.startswith("message") or name == "reference" else "have no language model"
            raise UserError(f"`{name}` is {options[name]!r} but agents of {algorithm} {lack}; omit it.")


def require_bounded(setting: str, value: Any) -> None:
    """Refuses numbers that no setting can have, wherever they stand in plain values.

    Args:
        setting: Name of the setting that holds them; empty for all of a manifest.
        value: The values.

    Raises:
        UserError: At the first one.
    """
    for name, number in leaves(value, setting):
        if isinstance(number, int | float) and not -_MOST_NUMBER <= number <= _MOST_NUMBER:
            raise UserError(f"`{name}` is {shown(number)} but must be a number between -2**63 and 2**63.")
