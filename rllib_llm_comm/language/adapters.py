"""LoRA adapters by role on one frozen base model, and their folders in PEFT's format."""

from __future__ import annotations

import contextlib
import copy
import functools
import os
import re
import shutil
import tempfile
import warnings
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.files import read_foreign_json, replace_folder
from rllib_llm_comm.core.phases import phase
from rllib_llm_comm.core.weights import read_weights
from rllib_llm_comm.language.base_model import KNOWN, SMOLLM2, BaseModel, read_config
from rllib_llm_comm.language.compiled_layers import CompiledLayers
from rllib_llm_comm.language.llama import LlamaAdapter, LlamaDecoder, Lora, Places, layer_parts, llama_weights
from rllib_llm_comm.language.multi_lora import Role, Rows
from rllib_llm_comm.language.packing import added_mask
from rllib_llm_comm.language.prefix_cache import PrefixCache, Prefixes
from rllib_llm_comm.language.static_decoding import StaticWriters, free_bytes

if TYPE_CHECKING:
    from rllib_llm_comm.language.trunk import Trunk


# ---- folders ----------------------------------------------------------------------------------------------------


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
    """A base model's name in `adapter_config.json`: its own, or a hint where only this package knows it."""
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
            f"the `{role}` adapter folder {str(source)!r} has no {ADAPTER_CONFIG} and {ADAPTER_WEIGHTS}; "
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
            f"the `{role}` adapter in {str(source)!r} has the `peft_type` "
            f"{settings['peft_type']!r} but must be a 'LORA'."
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
                f"`{setting}` is {own[name]!r} but the `{role}` adapter in {folder!r} was trained with "
                f"{settings[name]!r}; set that."
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
        f"the `{role}` adapter in {folder!r} has `{name}` {value!r}, which this package does not compute; train a "
        "plain LoRA adapter, or convert it to one with PEFT."
    )


def require_rank(folder: str | os.PathLike[str], role: str, rank: int) -> None:
    """Compares a rank with the shapes that a safetensors file begins with, before anything of this rank is built.

    Args:
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
                f"the `{role}` adapter in {str(path)!r} does not fit its own settings (`lora_r` is {rank} but {name!r} "
                f"has the shape {shape}); save the checkpoint again."
            )
    if not shapes:
        raise UserError(f"the `{role}` adapter in {str(folder)!r} holds no LoRA weights; save the checkpoint again.")


# ---- layers -----------------------------------------------------------------------------------------------------


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


def put_adapters(base: BaseModel, config: AdapterConfig, roles: Sequence[str], depth: int) -> Any:
    """A copy of the base with PEFT's layers in it, whose frozen weights are the base's own.

    Args:
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
    if isinstance(targets, str) or name == SMOLLM2:  # of which nothing is there before it is unpacked
        return
    from transformers import AutoModelForCausalLM

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


