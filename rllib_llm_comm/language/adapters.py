"""LoRA adapters by role on one frozen base model."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import tempfile
from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.files import replace_folder
from rllib_llm_comm.core.phases import phase
from rllib_llm_comm.core.weights import read_weights
from rllib_llm_comm.language.adapter_file import (
    ADAPTER_WEIGHTS,
    read_adapter_settings,
    require_same_meaning,
)
from rllib_llm_comm.language.adapter_layers import AdapterConfig as AdapterConfig
from rllib_llm_comm.language.adapter_layers import put_adapters
from rllib_llm_comm.language.base_model import BaseModel
from rllib_llm_comm.language.layer_cut import above, added_mask, layers_below
from rllib_llm_comm.language.llama import LlamaAdapter, LlamaDecoder, Lora, llama_weights
from rllib_llm_comm.language.prefix_cache import PrefixCache, Prefixes
from rllib_llm_comm.language.static_decoding import StaticWriters

if TYPE_CHECKING:
    from rllib_llm_comm.language.trunk import Trunk

MESSAGE = "message"
ACTION = "action"
REFERENCE = "reference"
"""A frozen copy of the message adapter, from which a trained one shall not drift."""

# Intermediate results of more tokens leave a CPU's cache (measured: 2048 is best at 0.5 to 6 M parameters).
_TOKENS_PER_PASS = {"cpu": 2048}
_TOKENS_ELSEWHERE = 16384
_SHARE = 0.25  # of a GPU's free memory that a merged copy of the weights may take


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
        trunk_cache_bytes: int = 2**29,
        trunk_cache_dtype: str = "same",
    ) -> None:
        """Puts fresh adapters on the base.

        Args:
            base: The frozen model.
            config: Shape of every adapter.
            roles: One adapter for each name.
            gradient_checkpointing: Whether a forward pass with gradients keeps the inputs of layers only.
            autocast: `"none"`, or `"bfloat16"`: matrix products in bfloat16.
            prefix_cache_bytes: Most bytes of keys and values of earlier prompts that are kept per role; 0 keeps none.
            trunk_cache_bytes: Most bytes that are kept of the layers below the adapters, for all roles together.
            trunk_cache_dtype: Their format, as of `Trunk`.

        Raises:
            UserError: If `target_modules` names no linear map of the base, or the base has fewer layers than
                `config.layers` or cannot be cut there.
        """
        from peft.tuners.tuners_utils import BaseTunerLayer

        self.base = base
        self.config = config or AdapterConfig()
        self.roles = tuple(roles)
        depth = layers_below(base, self.config.layers)
        self.peft_model = put_adapters(base, self.config, self.roles, depth).eval()
        self._layers = [m for m in self.peft_model.modules() if isinstance(m, BaseTunerLayer)]
        for name, parameter in self.peft_model.named_parameters():
            # LoRA stays in float32 also on a bf16/fp16 base: small steps vanish in fp16.
            if "lora_" in name:
                parameter.data = parameter.data.float()
        # The layers above the trunk, or all of them: Hugging Face's with PEFT's layers in them, and ours if it can be.
        self._hugging_face = above(self.model.get_decoder(), depth) if depth else self.model.get_decoder()
        weights = llama_weights(base)
        self._llama = None if weights is None or self.config.dropout > 0 else LlamaDecoder(weights, depth)
        self._active: str | None = self.roles[0]
        self._activate(None)
        self._parameters = {role: [p for _, p in self.named_adapter_parameters(role)] for role in self.roles}
        named = {n.removeprefix("base_model.model.model."): m for n, m in self.peft_model.named_modules()}
        lora = {name: layer for name, layer in named.items() if isinstance(layer, BaseTunerLayer)}
        self._llama_adapters = {
            role: LlamaAdapter(weights, lora, role, functools.partial(self.stamp, role))
            for role in self.roles
            if weights is not None
        }
        self._merged: dict[str, bool] = {}
        self.static_writers: StaticWriters | None = None
        if self._llama is not None and weights is not None and self.device.type == "cuda" and autocast == "none":
            self.static_writers = StaticWriters(base, weights, base.head)
        self._prefixes = {role: PrefixCache(self, role, prefix_cache_bytes) for role in (None, *self.roles)}
        self._autocast = torch.bfloat16 if autocast == "bfloat16" else None
        self._checkpoints = gradient_checkpointing
        self._checkpointed: list[nn.Module] = []
        if gradient_checkpointing and self._llama is None:
            self._checkpointed = self._checkpointed_layers()
        self._depth, self._trunk = depth, None
        if depth:
            from rllib_llm_comm.language.trunk import trunk_of

            self._trunk = trunk_of(base, depth, trunk_cache_bytes, trunk_cache_dtype, self._autocast)

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
    def trunk(self) -> Trunk | None:
        """The layers below the adapters, shared by all roles; `None` where adapters begin with the first layer."""
        return self._trunk

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
        if self._trunk is not None:
            self._trunk.clear()

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
        cache = self.cache_of(known)
        return self._run(input_ids, attention_mask, position_ids + before, cache), cache

    def cache_of(self, known: Prefixes, *, grows: bool = False) -> Any:
        """A key-value cache that has read prefixes.

        Args:
            known: The prefix that every row has read.
            grows: True if tokens are added after the first pass.
        """
        if self._trunk is None:
            return known.to_cache()
        from rllib_llm_comm.language.cut_cache import CutCache

        return CutCache(self._depth, known, grows=grows)

    def _run(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, position_ids: torch.Tensor | None, cache: Any
    ) -> torch.Tensor:
        return self.decoder(input_ids=input_ids, attention_mask=attention_mask, position_ids=position_ids, cache=cache)

    def standing(self, role: str | None) -> Lora | None:
        """The adapter of a role without gradients, added to the weights where the device has room for it.

        It is always in the same storage.

        Args:
            role: The role; `None` for the bare base, whose adapter is `None`.
        """
        if role is None:
            return None
        if role not in self._merged:
            size = self._llama_adapters[role].merged_bytes
            self._merged[role] = self.device.type != "cuda" or size < _SHARE * torch.cuda.mem_get_info(self.device)[0]
        return self._llama_adapters[role].standing(self._merged[role])

    def decoder(
        self,
        *,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        position_ids: torch.Tensor | None = None,
        cache: Any = None,
    ) -> torch.Tensor:
        """Last hidden states (B, T, hidden_size) under the adapter in use.

        Args:
            input_ids: (B, T) token ids.
            attention_mask: As of `hidden_states`, over the columns in the cache, too.
            position_ids: (B, T); default 0, 1, 2, ...
            cache: Keys and values of what was read before, to which these are added.
        """
        phase.read(input_ids.numel())
        inputs: dict[str, Any] = {"attention_mask": attention_mask, "position_ids": position_ids}
        if self._trunk is None:
            inputs["input_ids"] = input_ids
        else:
            inputs["inputs_embeds"] = self._trunk.read(input_ids, attention_mask, cache, self.tokens_per_pass)
        with torch.autocast(self.device.type, self._autocast, enabled=self._autocast is not None):
            if self._llama is not None:
                lora = None if self._active is None else self._llama_adapters[self._active].now()
                again = self._checkpoints and torch.is_grad_enabled()
                return self._llama(**inputs, cache=cache, lora=lora, checkpointed=again)
            return self._by_hugging_face(inputs, cache)

    def _by_hugging_face(self, inputs: dict[str, Any], cache: Any) -> torch.Tensor:
        if inputs["attention_mask"].dim() == 4:
            inputs["attention_mask"] = added_mask(inputs["attention_mask"], self.model.dtype)
        inputs[self.base.cache_argument] = cache
        again = bool(self._checkpointed) and torch.is_grad_enabled()
        for layer in self._checkpointed:
            layer.training = again  # transformers asks this flag; nothing else in a layer depends on it without dropout
        hidden: torch.Tensor = self._hugging_face(**inputs, use_cache=cache is not None).last_hidden_state
        return hidden

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Vocabulary logits in float32 of hidden states (..., hidden_size)."""
        return self.base.head(hidden).float()

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
        shapes, held = ({name: tuple(one.shape) for name, one in all_.items()} for all_ in (own, saved))
        if differs := next((name for name in {**shapes, **held} if shapes.get(name) != held.get(name)), ""):
            raise UserError(
                f"`{role}` adapter in {str(source / ADAPTER_WEIGHTS)!r} does not fit base model {self.base.name!r} "
                f"with `lora_r` {self.config.r}, `lora_target_modules` {self.config.target_modules!r} and "
                f"`lora_layers` {self.config.layers!r}; use the settings it was trained with ({differs!r} has the "
                f"shape {held.get(differs)} in place of {shapes.get(differs)})."
            )
        with torch.no_grad():
            for name, parameter in own.items():
                parameter.copy_(saved[name])
