"""The language part of a policy folder: adapters in PEFT's format and the critic, written, checked and loaded."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.places import fetched
from rllib_llm_comm.core.weights import read_weights
from rllib_llm_comm.language.adapter_file import ADAPTER_CONFIG, base_of_adapter, read_adapter_settings, require_rank
from rllib_llm_comm.language.adapters import ACTION, MESSAGE, REFERENCE
from rllib_llm_comm.language.base_model import KNOWN, BaseModel
from rllib_llm_comm.language.chat_template import CHAT, PLAIN, PROMPT_DATE
from rllib_llm_comm.language.prompt_sets import AGENT_TEMPLATES, DEFAULT, SHIPPED, read_prompts
from rllib_llm_comm.policies.policy_folder import find_policy, require_shapes
from rllib_llm_comm.policies.policy_manifest import MANIFEST, PolicyManifest, read_manifest
from rllib_llm_comm.policies.recorded_settings import granted
from rllib_llm_comm.verco.language_agent import LLMCommCore, build_critic
from rllib_llm_comm.verco.settings import LanguageModelSettings

logger = logging.getLogger(__name__)

_CRITIC = "critic.safetensors"
TRAINS_ALONE = {MESSAGE: "MessageSFT", ACTION: "ActionSFT"}
"""Role of an adapter -> the algorithm that trains it alone, from what was recorded."""
_TEMPLATES = {MESSAGE: ("message", "subgoal"), ACTION: ("action", "heard", "subgoal")}
"""Role of an adapter -> templates of the prompts that it reads."""
_told_prompts: set[tuple[str, ...]] = set()


def base_model_digest(base: BaseModel) -> str:
    """A short fingerprint of a base model: its shape and a few rows of its embedding."""
    weight = base.model.get_input_embeddings().weight
    sample = weight[:: max(1, len(weight) // 16)][:16].detach().float().cpu().numpy()
    shape = [list(weight.shape), sum(p.numel() for p in base.model.parameters())]
    return hashlib.blake2b(json.dumps(shape).encode() + sample.tobytes(), digest_size=8).hexdigest()


def policy_files(core: LLMCommCore) -> dict[str, bytes]:
    """Adapters and critic as file contents by relative path."""
    from safetensors.torch import save

    files: dict[str, bytes] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for role in core.lm.roles:
            core.lm.save_adapter(role, Path(scratch) / role)
            for path in sorted((Path(scratch) / role).iterdir()):
                files[f"adapters/{role}/{path.name}"] = path.read_bytes()
    if core.settings.critic_hiddens is not None:
        files[_CRITIC] = save({name: tensor.cpu().contiguous() for name, tensor in core.critic.state_dict().items()})
    return files


def load_cores(folder: str | os.PathLike[str], manifest: PolicyManifest, **overrides: Any) -> dict[str, LLMCommCore]:
    """Builds the networks of a policy folder whose agents have a policy each, by agent, as `load_core`."""
    return {agent: load_core(Path(folder) / agent, manifest, **overrides) for agent in manifest.agents}


def load_core(
    folder: str | os.PathLike[str], manifest: PolicyManifest, *, reference: bool = False, **overrides: Any
) -> LLMCommCore:
    """Builds the network of a policy folder.

    Args:
        folder: The policy folder, or that of one of its agents.
        manifest: Its manifest.
        reference: True if it has a reference adapter also where the folder holds none (then a fresh one).
        **overrides: Language-model settings to change, such as `device` or `base_model` (a new place of the
            same model).

    Raises:
        UserError: If files are missing, the base model is withheld or another one, or weights do not fit the
            settings.
    """
    values = {name: granted(value) for name, value in {**manifest.model_config, **overrides}.items()}
    settings = LanguageModelSettings.from_mapping(values)
    held = Path(folder) / "adapters"
    roles = (MESSAGE, ACTION, REFERENCE) if (held / REFERENCE).is_dir() else (MESSAGE, ACTION)
    for role in roles:
        read_adapter_settings(held / role, role)
        require_rank(held / role, role, settings.lora_r)
    critic = {} if settings.critic_hiddens is None else read_weights(Path(folder) / _CRITIC)
    _require_critic(str(folder), settings, critic)
    core = LLMCommCore(settings, reference=reference or REFERENCE in roles)
    _require_same_base(core.lm.base, manifest, str(folder))
    for role in roles:
        core.lm.load_adapter(role, held / role)
    try:
        core.critic.load_state_dict(critic)
    except RuntimeError as error:
        raise _misfit(str(folder), error) from error
    return core


def _require_critic(folder: str, settings: LanguageModelSettings, weights: Mapping[str, torch.Tensor]) -> None:
    inputs = next((tensor.shape[-1] for tensor in weights.values() if tensor.dim() == 2), 1)
    try:
        require_shapes(lambda: build_critic(inputs, settings.critic_hiddens), weights)
    except RuntimeError as error:
        raise _misfit(folder, error) from error


def _misfit(folder: str, error: RuntimeError) -> UserError:
    reason = " ".join(str(error).split())[:300]
    return UserError(
        f"the critic in {str(Path(folder) / _CRITIC)!r} does not fit its own settings ({reason}); save the checkpoint "
        "again."
    )


def load_adapter_of(
    core: LLMCommCore,
    path: str | os.PathLike[str],
    agent: str | None = None,
    role: str = MESSAGE,
    into: str | None = None,
) -> None:
    """Loads one adapter of a checkpoint, and nothing else of it.

    Args:
        core: The network it goes into.
        path: A checkpoint, as of `find_policy`, or a PEFT adapter folder.
        agent: The adapter's agent, of a checkpoint in which each agent has its own.
        role: The adapter that is taken: `MESSAGE` or `ACTION`.
        into: The network's adapter that takes its weights; by default that of the same role.

    Raises:
        UserError: If there is none, it was never trained, or it belongs to another base model.
    """
    root = fetched(path, "checkpoint")
    base = core.lm.base
    if (root / ADAPTER_CONFIG).is_file():
        _require_role(root, role)
        trained_on = base_of_adapter(read_adapter_settings(root, role))
        if trained_on and not _same_name(trained_on, base.name):
            raise _other_base(str(root), trained_on, base.name)
        core.lm.load_adapter(into or role, root)
        above = next((one for one in root.resolve().parents[1:3] if (one / MANIFEST).is_file()), None)
        if above is not None:  # it lies in a policy folder, maybe in that of one agent
            tell_other_prompts(path, read_manifest(above), core.settings, _TEMPLATES[role])
        return
    folder = find_policy(root)
    manifest = read_manifest(folder)
    _require_same_base(base, manifest, str(path))
    if manifest.agents:
        if agent is None or agent not in manifest.agents:
            listed = ", ".join(manifest.agents)
            raise UserError(
                f"checkpoint {str(path)!r} has a {role} adapter for each of {listed}, but {agent!r} is none of them; "
                f"give one of its folders, such as {str(folder / manifest.agents[0] / 'adapters' / role)!r}."
            )
        folder = folder / agent
    _require_learned(str(path), manifest, role)
    core.lm.load_adapter(into or role, folder / "adapters" / role)
    if role == ACTION:
        _tell_other_scores(str(path), manifest, core.settings)
    tell_other_prompts(path, manifest, core.settings, _TEMPLATES[role])


def tell_other_prompts(
    path: str | os.PathLike[str],
    manifest: PolicyManifest,
    settings: LanguageModelSettings,
    templates: Sequence[str] = AGENT_TEMPLATES,
) -> None:
    """Tells once per process, in one line of the log, if weights were trained with other prompts than they get here.

    Args:
        path: Where they come from.
        manifest: Its manifest.
        settings: Settings of the network that they go into.
        templates: Those that these weights read.
    """
    trained = manifest.model_config.get("prompts", DEFAULT)
    if not isinstance(trained, Mapping) and trained not in SHIPPED:
        return  # no checkpoint of ours names a folder
    before, now = read_prompts(trained), read_prompts(settings.prompts)
    other = [name for name in templates if before[name] != now[name]]
    told = (str(path), *other)
    if other and told not in _told_prompts:
        _told_prompts.add(told)
        logger.warning(
            "%r was trained with other prompts than `prompts` gives it here: the templates %s differ; it goes on with "
            "those given here.",
            str(path),
            ", ".join(other),
        )


def check_adapter_of(
    path: str | os.PathLike[str],
    base_model: str,
    prompt_format: str = PLAIN,
    prompt_date: str = PROMPT_DATE,
    role: str = MESSAGE,
) -> None:
    """Finds out whether an adapter for a base model is at a path, without loading either.

    Args:
        path: As for `load_adapter_of`.
        base_model: The name of the base model it is to be used with.
        prompt_format: The format of prompts that it is to read.
        prompt_date: The day that a chat template shows.
        role: The adapter that is taken: `MESSAGE` or `ACTION`.

    Raises:
        UserError: If there is none, it was never trained, or it belongs to another base model or format.
    """
    root = fetched(path, "checkpoint")
    if (root / ADAPTER_CONFIG).is_file():
        _require_role(root, role)
        adapters = [root]
        trained_on = base_of_adapter(read_adapter_settings(root, role))
    else:
        folder = find_policy(root)
        manifest = read_manifest(folder)
        adapters = [folder / agent / "adapters" / role for agent in manifest.agents or ("",)]
        trained_on = manifest.model_config.get("base_model")
        _require_same_form(str(path), manifest, prompt_format, prompt_date)
        if not all((adapter / ADAPTER_CONFIG).is_file() for adapter in adapters):
            raise UserError(
                f"checkpoint {str(path)!r} has no {role} adapter; give a checkpoint of {TRAINS_ALONE[role]} or of "
                "Verco."
            )
        _require_learned(str(path), manifest, role)
    for adapter in adapters:
        read_adapter_settings(adapter, role)
    # Two paths may be the same model; whether they are is known only when it is loaded.
    if trained_on and {trained_on, base_model} & set(KNOWN) and not _same_name(trained_on, base_model):
        raise _other_base(str(path), trained_on, base_model)


def _tell_other_scores(where: str, manifest: PolicyManifest, settings: LanguageModelSettings) -> None:
    """Warns where the same adapter makes another policy, since its scores are read otherwise."""
    for name in ("score_normalization", "temperature"):
        known, here = manifest.model_config.get(name), getattr(settings, name)
        if known is not None and known != here:
            logger.warning(
                "The action adapter of %r was trained with `%s` %r, but `%s` is %r here: it begins as another policy "
                "than the one that was judged.",
                where,
                name,
                known,
                name,
                here,
            )


def _require_role(adapter: Path, role: str) -> None:
    """Refuses an adapter of this package's folders that is another role's; PEFT knows no roles."""
    if adapter.parent.name == "adapters" and adapter.name in TRAINS_ALONE and adapter.name != role:
        raise UserError(
            f"{str(adapter)!r} is the {adapter.name} adapter of a policy, but its {role} adapter is needed; give "
            f"{str(adapter.with_name(role))!r}, or a checkpoint of {TRAINS_ALONE[role]} or of Verco."
        )


def _require_learned(where: str, manifest: PolicyManifest, role: str) -> None:
    """Refuses the adapter that supervised training of the other role has left as it began."""
    kept = f"{role}_checkpoint"
    for other, algorithm in TRAINS_ALONE.items():
        if other != role and manifest.algorithm == algorithm and not manifest.provenance.get(kept):
            raise UserError(
                f"checkpoint {where!r} is of {algorithm}, which trains the {other} adapter alone, but its {role} "
                f"adapter is needed; give a checkpoint of {TRAINS_ALONE[role]} or of Verco."
            )


def _require_same_base(base: BaseModel, manifest: PolicyManifest, where: str) -> None:
    _require_same_form(where, manifest, base.prompt_format, base.prompt_date)
    if manifest.base_model_digest and manifest.base_model_digest != base_model_digest(base):
        raise _other_base(where, str(manifest.model_config.get("base_model")), base.name)


def _require_same_form(where: str, manifest: PolicyManifest, prompt_format: str, prompt_date: str) -> None:
    """Refuses adapters that know prompts in another format, or a chat with another date."""
    known, here = manifest.model_config, {"prompt_format": prompt_format, "prompt_date": prompt_date}
    for name, default in (("prompt_format", PLAIN), ("prompt_date", PROMPT_DATE)):
        if known.get(name, default) != here[name] and (name == "prompt_format" or prompt_format == CHAT):
            raise UserError(
                f"the adapters in {where!r} were trained with `{name}` {known.get(name, default)!r} but `{name}` is "
                f"{here[name]!r} here; set it to {known.get(name, default)!r}, or train new ones."
            )


def _same_name(one: str, other: str) -> bool:
    return one == other or os.path.realpath(one) == os.path.realpath(other)


def _other_base(where: str, trained_on: str, base: str) -> UserError:
    return UserError(
        f"the adapters in {where!r} were trained on base model {trained_on!r}, whose weights are not those "
        f"of `base_model` {base!r}; use the base model that they were trained on, or train new ones."
    )
