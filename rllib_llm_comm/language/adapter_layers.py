"""Shape of LoRA adapters, and PEFT's layers put into a frozen base model."""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.language.adapter_file import name_for_others
from rllib_llm_comm.language.base_model import SMOLLM2, BaseModel, read_config


@dataclass(frozen=True)
class AdapterConfig:
    """Shape of a LoRA adapter.

    Attributes:
        r: Rank, >= 1. TWOSOME: 8; Verco does not say.
        alpha: Scale numerator (the update is scaled by alpha / r). TWOSOME: 16.
        dropout: LoRA dropout in [0, 1). 0 by default, because dropout makes the first PPO ratio differ
            from 1 (ours).
        target_modules: `"all-linear"` (ours) or names of linear maps; TWOSOME: `("q_proj", "v_proj")`.
        layers: `"all"` (the papers), or a number k >= 1: only the k layers next to the output have adapters (ours).
    """

    r: int = 8
    alpha: int = 16
    dropout: float = 0.0
    target_modules: str | tuple[str, ...] = "all-linear"
    layers: int | str = "all"

    def __post_init__(self) -> None:
        if self.r < 1:
            raise UserError(f"`lora_r` is {self.r} but must be at least 1.")
        if not 0.0 <= self.dropout < 1.0:
            raise UserError(f"`lora_dropout` is {self.dropout} but must be in [0, 1).")
        if self.layers != "all" and (not isinstance(self.layers, int) or self.layers < 1):
            raise UserError(f"`lora_layers` is {self.layers!r} but must be 'all' or a number of at least 1.")


def put_adapters(base: BaseModel, config: AdapterConfig, roles: Sequence[str], depth: int) -> Any:
    """A copy of the base with PEFT's layers in it, whose frozen weights are the base's own.

    Args:
        base: The frozen model.
        config: Shape of every adapter.
        roles: One adapter for each name.
        depth: Number of layers below those that get adapters.

    Raises:
        UserError: If `target_modules` names what is no linear map in the base's layers.
    """
    from peft import LoraConfig, get_peft_model

    shared: dict[int, Any] = {id(p): p for p in base.model.parameters()}
    shared.update({id(b): b for b in base.model.buffers()})
    clone = copy.deepcopy(base.model, shared)
    clone.__dict__["name_or_path"] = name_for_others(base.name)  # PEFT writes it into adapter_config.json
    targets = config.target_modules
    require_targets(base.name, base.model, targets)
    where = {**_linear_in_decoder_only(clone), **(_above(clone.get_decoder(), targets, depth) if depth else {})}
    lora = {
        "r": config.r,
        "lora_alpha": config.alpha,
        "lora_dropout": config.dropout,
        "target_modules": targets if isinstance(targets, str) else list(targets),
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": name_for_others(base.name),
        **where,
    }
    try:
        with warnings.catch_warnings():
            # PEFT asks transformers 5 for a property by its old name.
            warnings.filterwarnings("ignore", ".*is_gradient_checkpointing", FutureWarning)
            peft_model = get_peft_model(clone, LoraConfig(**lora), adapter_name=roles[0])
            for role in roles[1:]:
                peft_model.add_adapter(role, LoraConfig(**lora))
    except ValueError as error:
        reason = (str(error) or "?").splitlines()[0]
        raise UserError(
            f"`lora_target_modules` is {targets!r}, which fits no linear map of {base.name!r} that can be adapted in "
            f"the layers that `lora_layers` leaves ({reason}); use 'all-linear' or names such as ['q_proj', 'v_proj']."
        ) from error
    return peft_model


def check_targets(name: str, targets: str | Sequence[str]) -> None:
    """As `require_targets`, by the name of a model, without loading its weights."""
    from transformers import AutoModelForCausalLM

    if isinstance(targets, str) or name == SMOLLM2:  # of which nothing is there before it is unpacked
        return
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(read_config(name))
    require_targets(name, model, targets)


def require_targets(name: str, model: Any, targets: str | Sequence[str]) -> None:
    """Refuses target modules that are no linear maps in a model's layers.

    Logits are computed for all roles alike, and embeddings are looked up once: an adapter there would not be heard.

    Args:
        name: Name of the model, in messages.
        model: A `PreTrainedModel`.
        targets: `"all-linear"`, or names as PEFT takes them.

    Raises:
        UserError: At the first such name.
    """
    parts = _named_decoder_parts(model)
    linear = {path for path, part in parts.items() if _is_linear(part)}
    names = ", ".join(sorted({path.rsplit(".", 1)[-1] for path in linear}))
    for target in () if isinstance(targets, str) else targets:
        found = {path for path in parts if f".{path}".endswith(f".{target}")}
        if not found or not found <= linear:
            raise UserError(
                f"`lora_target_modules` names {target!r}, which is no linear map in the layers of `base_model` "
                f"{name!r}; use 'all-linear', or some of {names}."
            )


def _named_decoder_parts(model: Any) -> dict[str, nn.Module]:
    """The parts of a model's decoder, by their names in the model."""
    own = {id(part) for part in model.get_decoder().modules()}
    return {path: part for path, part in model.named_modules() if id(part) in own}


@torch.no_grad()
def _is_linear(part: nn.Module) -> bool:
    """True of a linear map, and not of what a model computes otherwise with the weights of one, such as a router."""
    from transformers.pytorch_utils import Conv1D

    kind = type(part)
    if not isinstance(part, nn.Linear) or kind.forward is nn.Linear.forward:
        return isinstance(part, nn.Linear | Conv1D)
    if not kind.__module__.startswith("transformers.models."):  # that of a library which holds weights in fewer bits
        return True
    probe = torch.ones(1, 2, part.in_features, dtype=part.weight.dtype, device=part.weight.device)
    try:
        made, wanted = part(probe), nn.functional.linear(probe, part.weight, part.bias)
    except (RuntimeError, TypeError, ValueError):
        return False
    if not isinstance(made, torch.Tensor) or made.shape != wanted.shape:
        return False
    return made.is_meta or torch.allclose(made, wanted, atol=1e-3, rtol=1e-3)


def _linear_in_decoder_only(model: Any) -> dict[str, str]:
    """PEFT's setting with which no adapters go to other parts, such as one for images, or to what only looks linear."""
    parts = _named_decoder_parts(model)
    odd = [re.escape(path) for path, part in parts.items() if isinstance(part, nn.Linear) and not _is_linear(part)]
    named = {path: part for path, part in model.named_modules() if path not in parts}
    others = [part for part in named.values() if isinstance(part, nn.Linear)]
    outside = any(part is not model.get_output_embeddings() for part in others)  # which PEFT leaves out
    wrong = [*odd, *([rf"(?!{re.escape(next(iter(parts)))}\.).*"] if outside else [])]
    return {"exclude_modules": "|".join(wrong)} if wrong else {}


def _above(decoder: Any, targets: str | tuple[str, ...], depth: int) -> dict[str, Any]:
    """PEFT's settings for adapters on the layers from `depth` on; it takes no pattern of names together with them."""
    linear = {name.rsplit(".", 1)[-1] for name, part in decoder.layers.named_modules() if _is_linear(part)}
    return {
        "target_modules": sorted(linear) if isinstance(targets, str) else list(targets),
        "layers_to_transform": list(range(depth, len(decoder.layers))),
    }