# ---- the adapted model ------------------------------------------------------------------------------------------


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
    All adapters start as the identity (LoRA B is zero), so a fresh role behaves like the base.

    Attributes:
        llama_adapters: The adapters as of our own engine; empty where Hugging Face's model computes this one.
        trunk: The layers below the adapters, shared by all roles; `None` where adapters begin with the first layer.
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
        compile_layers: bool = True,
    ) -> None:
        """Puts fresh adapters on the base.

        Args:
            config: Shape of every adapter.
            roles: One adapter for each name.
            gradient_checkpointing: Whether a forward pass with gradients keeps the inputs of layers only.
            autocast: `"none"`, or `"bfloat16"`: matrix products in bfloat16.
            prefix_cache_bytes: Most bytes of keys and values of earlier prompts that are kept per role; 0 keeps none.
            trunk_cache_bytes: Most bytes that are kept of the layers below the adapters, for all roles together.
            trunk_cache_dtype: Their format, as of `Trunk`.
            compile_layers: Whether layers are compiled on a GPU where that pays, for passes without gradients.

        Raises:
            UserError: If `target_modules` names no linear map of the base, or the base has fewer layers than
                `config.layers` or cannot be cut there.
        """
        from peft.tuners.tuners_utils import BaseTunerLayer

        from rllib_llm_comm.language.trunk import above, layers_below, trunk_of

        self.base = base
        self.config = config or AdapterConfig()
        self.roles = tuple(roles)
        depth = layers_below(base, self.config.layers)
        self.peft_model = put_adapters(base, self.config, self.roles, depth).eval()
        named = {name.removeprefix("base_model.model.model."): m for name, m in self.peft_model.named_modules()}
        lora = {name: layer for name, layer in named.items() if isinstance(layer, BaseTunerLayer)}
        self._layers = list(lora.values())
        for name, parameter in self.peft_model.named_parameters():
            # LoRA stays in float32 also on a bf16/fp16 base: small steps vanish in fp16.
            if "lora_" in name:
                parameter.data = parameter.data.float()
        # The layers above the trunk, or all of them: Hugging Face's with PEFT's layers in them, and ours if it can be.
        self._hugging_face = above(self.model.get_decoder(), depth) if depth else self.model.get_decoder()
        weights = None if self.config.dropout > 0 else llama_weights(base)
        self._llama = None if weights is None else LlamaDecoder(weights, depth)
        self._active: Role = self.roles[0]
        self._activate(None)
        self._parameters = {role: [p for _, p in self.named_adapter_parameters(role)] for role in self.roles}
        self.llama_adapters: dict[str, LlamaAdapter] = {}
        if weights is not None:
            stamps = {role: functools.partial(self.stamp, role) for role in self.roles}
            self.llama_adapters = {role: LlamaAdapter(weights, lora, role, stamps[role]) for role in self.roles}
        self._merged: dict[str, bool] = {}
        self.compiled: CompiledLayers | None = None
        if compile_layers and self.device.type == "cuda":
            self.compiled = CompiledLayers(*layer_parts)
        self.static_writers: StaticWriters | None = None
        if weights is not None and self.device.type == "cuda" and autocast == "none":
            self.static_writers = StaticWriters(base, weights)
        self._prefixes = {role: PrefixCache(self, prefix_cache_bytes) for role in (None, *self.roles)}
        self.prefix_cache_bytes, self.autocast = prefix_cache_bytes, autocast
        self._autocast = torch.bfloat16 if autocast == "bfloat16" else None
        self._checkpoints = gradient_checkpointing
        self._checkpointed: list[nn.Module] = []
        if gradient_checkpointing and self._llama is None:
            self._checkpointed = self._checkpointed_layers()
        self._depth = depth
        self.trunk: Trunk | None = None
        if depth:
            self.trunk = trunk_of(base, depth, trunk_cache_bytes, trunk_cache_dtype, self._autocast)

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

    def _activate(self, role: Role) -> None:
        # PEFT's own set_adapter() also toggles requires_grad; here only the active adapter changes.
        if role == self._active:
            return
        # Past nn.Module.__setattr__, which takes as long as a small layer. PEFT's layers know no adapter per row.
        for layer in () if isinstance(role, Rows) else self._layers:
            layer.__dict__.update(_active_adapter=[role] if role else [], _disable_adapters=role is None)
        self._active = role

    @contextlib.contextmanager
    def use(self, role: Role) -> Iterator[None]:
        """Forwards inside this context run with the adapter of `role`, or of each row (`None`: the bare base)."""
        if isinstance(role, str) and role not in self.roles:
            raise ValueError(f"role {role!r} is not one of {self.roles}")
        before = self._active
        self._activate(role)
        try:
            yield
        finally:
            self._activate(before)

    def prefixes(self, role: Role) -> PrefixCache | None:
        """Prefix cache of a role; `None` where gradients are wanted, which kept keys and values do not carry."""
        if torch.is_grad_enabled():
            return None
        return role.pool.prefixes if isinstance(role, Rows) else self._prefixes[role]

    def forget(self) -> None:
        """Empties the caches of keys, values and hidden states."""
        for cache in self._prefixes.values():
            cache.clear()
        if self.trunk is not None:
            self.trunk.clear()

    def stamp(self, role: Role) -> Hashable:
        """Changes whenever the weights do on which results under a role depend (`None`: the frozen base, never)."""
        # torch counts in-place changes of a tensor: optimizer steps and loaded weights both show here.
        if isinstance(role, Rows):
            return role.pool.stamp()
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
        places: Places | None = None,
    ) -> torch.Tensor:
        """Last hidden states under the active adapter.

        Args:
            input_ids: Token ids (B, T).
            attention_mask: (B, T) of 0/1, or a boolean mask (B, 1, T, T) that is True where row t may look at
                column s.
            position_ids: (B, T); default 0, 1, 2, ...
            places: Where they are wanted; `None`: everywhere.

        Returns:
            (B, T, hidden_size); of N places (N, hidden_size).
        """
        role = self._active
        if not isinstance(role, Rows) or role.sorted:
            return self.decoder(
                input_ids=input_ids, attention_mask=attention_mask, position_ids=position_ids, places=places
            )
        order = np.argsort(role.owners, kind="stable")
        at, back = (torch.from_numpy(rows).to(input_ids.device) for rows in (order, np.argsort(order)))
        positions = position_ids if position_ids is None or len(position_ids) == 1 else position_ids[at]
        moved = None if places is None else (back[places[0]], places[1])
        with self.use(role[order]):
            hidden = self.decoder(
                input_ids=input_ids[at], attention_mask=attention_mask[at], position_ids=positions, places=moved
            )
        return hidden[back] if places is None else hidden

    @property
    def adapter_bytes(self) -> int:
        """Bytes of its adapters, with the copies of weights to which they are added where that is quicker."""
        copies = sum(one.merged_bytes for one in self.llama_adapters.values() if one.merges)
        return copies + sum(weights.nbytes for _, weights in self.named_adapter_parameters())

    def read(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        position_ids: torch.Tensor | None,
        known: Prefixes,
        places: Places | None = None,
    ) -> tuple[torch.Tensor, Any]:
        """Hidden states of rows that continue prefixes read before under the same adapter.

        Args:
            input_ids: (B, T) the rests.
            attention_mask: As of `hidden_states`, over the rests.
            position_ids: (B, T) from the end of what is known; default 0, 1, 2, ...
            known: The prefix that every row has read.
            places: As of `hidden_states`, in the rests.

        Returns:
            Last hidden states, as of `hidden_states`, and the key-value cache after the pass.
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
        positions = position_ids + before
        hidden = self.decoder(
            input_ids=input_ids, attention_mask=attention_mask, position_ids=positions, cache=cache, places=places
        )
        return hidden, cache

    def cache_of(self, known: Prefixes, *, grows: bool = False) -> Any:
        """A key-value cache that has read prefixes.

        Args:
            known: The prefix that every row has read.
            grows: True if tokens are added after the first pass.
        """
        if self.trunk is None:
            return known.to_cache()
        from rllib_llm_comm.language.trunk import CutCache

        return CutCache(self._depth, known, grows=grows)

    def detached(self, role: str | None) -> Lora | None:
        """The adapter of a role without gradients, added to the weights where there is room and rounding leaves it.

        In and beside the weights it is always in the same storage.

        Args:
            role: The role; `None` for the bare base, whose adapter is `None`.
        """
        if role is None:
            return None
        if role not in self._merged:
            size, free = self.llama_adapters[role].merged_bytes, free_bytes(self.device)
            self._merged[role] = free is None or size < _SHARE * free
        adapter = self.llama_adapters[role]
        return adapter.detached(self._merged[role] and adapter.survives_rounding)

    def decoder(
        self,
        *,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        position_ids: torch.Tensor | None = None,
        cache: Any = None,
        places: Places | None = None,
    ) -> torch.Tensor:
        """Last hidden states, as of `hidden_states`, under the adapter in use.

        Args:
            input_ids: (B, T) token ids.
            attention_mask: As of `hidden_states`, over the columns in the cache, too.
            position_ids: (B, T); default 0, 1, 2, ...
            cache: Keys and values of what was read before, to which these are added.
            places: As of `hidden_states`.
        """
        phase.count_tokens(input_ids.numel())
        inputs: dict[str, Any] = {"attention_mask": attention_mask, "position_ids": position_ids}
        if self.trunk is None:
            inputs["input_ids"] = input_ids
        else:
            inputs["inputs_embeds"] = self.trunk.read(input_ids, attention_mask, cache, self.tokens_per_pass)
        with torch.autocast(self.device.type, self._autocast, enabled=self._autocast is not None):
            if self._llama is not None:
                role, graded, compiled = self._active, torch.is_grad_enabled(), self.compiled
                lora: Lora | None = None
                if isinstance(role, Rows):
                    lora, compiled = role.pool.lora(role.owners, input_ids.numel(), self.device), None
                elif role is not None:
                    lora = self.llama_adapters[role].current()
                again, compiled = self._checkpoints and graded, None if graded else compiled
                return self._llama(
                    **inputs, cache=cache, lora=lora, checkpointed=again, compiled=compiled, places=places
                )
            hidden = self._by_hugging_face(inputs, cache)
            return hidden if places is None else hidden[places]

    def _by_hugging_face(self, inputs: dict[str, Any], cache: Any) -> torch.Tensor:
        if inputs["attention_mask"].dim() == 4:
            inputs["attention_mask"] = added_mask(inputs["attention_mask"], self.model.dtype)
        inputs[self.base.cache_argument] = cache
        again = bool(self._checkpointed) and torch.is_grad_enabled()
        for layer in self._checkpointed:
            layer.training = again  # transformers asks this flag; nothing else in a layer depends on it without dropout
        hidden: torch.Tensor = self._hugging_face(**inputs, use_cache=cache is not None).last_hidden_state
        return hidden

    def token_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Vocabulary logits in float32 of hidden states (..., hidden_size)."""
        return self.base.head(hidden).float()

    @torch.no_grad()
    def copy_adapter(self, source: str, target: str) -> None:
        """Gives one role the weights of another."""
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
                f"the `{role}` adapter in {str(source / ADAPTER_WEIGHTS)!r} does not fit base model {self.base.name!r} "
                f"with `lora_r` {self.config.r}, `lora_target_modules` {self.config.target_modules!r} and "
                f"`lora_layers` {self.config.layers!r}; use the settings it was trained with ({differs!r} has the "
                f"shape {held.get(differs)} in place of {shapes.get(differs)})."
            )
        with torch.no_grad():
            for name, parameter in own.items():
                parameter.copy_(saved[name])
