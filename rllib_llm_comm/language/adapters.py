"""LoRA adapters by role on one frozen base model."""

from __future__ import annotations

import contextlib
import copy
import os
import shutil
import tempfile
import warnings
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from rllib_llm_comm.errors import UserError
from rllib_llm_comm.files import replace_folder
from rllib_llm_comm.language.adapter_file import (
    ADAPTER_WEIGHTS,
    name_for_others,
    read_adapter_settings,
    require_same_meaning,
)
from rllib_llm_comm.language.adapter_merging import FoldedDecoder, folded_weights, pays_to_fold
from rllib_llm_comm.language.base_model import BaseModel
from rllib_llm_comm.language.prefix_cache import PrefixCache, Prefixes
from rllib_llm_comm.language.weights import read_weights

MESSAGE = "message"
ACTION = "action"
REFERENCE = "reference"
"""A frozen copy of the message adapter, from which a trained one shall not drift."""

# Intermediate results of more tokens leave a CPU's cache (measured: 2048 is best at 0.5 to 6 M parameters).
_TOKENS_PER_PASS = {"cpu": 2048}
_TOKENS_ELSEWHERE = 16384


@dataclass(frozen=True)
class AdapterConfig:
    """Shape of a LoRA adapter.

    Attributes:
        r: Rank, >= 1. TWOSOME: 8; Verco does not say.
        alpha: Scale numerator (the update is scaled by alpha / r). TWOSOME: 16.
        dropout: LoRA dropout in [0, 1). 0 by default, because dropout makes the first PPO ratio differ
            from 1 (ours).
        target_modules: `"all-linear"` (ours) or names of linear maps; TWOSOME: `("q_proj", "v_proj")`.
    """

    r: int = 8
    alpha: int = 16
    dropout: float = 0.0
    target_modules: str | tuple[str, ...] = "all-linear"

    def __post_init__(self) -> None:
        if self.r < 1:
            raise UserError(f"`lora_r` is {self.r} but must be at least 1.")
        if not 0.0 <= self.dropout < 1.0:
            raise UserError(f"`lora_dropout` is {self.dropout} but must be in [0, 1).")


