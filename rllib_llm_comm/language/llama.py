"""Decoders of the LLaMA family with LoRA adapters, computed in few and large matrix products.

One definition serves roll-out and update, on a CPU and on a GPU. It reads the weights of a Hugging Face model in place
and those of PEFT's layers, which stay what is trained and saved. The Hugging Face model with PEFT's layers in it is
the oracle: it is asked once per base whether both compute the same, and computes what this file cannot.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch.utils.checkpoint import checkpoint

from rllib_llm_comm.language.base_model import BaseModel
from rllib_llm_comm.language.compiled_layers import CompiledLayers, difference
from rllib_llm_comm.language.packing import added_mask

logger = logging.getLogger(__name__)

FAMILY = ("llama", "mistral", "qwen2", "qwen3")
"""`model_type` of the architectures that are computed here: LLaMA 2 and 3, SmolLM, Mistral, Qwen 2 and 3."""
_PROJECTIONS = {
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "out": ("self_attn.o_proj",),
    "gate_up": ("mlp.gate_proj", "mlp.up_proj"),
    "down": ("mlp.down_proj",),
}
"""Linear maps that read the same input, under one name."""
_FIXED_ROPE = ("default", "linear", "llama3", "yarn")  # others change with the length of a text
_PROBE = 12

_MOST_MERGED_BYTES = 2**30
"""Merged weights of one role are kept if they take no more; beyond that the thin products are cheaper than memory."""
_SURVIVING = 0.98
"""Share of an adapter that has to be left behind rounding, for it to be merged in half precision."""
_MERGED_IN_UPDATES = 512
"""Hidden size up to which gradients flow through merged weights: there, more kernels cost more than more products."""

# By the Hugging Face model, which the bases of all prompt formats share.
_WEIGHTS: weakref.WeakKeyDictionary[nn.Module, LlamaWeights | None] = weakref.WeakKeyDictionary()


@dataclass(frozen=True)
class _Projections:
    """Linear maps with a common input, such as those of queries, keys and values.

    Attributes:
        weights: One (outputs, inputs) per map, or all of them as one matrix.
        sizes: Outputs per map.
        biases: As `weights`; empty without biases.
    """

    weights: tuple[torch.Tensor, ...]
    sizes: tuple[int, ...]
    biases: tuple[torch.Tensor, ...] = ()

    def apart(self) -> Sequence[torch.Tensor]:
        """The weights of each map, also where they are one matrix."""
        return self.weights if len(self.weights) > 1 else self.weights[0].split(self.sizes)


@dataclass(frozen=True)
class LowRank:
    """LoRA's factors for projections: all A as one, B apart or, where the maps are one matrix, as one.

    Attributes:
        a: (total rank, inputs).
        b: Per matrix of the maps scaled B (outputs, rank), block-diagonal where it holds several maps; `None` where a
            map has no adapter.
    """

    a: torch.Tensor
    b: tuple[torch.Tensor | None, ...]

    def added(self, outs: Sequence[torch.Tensor], x: torch.Tensor) -> Sequence[torch.Tensor]:
        """The maps' outputs with the adapter's added."""
        narrow = F.linear(x, self.a).split([b.shape[1] for b in self.b if b is not None], dim=-1)
        parts = iter(narrow)
        return [out if b is None else out + F.linear(next(parts), b) for out, b in zip(outs, self.b, strict=True)]


@dataclass(frozen=True)
class _Layer:
    """Frozen weights of a layer; `number` counts in the whole model."""

    number: int
    norm_1: torch.Tensor
    norm_2: torch.Tensor
    projections: Mapping[str, _Projections]
    q_norm: torch.Tensor | None
    k_norm: torch.Tensor | None


Places = tuple[torch.Tensor, torch.Tensor]
"""Rows (N,) and columns (N,) of tokens in a batch, on any device."""
Lora = Mapping[int, Mapping[str, Any]]
"""By layer and name of the projections: `_Projections` in place of the base's (merged), or what has `added` as
`LowRank`."""


def is_merged(lora: Lora | None) -> bool:
    """Whether an adapter is in the weights."""
    return any(isinstance(one, _Projections) for names in (lora or {}).values() for one in names.values())


class LlamaWeights:
    """Frozen weights of a base, arranged for few products.

    On a GPU maps with a common input become one matrix, of which the Hugging Face model then holds views, so that
    nothing is there twice. On a CPU, where that gains nothing, they stay pages of the file that processes share.

    Args:
        base: A model of `FAMILY`.
        fused: Whether maps with a common input are one matrix.
    """

    def __init__(self, base: BaseModel, fused: bool) -> None:
        decoder, config = base.decoder, base.config
        self.embedding, self.norm = decoder.embed_tokens.weight, decoder.norm.weight
        self.eps = float(config.rms_norm_eps)
        self.activation: Callable[[torch.Tensor], torch.Tensor] = decoder.layers[0].mlp.act_fn
        self.head_size = base.kv_heads[1]
        self.layers = [self._layer(number, layer, fused) for number, layer in enumerate(decoder.layers)]
        rotary = decoder.rotary_emb
        self._frequencies, self._attention_scaling = rotary.inv_freq, float(rotary.attention_scaling)
        self.table: tuple[torch.Tensor, ...] | None = None

    def _layer(self, number: int, layer: Any, fused: bool) -> _Layer:
        projections = {}
        for name, parts in _PROJECTIONS.items():
            linears = [layer.get_submodule(part) for part in parts]
            biases = [linear.bias for linear in linears if linear.bias is not None]
            if len(biases) not in (0, len(linears)):
                raise ValueError("some maps with a common input have biases, others have none")
            sizes = tuple(linear.out_features for linear in linears)
            if fused and len(linears) > 1:
                whole = torch.cat([linear.weight.data for linear in linears])
                for linear, part in zip(linears, whole.split(sizes), strict=True):
                    linear.weight.data = part
                bias = (torch.cat([bias.data for bias in biases]),) if biases else ()
                projections[name] = _Projections((whole,), sizes, bias)
            else:
                projections[name] = _Projections(tuple(linear.weight for linear in linears), sizes, tuple(biases))
        norms = [getattr(getattr(layer.self_attn, name, None), "weight", None) for name in ("q_norm", "k_norm")]
        return _Layer(number, layer.input_layernorm.weight, layer.post_attention_layernorm.weight, projections, *norms)

    def rope(self, positions: torch.Tensor, most: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and sines of rotary embeddings, looked up in a table that grows with the longest text.

        Args:
            positions: (B, T).
            most: More than the largest of them, known without asking the device.
            dtype: Of the result.

        Returns:
            Two arrays (B, T, 1, head size).
        """
        if self.table is None or len(self.table[0]) < most or self.table[0].dtype != dtype:
            angles = torch.arange(max(256, 2 * most), device=positions.device)[:, None] * self._frequencies.float()
            angles = torch.cat([angles, angles], dim=-1)
            self.table = tuple((wave * self._attention_scaling).to(dtype) for wave in (angles.cos(), angles.sin()))
        cosines, sines = self.table
        return cosines[positions][:, :, None], sines[positions][:, :, None]


