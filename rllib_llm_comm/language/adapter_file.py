"""Adapter folders in PEFT's format: what `adapter_config.json` says, and whether it means what is built here."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.files import read_foreign_json
from rllib_llm_comm.language.base_model import KNOWN

ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
_MOST_BYTES = 2**20
# They say where the adapter comes from, how it was trained, or which layers it has, which its tensors' names tell, too.
_WITHOUT_EFFECT = frozenset(
    {
        "auto_mapping", "base_model_name_or_path", "corda_config", "eva_config", "exclude_modules", "inference_mode",
        "layers_pattern", "layers_to_transform", "loftq_config", "lora_dropout", "lora_ga_config", "megatron_config",
        "megatron_core", "peft_version", "qalora_group_size", "revision", "target_modules", "task_type",
    }
)  # fmt: skip
# Other starts change the base model's weights as well.
_STARTS_ON_THE_BASE = (True, False, None, "gaussian", "orthogonal", "eva")


# No other program knows these models by name. PEFT and transformers show what they cannot find, so the name tells the
# remedy. It is no possible name on a hub either, where `embedded` could be somebody else's model.
_NAMES_FOR_OTHERS = {
    name: f"{name} of rllib_llm_comm (`rllib export CHECKPOINT FOLDER` writes models that load here)" for name in KNOWN
}


def name_for_others(base_model: str) -> str:
    """A base model's name in `adapter_config.json`: its own, or a hint where only this package knows it.

    Args:
        base_model: As of `load_base_model`.
    """
    return _NAMES_FOR_OTHERS.get(base_model, base_model)


def base_of_adapter(settings: Mapping[str, Any]) -> str | None:
    """The `base_model` that an adapter was trained on, if it says so.

    Args:
        settings: From `read_adapter_settings`.
    """
    told = settings.get("base_model_name_or_path")
    if not isinstance(told, str) or not told:
        return None
    return next((own for own, name in _NAMES_FOR_OTHERS.items() if name == told), told)


def read_adapter_settings(folder: str | os.PathLike[str], role: str) -> dict[str, Any]:
    """Settings in `adapter_config.json` of an adapter folder.

    Args:
        folder: The folder; it must hold weights in safetensors, too.
        role: Role of the adapter, in messages.

    Raises:
        UserError: If files are missing, or the settings are damaged or no LoRA's.
    """
    source = Path(folder)
    path = source / ADAPTER_CONFIG
    if not (source / ADAPTER_WEIGHTS).is_file() or not path.is_file():
        raise UserError(
            f"`{role}` adapter folder {str(source)!r} has no {ADAPTER_CONFIG} and {ADAPTER_WEIGHTS}; "
            "give a folder that was saved by this package or by PEFT (safetensors)."
        )
    try:
        settings = read_foreign_json(path, _MOST_BYTES)
        if not isinstance(settings, dict):
            raise ValueError("it is no JSON object")
        for name in ("peft_type", "r", "lora_alpha"):
            if name not in settings:
                raise ValueError(f"it has no `{name}`")
    except (OSError, ValueError) as error:
        raise UserError(
            f"{str(path)!r} cannot be read ({error}), so that nobody knows how the `{role}` adapter is scaled; save "
            "the adapter again."
        ) from error
    if settings["peft_type"] != "LORA":
        raise UserError(
            f"`{role}` adapter in {str(source)!r} has the `peft_type` {settings['peft_type']!r} but must be a 'LORA'."
        )
    return settings


def require_same_meaning(settings: Mapping[str, Any], own: Mapping[str, Any], role: str, folder: str) -> None:
    """Refuses an adapter whose tensors would mean something else under the settings of the one they are read into.

    The shapes of tensors tell neither their scale (`lora_alpha`, `use_rslora`) nor what else belongs to them
    (`use_dora`, `bias`, patterns per layer).

    Args:
        settings: From `read_adapter_settings`.
        own: Settings of the adapter that the tensors go into, under PEFT's names.
        role: Role of the adapter, in messages.
        folder: Its place, in messages.

    Raises:
        UserError: At the first setting that differs.
    """
    for name in ("r", "lora_alpha"):
        if settings[name] != own[name]:
            setting = "lora_r" if name == "r" else name
            raise UserError(
                f"`{role}` adapter in {folder!r} was trained with `{setting}` {settings[name]!r} but `{setting}` is "
                f"{own[name]!r} here; set `{setting}` to {settings[name]!r}."
            )
    if settings.get("init_lora_weights", True) not in _STARTS_ON_THE_BASE:
        raise _foreign(role, folder, "init_lora_weights", settings["init_lora_weights"])
    for name, value in settings.items():
        if name in _WITHOUT_EFFECT or name == "init_lora_weights":
            continue
        # A later PEFT has settings that this one does not know; those that are off change nothing.
        known = own.get(name)
        if value != known and (value or known):
            raise _foreign(role, folder, name, value)


def _foreign(role: str, folder: str, name: str, value: Any) -> UserError:
    return UserError(
        f"`{role}` adapter in {folder!r} has `{name}` {value!r}, which this package does not compute; train a plain "
        "LoRA adapter, or convert it to one with PEFT."
    )


def require_rank(folder: str | os.PathLike[str], role: str, rank: int) -> None:
    """Compares a rank with the shapes that a safetensors file begins with, before anything of this rank is built.

    Args:
        folder: The adapter folder.
        role: Role of the adapter, in messages.
        rank: The rank that will be built.

    Raises:
        UserError: If a tensor has another rank, or the file cannot be read.
    """
    from safetensors import SafetensorError, safe_open

    path = Path(folder) / ADAPTER_WEIGHTS
    try:
        with safe_open(str(path), framework="pt") as file:
            names = [name for name in file.keys() if "lora_A" in name]  # noqa: SIM118  (no mapping)
            shapes = {name: file.get_slice(name).get_shape() for name in names}
    except (OSError, SafetensorError) as error:
        raise UserError(
            f"{str(path)!r} cannot be read as safetensors ({str(error).splitlines()[0]}); save the checkpoint again."
        ) from error
    for name, shape in shapes.items():
        if not shape or shape[0] != rank:
            raise UserError(
                f"`{role}` adapter in {str(path)!r} does not fit its own settings (`lora_r` is {rank} but {name!r} "
                f"has the shape {shape}); save the checkpoint again."
            )
    if not shapes:
        raise UserError(f"`{role}` adapter in {str(folder)!r} holds no LoRA weights; save the checkpoint again.")