class AdaptedModel:
    """A frozen base model with one LoRA adapter per role, switched per forward pass.

    The base weights are shared with every other `AdaptedModel` of the process: only the adapters are copied.
    Both adapters start as the identity (LoRA B is zero), so a fresh role behaves like the base.
    """

    def __init__(
        self,
        base: BaseModel,
        config: AdapterConfig | None = None,
        roles: Sequence[str] = (MESSAGE, ACTION),
        *,
        gradient_checkpointing: bool = False,
        autocast: str = "none",
        prefix_cache_bytes: int = 2**28,
    ) -> None:
        """Puts fresh adapters on the base.

        Args:
            base: The frozen model.
            config: Shape of every adapter.
            roles: One adapter for each name.
            gradient_checkpointing: Whether a forward pass with gradients keeps the inputs of layers only.
            autocast: `"none"`, or `"bfloat16"`: matrix products in bfloat16.
            prefix_cache_bytes: Most bytes of keys and values of earlier prompts that are kept per role; 0 keeps none.

        Raises:
            UserError: If `target_modules` names no linear map of the base.
        """
        from peft.tuners.tuners_utils import BaseTunerLayer

        self.base = base
        self.config = config or AdapterConfig()
        self.roles = tuple(roles)
        self.peft_model = _put_adapters(base, self.config, self.roles).eval()
        self._layers = [m for m in self.peft_model.modules() if isinstance(m, BaseTunerLayer)]
        for name, parameter in self.peft_model.named_parameters():
            # LoRA stays in float32 also on a bf16/fp16 base: small steps vanish in fp16.
            if "lora_" in name:
                parameter.data = parameter.data.float()
        decoder_layers = self.model.base_model.named_modules()
        self._named_layers = [(n, m) for n, m in decoder_layers if isinstance(m, BaseTunerLayer)]
        self._active: str | None = self.roles[0]
        self._activate(None)
        self._parameters = {role: [p for _, p in self.named_adapter_parameters(role)] for role in self.roles}
        self._folds = pays_to_fold(base.hidden_size) and not base.is_quantized
        self._folded: dict[str, FoldedDecoder] = {}
        self._prefixes = {role: PrefixCache(self, role, prefix_cache_bytes) for role in (None, *self.roles)}
        self._autocast = torch.bfloat16 if autocast == "bfloat16" else None
        self._checkpointed: list[nn.Module] = self._checkpointed_layers() if gradient_checkpointing else []

    def _checkpointed_layers(self) -> list[nn.Module]:
        from transformers.modeling_layers import GradientCheckpointingLayer

        # The second computation happens in the backward pass, when another adapter may be active.
        self.model.gradient_checkpointing_enable(
            {"use_reentrant": False, "context_fn": lambda: (contextlib.nullcontext(), self.use(self._active))}
        )
        return [module for module in self.model.modules() if isinstance(module, GradientCheckpointingLayer)]

    @property
    def model(self) -> Any:
        """The Hugging Face model with the LoRA layers in place."""
        return self.peft_model.get_base_model()

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return self.base.device

    @property
    def tokens_per_pass(self) -> int:
        """Most tokens of a forward pass; more of them are cheaper in several passes."""
        return _TOKENS_PER_PASS.get(self.device.type, _TOKENS_ELSEWHERE)

    def _activate(self, role: str | None) -> None:
        # PEFT's own set_adapter() also toggles requires_grad; we only want to say which adapter is heard.
        if role == self._active:
            return
        # Past nn.Module.__setattr__, which takes as long as a small layer.
        for layer in self._layers:
            layer.__dict__.update(_active_adapter=[role] if role else [], _disable_adapters=role is None)
        self._active = role

    @contextlib.contextmanager
    def use(self, role: str | None) -> Iterator[None]:
        """Forwards inside this context run with the adapter of `role` (`None`: the bare base)."""
        if role is not None and role not in self.roles:
            raise ValueError(f"role {role!r} is not one of {self.roles}")
        before = self._active
        self._activate(role)
        try:
            yield
        finally:
            self._activate(before)

    def prefixes(self, role: str | None) -> PrefixCache | None:
        """Prefix cache of a role; `None` where gradients are wanted, which kept keys and values do not carry."""
        return None if torch.is_grad_enabled() else self._prefixes[role]

    def forget(self) -> None:
        """Drops what was read before."""
        for cache in self._prefixes.values():
            cache.clear()

    def stamp(self, role: str | None) -> Hashable:
        """Changes whenever the weights do on which results under a role depend (`None`: the frozen base, never)."""
        # torch counts in-place changes of a tensor: optimizer steps and loaded weights both show here.
        return None if role is None else tuple((p._version, p.data_ptr()) for p in self._parameters[role])

    def named_adapter_parameters(self, role: str | None = None) -> Iterator[tuple[str, nn.Parameter]]:
        """The LoRA parameters, of one role or of all, under stable short names.

        Names look like `message.layers.0.self_attn.q_proj.lora_A`.
        """
        for name, parameter in self.peft_model.named_parameters():
            if "lora_" not in name:
                continue
            stem, _, owner = name.removesuffix(".weight").rpartition(".")
            if role is None or owner == role:
                yield f"{owner}.{stem.removeprefix('base_model.model.').removeprefix('model.')}", parameter

    def hidden_states(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        position_ids: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Last hidden states under the active adapter.

        Args:
            input_ids: Token ids (B, T).
            attention_mask: (B, T) of 0/1, or a boolean mask (B, 1, T, T) that is True where row t may look at
                column s.
            position_ids: (B, T); default 0, 1, 2, ...

        Returns:
            (B, T, hidden_size).
        """
        return self._run(input_ids, attention_mask, position_ids, None)

    def read(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        position_ids: torch.Tensor | None,
        known: Prefixes,
    ) -> tuple[torch.Tensor, Any]:
        """Hidden states of rows that continue prefixes read before under the same adapter.

        Args:
            input_ids: (B, T) the rests.
            attention_mask: As of `hidden_states`, over the rests.
            position_ids: (B, T) from the end of what is known; default 0, 1, 2, ...
            known: The prefix that every row has read.

        Returns:
            Last hidden states (B, T, hidden_size) and the key-value cache after the pass.
        """
        before = known.lengths[:, None].to(input_ids.device)
        if position_ids is None:
            position_ids = torch.arange(input_ids.shape[1], device=input_ids.device)[None]
        if attention_mask.dim() == 4:
            seen = known.mask[:, None, None, :].expand(-1, -1, attention_mask.shape[2], -1)
        else:
            seen, attention_mask = known.mask, attention_mask.bool()
        attention_mask = torch.cat([seen, attention_mask.to(seen.device)], dim=-1)
        if attention_mask.dim() == 2:
            attention_mask = attention_mask.long()
        cache = known.to_cache(self.model.config)
        return self._run(input_ids, attention_mask, position_ids + before, cache), cache

    def _run(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, position_ids: torch.Tensor | None, cache: Any
    ) -> torch.Tensor:
        if attention_mask.dim() == 4:
            dtype = self.model.dtype
            attention_mask = torch.zeros(attention_mask.shape, dtype=dtype, device=input_ids.device).masked_fill(
                ~attention_mask, torch.finfo(dtype).min
            )
        output = self.decoder(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=cache,
            use_cache=cache is not None,
        )
        hidden: torch.Tensor = output.last_hidden_state
        return hidden

    def decoder(self, **inputs: Any) -> Any:
        """The model without its language-model head, under the active adapter.

        In a small model the adapter is folded into the weights, with the same result (see
        `rllib_llm_comm.language.adapter_merging`).

        Args:
            **inputs: As of the Hugging Face model.
        """
        with torch.autocast(self.device.type, self._autocast, enabled=self._autocast is not None):
            return self._decoder(**inputs)

    def _decoder(self, **inputs: Any) -> Any:
        role = self._active
        if role is None:
            return self.base.model.base_model(**inputs)
        dropout = self.config.dropout > 0 and self.peft_model.training
        again = bool(self._checkpointed) and torch.is_grad_enabled()
        for layer in self._checkpointed:
            layer.training = again  # transformers asks this flag; nothing else in a layer depends on it without dropout
        if dropout or again or not self._folds:
            return self.model.base_model(**inputs)
        if not torch.is_grad_enabled():
            if role not in self._folded:
                self._folded[role] = FoldedDecoder(self.base.model.base_model, self._named_layers, role)
            return self._folded[role](self.stamp(role), **inputs)
        with self.use(None):
            folded = folded_weights(self._named_layers, role)
            return torch.func.functional_call(self.model.base_model, folded, kwargs=inputs)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Vocabulary logits in float32 of hidden states (..., hidden_size)."""
        return self.model.get_output_embeddings()(hidden).float()

    @torch.no_grad()
    def copy_adapter(self, source: str, target: str) -> None:
        """Gives one role the weights of another.

        Args:
            source: The role that is read.
            target: The role that is overwritten.
        """
        for own, other in zip(self._parameters[target], self._parameters[source], strict=True):
            own.copy_(other)

    def save_adapter(self, role: str, folder: str | os.PathLike[str]) -> Path:
        """Writes one adapter in PEFT's format (`adapter_config.json`, `adapter_model.safetensors`).

        The folder appears at once or not at all; one of that name is replaced. It loads with
        `peft.PeftModel.from_pretrained(base, folder)`.
        """
        target = Path(folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch = tempfile.mkdtemp(dir=target.parent, prefix=".adapter-")
        try:
            self.peft_model.save_pretrained(
                scratch, selected_adapters=[role], safe_serialization=True, save_embedding_layers=False
            )
            source = Path(scratch) / role
            if not source.is_dir():  # PEFT writes the adapter named "default" without a sub-folder
                source = Path(scratch)
            (source / "README.md").unlink(missing_ok=True)
            source.chmod(0o755)
            replace_folder(source, target)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        return target

    def load_adapter(self, role: str, folder: str | os.PathLike[str]) -> None:
        """Reads an adapter folder in PEFT's format into a role.

        Raises:
            UserError: If files are missing or damaged, the adapter was trained with another scale or by other
                arithmetic than this one's, or shapes do not fit this base model.
        """
        source = Path(folder)
        settings = read_adapter_settings(source, role)
        require_same_meaning(settings, self.peft_model.peft_config[role].to_dict(), role, str(source))
        saved = {
            name.replace(".lora_A.weight", f".lora_A.{role}.weight").replace(
                ".lora_B.weight", f".lora_B.{role}.weight"
            ): tensor
            for name, tensor in read_weights(source / ADAPTER_WEIGHTS).items()
        }
        own = {n: p for n, p in self.peft_model.named_parameters() if "lora_" in n and f".{role}." in n}
        same = own.keys() == saved.keys() and all(own[n].shape == saved[n].shape for n in own)
        if not same:
            raise UserError(
                f"`{role}` adapter in {str(source)!r} does not fit base model {self.base.name!r} with `lora_r` "
                f"{self.config.r} and `lora_target_modules` {self.config.target_modules!r}; "
                "use the settings it was trained with."
            )
        with torch.no_grad():
            for name, parameter in own.items():
                parameter.copy_(saved[name])


def _put_adapters(base: BaseModel, config: AdapterConfig, roles: Sequence[str]) -> Any:
    """A copy of the base with PEFT's layers in it, whose frozen weights are the base's own."""
    from peft import LoraConfig, get_peft_model

    shared: dict[int, Any] = {id(p): p for p in base.model.parameters()}
    shared.update({id(b): b for b in base.model.buffers()})
    clone = copy.deepcopy(base.model, shared)
    clone.__dict__["name_or_path"] = name_for_others(base.name)  # PEFT writes it into adapter_config.json
    targets = config.target_modules
    lora = {
        "r": config.r,
        "lora_alpha": config.alpha,
        "lora_dropout": config.dropout,
        "target_modules": targets if isinstance(targets, str) else list(targets),
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": name_for_others(base.name),
    }
    try:
        with warnings.catch_warnings():
            # PEFT asks transformers 5 for a property by its old name.
            warnings.filterwarnings("ignore", ".*is_gradient_checkpointing", FutureWarning)
            peft_model = get_peft_model(clone, LoraConfig(**lora), adapter_name=roles[0])
            for role in roles[1:]:
                peft_model.add_adapter(role, LoraConfig(**lora))
    except ValueError as error:
        raise UserError(
            f"`lora_target_modules` is {targets!r}, which fits no linear map of {base.name!r}; "
            "use 'all-linear' or names such as ['q_proj', 'v_proj']."
        ) from error
    return peft_model