def llama_weights(base: BaseModel) -> LlamaWeights | None:
    """The weights of a base for this engine; `None`, told once in the log, where Hugging Face's model is used."""
    if base.model not in _WEIGHTS:
        reason, weights = _unsupported(base), None
        if not reason:
            weights = LlamaWeights(base, fused=base.device.type != "cpu")
            reason = _difference(base, weights)
        if reason:
            weights = None
            logger.info("%s is computed by Hugging Face's model: %s.", base.name, reason)
        _WEIGHTS[base.model] = weights
    return _WEIGHTS[base.model]


def compute_by_hugging_face(base: BaseModel) -> None:
    """Lets a base be computed by Hugging Face's model, the oracle of this engine.

    Args:
        base: A model that nobody uses yet.
    """
    _WEIGHTS[base.model] = None


def _unsupported(base: BaseModel) -> str:
    """Reason for which a model is not computed here; empty if it is."""
    config = base.config
    kind = getattr(config, "model_type", "")
    if kind not in FAMILY:
        return f"{kind!r} is none of {', '.join(FAMILY)}"
    if base.is_quantized:
        return "its weights are quantized"
    decoder = base.decoder
    for layer in decoder.layers:
        for part in (part for parts in _PROJECTIONS.values() for part in parts):
            if type(layer.get_submodule(part)) is not nn.Linear:
                return f"its {part} is no plain linear map"
    if decoder.rotary_emb.rope_type not in _FIXED_ROPE:
        return f"its rotary embedding {decoder.rotary_emb.rope_type!r} changes with the length of a text"
    return ""


@torch.no_grad()
def _difference(base: BaseModel, weights: LlamaWeights) -> str:
    """The way in which a few tokens are read otherwise than by Hugging Face's model; empty if they are not."""
    ids = (torch.arange(2 * _PROBE, device=base.device).view(2, _PROBE) * 31 + base.vocab_size // 2) % base.vocab_size
    theirs = base.decoder(input_ids=ids, use_cache=False).last_hidden_state
    return difference(LlamaDecoder(weights)(input_ids=ids), theirs)


class LlamaAdapter:
    """One role's LoRA weights in the form in which the decoder wants them.

    Args:
        weights: Of the base.
        layers: PEFT's layers by their names in the whole decoder, such as `layers.3.self_attn.q_proj`.
        role: Name of the adapter in them.
        stamp: Changes whenever the adapter's weights do.

    Attributes:
        merged_bytes: Bytes of the weights to which it is added.
        merges: Whether that is done in passes without gradients.
    """

    def __init__(
        self, weights: LlamaWeights, layers: Mapping[str, Any], role: str, stamp: Callable[[], Hashable]
    ) -> None:
        self._weights, self._layers, self._role, self.stamp = weights, layers, role, stamp
        self.merged_bytes = sum(layer.base_layer.weight.nbytes for layer in layers.values())
        self.merges = self.merged_bytes <= _MOST_MERGED_BYTES
        self._merges_in_updates = weights.embedding.shape[1] <= _MERGED_IN_UPDATES
        self._detached: dict[bool, tuple[Hashable, Lora]] = {}
        self._survival: tuple[Hashable, bool] = (None, False)

    def current(self) -> Lora:
        """The adapter as it is; gradients flow through it where they are wanted."""
        if torch.is_grad_enabled():
            return self._each(self._merged if self._merges_in_updates else self._low_rank)
        return self.detached(self.merges and self.survives_rounding)

    def low_rank(self) -> Lora:
        """The adapter as it is, beside the weights; gradients flow through it where they are wanted."""
        return self._each(self._low_rank)

    @property
    @torch.no_grad()
    def survives_rounding(self) -> bool:
        """Whether nearly all of it is left where it is added to the weights; half precision rounds a small one off."""
        if self._weights.embedding.dtype == torch.float32:
            return True
        stamp = self.stamp()
        if self._survival[0] != stamp:
            left, whole = torch.zeros((), device=self._weights.embedding.device), 0.0
            for _, _, base, factors in self._adapted():
                for weight, factor in zip(base.apart(), factors, strict=True):
                    if factor is not None:
                        added = factor[1] @ factor[0]
                        moved = (weight.float() + added).to(weight.dtype).float() - weight.float()
                        left, whole = left + (moved * added).sum(), whole + added.square().sum()
            self._survival = (stamp, bool(left >= _SURVIVING * whole))
        return self._survival[1]

    @torch.no_grad()
    def detached(self, merged: bool) -> Lora:
        """The adapter without gradients; kept until it changes, then written into the same storage.

        Args:
            merged: Whether it is added to the weights, or stays beside them.
        """
        stamp, (known, lora) = self.stamp(), self._detached.get(merged, (None, {}))
        if stamp != known:
            lora = self._each(self._merged if merged else self._low_rank, lora)
            self._detached[merged] = (stamp, lora)
        return lora

    def _each(self, make: Callable[..., _Projections | LowRank], into: Lora | None = None) -> Lora:
        found: dict[int, dict[str, Any]] = {}
        for layer, name, base, factors in self._adapted():
            found.setdefault(layer, {})[name] = make(base, factors, into[layer][name] if into else None)
        return found

    def _adapted(self) -> Iterator[tuple[int, str, _Projections, list[tuple[torch.Tensor, torch.Tensor] | None]]]:
        """Layer, name and weights of adapted projections, with A and scaled B of each map."""
        role = self._role
        for layer in self._weights.layers:
            for name, parts in _PROJECTIONS.items():
                lora = [self._layers.get(f"layers.{layer.number}.{part}") for part in parts]
                factors = [
                    None if one is None else (one.lora_A[role].weight, one.lora_B[role].weight * one.scaling[role])
                    for one in lora
                ]
                if any(factor is not None for factor in factors):
                    yield layer.number, name, layer.projections[name], factors

    def _low_rank(self, base: _Projections, factors: Sequence[Any], old: LowRank | None) -> LowRank:
        a = torch.cat([factor[0] for factor in factors if factor is not None])
        wide = [None if factor is None else factor[1] for factor in factors]
        if len(base.weights) < len(factors):
            blocks = [a.new_zeros(size, 0) if one is None else one for size, one in zip(base.sizes, wide, strict=True)]
            wide = [torch.block_diag(*blocks)]
        if old is None:
            dtype = self._weights.embedding.dtype
            return LowRank(a.to(dtype), tuple(None if one is None else one.to(dtype) for one in wide))
        old.a.copy_(a)
        for target, one in zip(old.b, wide, strict=True):
            if target is not None:
                target.copy_(one)
        return old

    def _merged(self, base: _Projections, factors: Sequence[Any], old: _Projections | None) -> _Projections:
        frozen = base.apart()
        # Added in float32 and rounded once: in half precision a small product would be rounded before it is added.
        parts = [
            weight if factor is None else weight.float() + factor[1] @ factor[0]
            for weight, factor in zip(frozen, factors, strict=True)
        ]
        if old is None:
            parts = [part.to(weight.dtype) for part, weight in zip(parts, frozen, strict=True)]
            biases = (torch.cat(base.biases),) if len(base.biases) > 1 else base.biases
            return _Projections((torch.cat(parts) if len(parts) > 1 else parts[0],), base.sizes, biases)
        for target, part in zip(old.apart(), parts, strict=True):
            target.copy_(part)
        return old


class LlamaDecoder:
    """Layers of a base, from token ids or hidden states to hidden states.

    Args:
        weights: Of the base.
        first: Number of the first layer.
        last: Number behind the last one; the final norm follows the model's last layer.
    """

    def __init__(self, weights: LlamaWeights, first: int = 0, last: int | None = None) -> None:
        self._weights = weights
        self._layers = weights.layers[first:last]
        self._ends = last is None or last >= len(weights.layers)

    def __call__(
        self,
        *,
        input_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        cache: Any = None,
        lora: Lora | None = None,
        checkpointed: bool = False,
        compiled: CompiledLayers | None = None,
        places: Places | None = None,
    ) -> torch.Tensor:
        """Hidden states behind the last layer.

        Args:
            input_ids: (B, T) token ids.
            inputs_embeds: (B, T, hidden size), in place of ids.
            attention_mask: `None`: every token sees those before it. (B, S) of 0/1: of these, S = T plus the columns in
                the cache. (B, 1, T, S) bool: what a token sees.
            position_ids: (B, T); default 0, 1, 2, ...
            cache: Keys and values of earlier tokens with an `update(keys, values, layer)`, to which these are added.
            lora: The adapter in use (`LlamaAdapter`); `None` for the bare base.
            checkpointed: Whether only the inputs of layers are kept for the backward pass.
            compiled: `layer_parts` under `torch.compile`, for passes without gradients; `None` for them as they are.
            places: Where hidden states are wanted; the last layer computes keys and values of all tokens, but the rest
                there only. `None`: everywhere.

        Returns:
            (B, T, hidden size); of N places (N, hidden size).
        """
        w = self._weights
        if inputs_embeds is None:
            assert input_ids is not None
            inputs_embeds = F.embedding(input_ids, w.embedding)
        x = inputs_embeds
        if position_ids is None:
            position_ids = torch.arange(x.shape[1], device=x.device)[None]
        columns = x.shape[1] if attention_mask is None else attention_mask.shape[-1]
        rotation = w.rope(position_ids, columns, x.dtype)
        mask = _boolean_mask(attention_mask, x.shape[1])
        if mask is not None:
            mask = added_mask(mask, x.dtype)  # a boolean one would be made into numbers by every layer
        run: Callable[..., Any] = _uncompiled
        if compiled is not None and compiled.wants(x[..., 0].numel(), len(self._layers) * x.shape[-1]):
            cosines, sines = (wave.expand(*x.shape[:2], -1, -1).flatten(0, 1) for wave in rotation)
            rotation, run = (cosines, sines), compiled
        wanted, found = (None, None) if places is None else _by_row(*places, len(x), x.device)
        for layer in self._layers:
            narrow = wanted if layer is self._layers[-1] else None
            arguments = (x, layer, (lora or {}).get(layer.number, {}), rotation, mask, cache, run, narrow)
            x = checkpoint(self._layer, *arguments, use_reentrant=False) if checkpointed else self._layer(*arguments)
        x = x if found is None else x[found]
        return F.rms_norm(x, (x.shape[-1],), w.norm, w.eps) if self._ends else x

    def _layer(
        self,
        x: torch.Tensor,
        layer: _Layer,
        lora: Mapping[str, Any],
        rotation: tuple[torch.Tensor, torch.Tensor],
        mask: torch.Tensor | None,
        cache: Any,
        run: Callable[..., Any],
        narrow: torch.Tensor | None,
    ) -> torch.Tensor:
        w, rows = self._weights, x.shape[:2]
        kind = tuple(type(lora.get(name)) for name in _PROJECTIONS)
        x = x if run is _uncompiled else x.flatten(0, 1)
        parts = run(_before_attention, kind, x, *rotation, layer, lora, w.head_size, w.eps)
        queries, keys, values = (part.view(*rows, -1, w.head_size).transpose(1, 2) for part in parts)
        if cache is not None:
            keys, values = cache.update(keys, values, layer.number)
        if narrow is not None:  # of what goes on from here; few tokens, which do not pay compiled parts
            run = _uncompiled
            x, queries, mask = _narrowed(x, queries, keys, mask, narrow)
        attended = _attention(queries, keys, values, mask).transpose(1, 2).reshape(*x.shape[:-1], -1)
        x = run(_behind_attention, kind, x, attended, layer, lora, w.activation, w.eps)
        return x if run is _uncompiled else x.view(*rows, -1)


def _by_row(rows: torch.Tensor, columns: torch.Tensor, count: int, device: torch.device) -> tuple[torch.Tensor, Places]:
    """Columns (B, W) of places in each of B rows, filled up with the first column, and where among these each place is.

    Computed where the places are: on the CPU nobody waits for a GPU.
    """
    order = torch.argsort(rows, stable=True)
    sizes = torch.bincount(rows, minlength=count)
    number = torch.empty_like(rows)
    number[order] = torch.arange(len(rows), device=rows.device) - (sizes.cumsum(0) - sizes)[rows[order]]
    of_rows = columns.new_zeros(count, int(sizes.max()))
    of_rows[rows, number] = columns
    return of_rows.to(device), (rows.to(device), number.to(device))


def _narrowed(
    x: torch.Tensor, queries: torch.Tensor, keys: torch.Tensor, mask: torch.Tensor | None, columns: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Hidden states (B, W, hidden size), queries (B, heads, W, size) and mask (B, 1, W, S) of columns (B, W)."""
    batch, heads, tokens, size = queries.shape
    flat = (torch.arange(batch, device=columns.device)[:, None] * tokens + columns).flatten()
    x = x.reshape(batch * tokens, -1).index_select(0, flat).view(*columns.shape, -1)
    queries = queries.transpose(1, 2).flatten(0, 1).index_select(0, flat)
    queries = queries.view(*columns.shape, heads, size).transpose(1, 2)
    if mask is None:
        before = torch.arange(keys.shape[2], device=columns.device) <= columns[..., None]
        return x, queries, added_mask(before[:, None], x.dtype)
    return x, queries, mask.flatten(0, 2).index_select(0, flat).view(batch, 1, -1, mask.shape[-1])


def _uncompiled(part: Callable[..., Any], _kind: Any, *arguments: Any) -> Any:
    return part(*arguments)


def _before_attention(
    x: torch.Tensor,
    cosines: torch.Tensor,
    sines: torch.Tensor,
    layer: _Layer,
    lora: Mapping[str, Any],
    size: int,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Queries, keys and values (..., heads, size) of tokens (..., hidden size), rotated by (..., 1, size)."""
    normed = F.rms_norm(x, (x.shape[-1],), layer.norm_1, eps)
    queries, keys, values = (part.unflatten(-1, (-1, size)) for part in _projected("qkv", normed, layer, lora))
    if layer.q_norm is not None and layer.k_norm is not None:
        queries = F.rms_norm(queries, (size,), layer.q_norm, eps)
        keys = F.rms_norm(keys, (size,), layer.k_norm, eps)
    return _rope(queries, cosines, sines), _rope(keys, cosines, sines), values


def _behind_attention(
    x: torch.Tensor,
    attended: torch.Tensor,
    layer: _Layer,
    lora: Mapping[str, Any],
    activation: Callable[[torch.Tensor], torch.Tensor],
    eps: float,
) -> torch.Tensor:
    """Tokens (..., hidden size) behind a layer; `attended` (..., heads * size) is what attention gave."""
    x = x + _projected("out", attended, layer, lora)[0]
    gate, up = _projected("gate_up", F.rms_norm(x, (x.shape[-1],), layer.norm_2, eps), layer, lora)
    return x + _projected("down", activation(gate) * up, layer, lora)[0]


layer_parts = (_before_attention, _behind_attention)
"""What a layer does to single tokens, for `CompiledLayers`."""


def _projected(name: str, x: torch.Tensor, layer: _Layer, lora: Mapping[str, Any]) -> Sequence[torch.Tensor]:
    """Outputs (..., size) of each of some maps of one input (..., inputs)."""
    adapter = lora.get(name)
    merged = adapter if isinstance(adapter, _Projections) else None
    base = merged or layer.projections[name]
    biases = base.biases or (None,) * len(base.weights)
    outs: Sequence[torch.Tensor] = [F.linear(x, w, b) for w, b in zip(base.weights, biases, strict=True)]
    if adapter is not None and merged is None:
        outs = adapter.added(outs, x)
    return outs if len(outs) == len(base.sizes) else outs[0].split(base.sizes, dim=-1)


def _attention(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None
) -> torch.Tensor:
    """Attention (B, heads, T, size), with fewer heads of keys and values than of queries."""
    rows, heads, tokens, size = queries.shape
    if tokens == 1:  # all see the same, so that the heads of a group are queries of one head
        grouped = queries.view(rows, keys.shape[1], -1, size)
        return F.scaled_dot_product_attention(grouped, keys, values, mask).view(rows, heads, 1, size)
    grouped = heads != keys.shape[1]
    return F.scaled_dot_product_attention(queries, keys, values, mask, is_causal=mask is None, enable_gqa=grouped)


def _rope(x: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
    left, right = x.chunk(2, dim=-1)
    return x * cosines + torch.cat([-right, left], dim=-1) * sines


def _boolean_mask(mask: torch.Tensor | None, tokens: int) -> torch.Tensor | None:
    """A boolean mask (B, 1, T, S), or `None` if every token sees all before it."""
    if mask is None or mask.dim() == 4:
        return mask
    columns = mask.shape[1]
    if tokens == columns and bool(mask.all()):
        return None
    step = torch.arange(columns, device=mask.device)
    before = step[None, :] <= step[columns - tokens :, None]
    return mask.bool()[:, None, None, :] & before
