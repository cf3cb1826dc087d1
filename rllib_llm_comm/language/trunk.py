"""The trunk: what lies below the first adapted layer, computed once per text for all roles."""

from __future__ import annotations

import copy
import math
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import DynamicCache

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.language.base_model import BaseModel, require_layers
from rllib_llm_comm.language.llama import LlamaDecoder, llama_weights
from rllib_llm_comm.language.model_sources import KEPT_DTYPES
from rllib_llm_comm.language.packing import added_mask
from rllib_llm_comm.language.prefix_cache import LEAST_COMMON, LEAST_ROWS, Prefixes, common_length, split_by_size

# ---- the cut ----------------------------------------------------------------------------------------------------


_PROBE = 12
_TOLERANCE = 1e-3


def layers_below(base: BaseModel, lora_layers: int | str) -> int:
    """Number of layers below the adapted ones.

    Args:
        lora_layers: `"all"`, or the number of adapted layers, counted from the top.

    Raises:
        UserError: If the model has fewer layers, or cannot be cut.
    """
    if lora_layers == "all":
        return 0
    total = int(base.config.num_hidden_layers)
    require_layers(base.name, int(lora_layers), total)
    depth = total - int(lora_layers)
    if depth:
        _require_cut(base, depth)
    return depth


def below(decoder: nn.Module, depth: int) -> nn.Module:
    """The decoder's first layers, without the norm behind the last one; its parts are the decoder's own.

    Args:
        decoder: A Hugging Face decoder with `layers` and `norm`.
        depth: Number of layers.
    """
    view = _view(decoder, slice(0, depth))
    view.norm = nn.Identity()
    return view


def above(decoder: nn.Module, depth: int) -> nn.Module:
    """The decoder's layers from `depth` on, which take `inputs_embeds`; arguments as of `below`."""
    return _view(decoder, slice(depth, None))


def _view(decoder: Any, which: slice) -> Any:
    view = copy.copy(decoder)
    view.__dict__["_modules"] = dict(decoder._modules)
    view.layers = nn.ModuleList(decoder.layers[which])
    return view


@torch.no_grad()
def _require_cut(base: BaseModel, depth: int) -> None:
    """Refuses a model whose halves, one behind the other, do not compute what the whole does."""
    decoder, config = base.decoder, base.config
    kinds = set(getattr(config, "layer_types", None) or ("full_attention",))
    plain = isinstance(getattr(decoder, "layers", None), nn.ModuleList) and hasattr(decoder, "norm")
    if plain and kinds == {"full_attention"}:
        ids = torch.arange(_PROBE, device=base.device)[None] % base.vocab_size
        whole = decoder(input_ids=ids, use_cache=False).last_hidden_state.float()
        half = below(decoder, depth)(input_ids=ids, use_cache=False).last_hidden_state
        parts = above(decoder, depth)(inputs_embeds=half, use_cache=False).last_hidden_state.float()
        if float((whole - parts).abs().max()) <= _TOLERANCE * float(whole.abs().max()):
            return
    raise UserError(
        f"`lora_layers` is set but `base_model` {base.name!r} ({type(decoder).__name__}) cannot be computed in two "
        "parts; set `lora_layers` to 'all', or take a model of the LLaMA kind."
    )


# ---- prefixes of token ids --------------------------------------------------------------------------------------


NONE = -1
"""In place of a node, or of the token in front, where there is none."""
_TOKENS = 2**32


class FreeList:
    """A bounded number of places, handed out to owners and taken back.

    Args:
        capacity: Number of places, >= 0.

    Attributes:
        exhausted: The last round in which nothing old enough was there to make room.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.exhausted = -1
        self._free: list[int] = []
        self._fresh = 0

    @property
    def count(self) -> int:
        """Places in use."""
        return self._fresh - len(self._free)

    def take(self) -> int:
        """A free place; `NONE` if there is none."""
        if self._free:
            return self._free.pop()
        if self._fresh == self.capacity:
            return NONE
        self._fresh += 1
        return self._fresh - 1

    def give_back(self, places: np.ndarray) -> None:
        """Frees places."""
        self._free.extend(places.tolist())


class TokenTrie:
    """A trie of token ids with a bounded number of nodes; those used longest ago go first.

    A node stands for the sequence from the first token to its own, so equal beginnings of texts are one path. Some
    nodes have a second place, among keys and values (`kv`). Whoever uses a node uses those above it in the same round.
    So a node is never older than those below it, and goes no sooner.

    Args:
        capacity: Most nodes, >= 0.
        kv_capacity: Most nodes with a place among keys and values, >= 0.
    """

    def __init__(self, capacity: int, kv_capacity: int) -> None:
        self.nodes, self.kv = FreeList(capacity), FreeList(kv_capacity)
        self.kv_of = np.full(capacity, NONE, np.int64)
        self._used = np.zeros(capacity, np.int64)
        self._key_of = np.zeros(capacity, np.int64)
        self._node_at: dict[int, int] = {}
        self._round = 0

    def begin_round(self) -> None:
        """Starts a round; whatever is used in it stays until the next one."""
        self._round += 1

    def find(self, tokens: Sequence[int], parents: Sequence[int]) -> list[int]:
        """Nodes of a text's tokens.

        Args:
            tokens: Token ids.
            parents: Place in the list of the token in front of each; -1 for none.

        Returns:
            A node for each token, `NONE` where there is none.
        """
        found: list[int] = []
        get = self._node_at.get
        for token, parent in zip(tokens, parents, strict=True):
            above = found[parent] if parent >= 0 else NONE
            lost = parent >= 0 and above == NONE
            found.append(NONE if lost else get((above + 1) * _TOKENS + token, NONE))
        return found

    def use(self, nodes: np.ndarray) -> None:
        """Marks nodes (of any shape; `NONE` counts for nothing) as used in this round."""
        self._used[nodes[nodes != NONE]] = self._round

    def add(self, above: int, token: int) -> tuple[int, bool]:
        """Adds a node, used in this round.

        Args:
            above: The node in front of it; -1 for none.
            token: Its token id.

        Returns:
            The node, `NONE` where there is no room, and whether it is new.
        """
        key = (above + 1) * _TOKENS + token
        node = self._node_at.get(key, NONE)
        if node != NONE:
            return node, False
        node = self._take(self.nodes, self._drop_oldest)
        if node == NONE:
            return NONE, False
        self._node_at[key] = node
        self._key_of[node], self._used[node] = key, self._round
        return node, True

    def add_kv(self, node: int) -> int:
        """A place of a node among keys and values; `NONE` where there is no room."""
        place = self._take(self.kv, self._drop_oldest_kv)
        if place != NONE:
            self.kv_of[node] = place
        return place

    def _take(self, places: FreeList, make_room: Callable[[], bool]) -> int:
        place = places.take()
        if place != NONE or places.exhausted == self._round:
            return place
        if make_room():
            return places.take()
        places.exhausted = self._round  # to look again costs as much as there are nodes
        return NONE

    def _drop_oldest(self) -> bool:
        nodes = np.fromiter(self._node_at.values(), np.int64, len(self._node_at))
        old = self._oldest(nodes)
        for key in self._key_of[old].tolist():
            del self._node_at[key]
        self._drop_kv(old[self.kv_of[old] != NONE])
        self.nodes.give_back(old)
        return len(old) > 0

    def _drop_oldest_kv(self) -> bool:
        old = self._oldest(np.nonzero(self.kv_of != NONE)[0])
        self._drop_kv(old)
        return len(old) > 0

    def _drop_kv(self, nodes: np.ndarray) -> None:
        self.kv.give_back(self.kv_of[nodes])
        self.kv_of[nodes] = NONE

    def _oldest(self, nodes: np.ndarray) -> np.ndarray:
        """About the older half of some nodes, of whole rounds, none of this one."""
        rounds = self._used[nodes]
        before = rounds[rounds < self._round]
        return nodes[rounds <= np.median(before)] if len(before) else nodes[:0]


# ---- rows along them --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TokenTrees:
    """Rows of tokens without gaps, each with the place of the token in front of it.

    Attributes:
        ids: (B, S) token ids, left-aligned.
        parents: (B, S) place of the token in front, smaller than its own; `NONE` for the first.
        counts: (B,) tokens per row.
        place: (B, S') place of each column that was given; 0 of padding.
    """

    ids: np.ndarray
    parents: np.ndarray
    counts: np.ndarray
    place: np.ndarray

    def rows(self, which: np.ndarray, width: int | None = None) -> TokenTrees:
        """Some rows, and of each at most so many tokens."""
        counts = self.counts[which] if width is None else np.minimum(self.counts[which], width)
        most = int(counts.max(initial=0))
        return TokenTrees(self.ids[which, :most], self.parents[which, :most], counts, self.place[which])

    def chains(self) -> np.ndarray:
        """Tokens (B,) at the beginning of each row that follow one on the other."""
        column = np.arange(self.ids.shape[1])
        follows = (self.parents == column - 1) & (column < self.counts[:, None])
        return follows.cumprod(1).sum(1)

    def ancestors(self) -> np.ndarray:
        """(B, S, S) bool: True where a token (second axis) may look at another one: its ancestors and itself."""
        batch, width = self.ids.shape
        visible = np.zeros((batch, width, width), bool)
        rows = np.arange(batch)
        for column in range(width):
            above = self.parents[:, column]
            visible[:, column] = visible[rows, above] & (above != NONE)[:, None]
            visible[:, column, column] = True
        return visible


def token_trees(ids: torch.Tensor, mask: torch.Tensor, known: Prefixes | None) -> TokenTrees:
    """The trees of rows.

    Args:
        ids: (B, T) token ids.
        mask: (B, P + T) of 0/1: each token sees those in front of it; or (B, 1, T, P + T) bool, True where token t may
            look at column s, which is an ancestor of it or itself.
        known: P columns of tokens in front of the rows, which every token sees; `None` if P = 0.
    """
    tokens = ids.cpu().numpy()
    batch, width = tokens.shape
    column = np.arange(width)
    mask = mask[..., mask.shape[-1] - width :]
    if mask.dim() == 4:
        visible = mask[:, 0].cpu().numpy()
        valid = visible[:, column, column]
    else:
        valid = mask.cpu().numpy().astype(bool)
        visible = valid[:, None, :]
    earlier = visible & (column[None, :] < column[:, None])
    last = width - 1 - earlier[:, :, ::-1].argmax(2)
    ahead = np.zeros(batch, np.int64) if known is None else known.lengths.numpy()
    place = np.where(valid, valid.cumsum(1) - 1 + ahead[:, None], 0)
    parents = np.where(earlier.any(2), np.take_along_axis(place, last, 1), ahead[:, None] - 1)
    counts = ahead + valid.sum(1)
    total = int(counts.max(initial=0))
    whole_ids, whole_parents = np.zeros((batch, total), np.int64), np.tile(np.arange(total) - 1, (batch, 1))
    if known is not None:
        front = int(ahead.max(initial=0))
        whole_ids[:, :front] = known.prompts[:, :front].numpy()
    row, which = np.nonzero(valid)
    whole_ids[row, place[row, which]] = tokens[row, which]
    whole_parents[row, place[row, which]] = parents[row, which]
    return TokenTrees(whole_ids, whole_parents, counts, place)


# ---- what is kept of them ---------------------------------------------------------------------------------------


_INT8_MOST = 127


class KeptStates:
    """A table of arrays of one shape.

    In `int8` each last dimension has a scale of its own, its largest absolute value over 127. The memory is asked for
    when the first arrays come; a CPU's operating system gives it page by page as it is written.

    Args:
        max_bytes: Most bytes.
        shape: Of one array.
        dtype: The widest format in which arrays come.
        kept: A name of `KEPT_DTYPES`.
    """

    def __init__(self, max_bytes: int, shape: Sequence[int], dtype: torch.dtype, kept: str) -> None:
        assert kept in KEPT_DTYPES
        self._shape, self._dtype, self._kept = tuple(shape), dtype, kept
        width = {"same": dtype.itemsize, "bfloat16": 2, "int8": 1}[kept]
        scales = 4 * math.prod(self._shape[:-1]) if kept == "int8" else 0
        self.bytes_each = width * math.prod(self._shape) + scales
        self.capacity = max_bytes // self.bytes_each
        self.clear()

    def clear(self) -> None:
        """Gives the memory back."""
        self._table: torch.Tensor | None = None
        self._scales: torch.Tensor | None = None

    def put(self, places: torch.Tensor, arrays: torch.Tensor) -> None:
        """Writes arrays (N, ...) to places (N,)."""
        if self._table is None:
            self._dtype = arrays.dtype
            inside = {"same": self._dtype, "bfloat16": torch.bfloat16, "int8": torch.int8}[self._kept]
            with torch.inference_mode(False):  # what is read from it later goes into passes with gradients
                self._table = torch.empty((self.capacity, *self._shape), dtype=inside, device=arrays.device)
                if self._kept == "int8":
                    self._scales = torch.empty((self.capacity, *self._shape[:-1], 1), device=arrays.device)
        places = places.to(arrays.device)
        if self._scales is not None:
            arrays = arrays.float()
            scales = (arrays.abs().amax(-1, keepdim=True) / _INT8_MOST).clamp(min=torch.finfo(torch.float32).tiny)
            self._scales[places] = scales
            arrays = (arrays / scales).round()
        self._table[places] = arrays.to(self._table.dtype)

    def take(self, places: torch.Tensor) -> torch.Tensor:
        """Arrays of places (...); some must have been written."""
        assert self._table is not None
        places = places.to(self._table.device)
        arrays = self._table[places]
        if self._scales is not None:
            arrays = arrays.float() * self._scales[places]
        return arrays.to(self._dtype)


# ---- keys and values --------------------------------------------------------------------------------------------


class CutCache(DynamicCache):  # type: ignore[misc]  # transformers has no types
    """Keys and values above the cut, and of texts that go on growing also those below it.

    Args:
        depth: Number of layers below the cut; the others count themselves from the bottom.
        known: Prefixes that have been read above the cut.
        grows: True if tokens are added after the first pass.
    """

    def __init__(self, depth: int, known: Prefixes, *, grows: bool) -> None:
        super().__init__()
        self._depth = depth
        self.known, self.grows = known, grows
        self.lower: DynamicCache | None = None
        self.lower_mask: torch.Tensor | None = None
        if known.mask.shape[1]:
            for index, (keys, values) in enumerate(known.layers):
                self.update(keys, values, depth + index)

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """As of `DynamicCache`, by the layer's number in the whole model."""
        both: tuple[torch.Tensor, torch.Tensor] = super().update(
            key_states, value_states, layer_idx - self._depth, *args, **kwargs
        )
        return both

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keeps some rows, above and below the cut."""
        super().batch_select_indices(indices)
        if self.lower is not None and self.lower_mask is not None:
            self.lower.batch_select_indices(indices)
            self.lower_mask = self.lower_mask[indices]


# ---- the trunk --------------------------------------------------------------------------------------------------


_TRUNKS: weakref.WeakKeyDictionary[BaseModel, dict[tuple[Any, ...], Trunk]] = weakref.WeakKeyDictionary()
_LOCK = threading.Lock()


def trunk_of(base: BaseModel, depth: int, max_bytes: int, kept: str, autocast: torch.dtype | None) -> Trunk:
    """The trunk that all policies on a base model share in this process; arguments as of `Trunk`."""
    key = (depth, max_bytes, kept, autocast)
    with _LOCK:
        trunks = _TRUNKS.setdefault(base, {})
        if key not in trunks:
            trunks[key] = Trunk(base, depth, max_bytes, kept, autocast)
        return trunks[key]


class Trunk:
    """Hidden states of the frozen layers below the adapted ones.

    They depend on a token and those in front of it only, neither on a role nor on what is trained. So they are kept by
    token sequence in a trie, from roll-out to update. Half of the bytes hold hidden states, one array per token, with
    which the layers above begin. The other half holds keys and values of tokens that follow one on the other, from
    which longer texts go on. What does not fit is computed again.

    Args:
        depth: Number of layers, >= 1.
        max_bytes: Most bytes that are kept.
        kept: Format in which they are kept, a name of `KEPT_DTYPES`.
        autocast: Format of matrix products, if not that of the weights.
    """

    def __init__(self, base: BaseModel, depth: int, max_bytes: int, kept: str, autocast: torch.dtype | None) -> None:
        weights = llama_weights(base)
        self._llama = None if weights is None else LlamaDecoder(weights, 0, depth)
        self._hugging_face = below(base.decoder, depth)
        self._dtype, self.kept = base.model.dtype, kept
        self._depth, self._autocast, self._device = depth, autocast, base.device
        self._cache_argument = base.cache_argument
        self._hidden_size = base.hidden_size
        self._states = KeptStates(max_bytes // 2, (base.hidden_size,), self._dtype, kept)
        self._keys_values = KeptStates(max_bytes // 2, (depth, 2, *base.kv_heads), self._dtype, kept)
        self._lock = threading.RLock()
        self.computed_tokens = 0
        self.clear()

    def clear(self) -> None:
        """Forgets everything."""
        with self._lock:
            self._trie = TokenTrie(self._states.capacity, self._keys_values.capacity)
            self._states.clear()
            self._keys_values.clear()

    @property
    def kept_bytes(self) -> dict[str, int]:
        """Bytes in use, of hidden states and of keys and values."""
        trie = self._trie
        return {
            "hidden states": trie.nodes.count * self._states.bytes_each,
            "keys and values": trie.kv.count * self._keys_values.bytes_each,
        }

    @property
    def nbytes(self) -> int:
        """Bytes in use."""
        return sum(self.kept_bytes.values())

    @torch.no_grad()
    def read(self, ids: torch.Tensor, mask: torch.Tensor, cache: CutCache | None, tokens_per_pass: int) -> torch.Tensor:
        """Hidden states of rows, with which the layers above the cut begin.

        Args:
            ids: (B, T) token ids.
            mask: (B, P + T) of 0/1, or (B, 1, T, P + T) bool, where the first P columns are those of the cache.
            cache: The cache of the pass, of which the first P columns are known; `None` if P = 0. One that grows has
                its part below the cut filled.
            tokens_per_pass: Most tokens that are computed at once.

        Returns:
            (B, T, hidden_size); of padding anything finite.
        """
        with self._lock, torch.autocast(self._device.type, self._autocast, enabled=self._autocast is not None):
            if cache is not None and cache.lower is not None:
                return self._step(ids, mask, cache)
            trees = token_trees(ids, mask, None if cache is None else cache.known)
            self._trie.begin_round()
            if cache is not None and cache.grows:
                states = self._grown(trees, cache)
            else:
                states = self._all(trees, tokens_per_pass)
            rows = torch.arange(len(ids), device=states.device)[:, None]
            states = states[rows, torch.from_numpy(trees.place).to(states.device)]
            return states.contiguous()  # the residual stream keeps its strides, and products of others are slow

    def _all(self, trees: TokenTrees, tokens_per_pass: int) -> torch.Tensor:
        """Hidden states (B, S, hidden_size) of all tokens, from memory where they are there."""
        nodes = self._find(trees)
        real = np.arange(trees.ids.shape[1]) < trees.counts[:, None]
        missing = np.nonzero((real & (nodes == NONE)).any(1))[0]
        if len(missing) == 0:
            return self._states.take(torch.from_numpy(np.maximum(nodes, 0)))
        if self._read_common(trees, nodes, missing):
            nodes = self._find(trees)
        known = self._cached_prefix(trees, nodes)
        computed = []
        for part in split_by_size(torch.from_numpy((trees.counts - known)[missing]), tokens_per_pass):
            rows = missing[part.numpy()]
            computed.append((rows, self._compute(trees.rows(rows), nodes[rows], known[rows])[0]))
        return self._assembled(trees, nodes, known, computed)

    def _assembled(
        self, trees: TokenTrees, nodes: np.ndarray, known: np.ndarray, computed: list[tuple[np.ndarray, torch.Tensor]]
    ) -> torch.Tensor:
        """Hidden states as kept, and those just computed, for which memory may have had no room."""
        states = torch.zeros((*nodes.shape, self._hidden_size), dtype=computed[0][1].dtype, device=self._device)
        row, column = np.nonzero(nodes != NONE)
        if len(row):
            states[row, column] = self._states.take(torch.from_numpy(nodes[row, column])).to(states.dtype)
        for rows, fresh in computed:
            row, column = np.nonzero(np.arange(fresh.shape[1]) < (trees.counts - known)[rows][:, None])
            states[rows[row], known[rows[row]] + column] = fresh[row, column]
        return states

    def _read_common(self, trees: TokenTrees, nodes: np.ndarray, missing: np.ndarray) -> bool:
        """Reads the beginning that all of these rows share once, if that pays."""
        if len(missing) < LEAST_ROWS:
            return False
        chains = trees.chains()[missing]
        common = common_length(torch.from_numpy(trees.ids[missing]), torch.from_numpy(chains))
        head, own = trees.rows(missing[:1], common), nodes[missing[:1], :common]
        known = self._cached_prefix(head, own)
        if common - int(known[0]) < LEAST_COMMON or common > self._trie.kv.capacity:
            return False
        self._compute(head, own, known)
        return True

    def _find(self, trees: TokenTrees) -> np.ndarray:
        """Nodes (B, S) of tokens, marked as used; `NONE` where there is none."""
        nodes = np.full(trees.ids.shape, NONE, np.int64)
        for row, (ids, parents, count) in enumerate(zip(trees.ids, trees.parents, trees.counts, strict=True)):
            nodes[row, :count] = self._trie.find(ids[:count].tolist(), parents[:count].tolist())
        self._trie.use(nodes)
        return nodes

    def _cached_prefix(self, trees: TokenTrees, nodes: np.ndarray) -> np.ndarray:
        """Tokens (B,) at the beginning of each row of which keys and values are kept."""
        if self._trie.kv.capacity == 0:
            return np.zeros(len(nodes), np.int64)
        held = (nodes != NONE) & (self._trie.kv_of[nodes] != NONE)
        held &= np.arange(nodes.shape[1]) < trees.chains()[:, None]
        found: np.ndarray = held.cumprod(1).sum(1)
        return found

    def _compute(
        self, trees: TokenTrees, nodes: np.ndarray, known: np.ndarray
    ) -> tuple[torch.Tensor, Any, torch.Tensor]:
        """Computes what comes behind the known beginnings, and keeps it.

        Args:
            trees: The rows.
            nodes: (B, S) their nodes.
            known: (B,) tokens of which keys and values are kept.

        Returns:
            Hidden states (B, T, hidden_size) from the first token on that is not known, the key-value cache, and what
            of it is filled (B, W + T).
        """
        width, left = int(known.max()), trees.counts - known
        steps = int(left.max())
        cache = self._cache_below(nodes, known, width)
        column = np.arange(steps)
        at = np.minimum(known[:, None] + column, trees.ids.shape[1] - 1)
        inside = column < left[:, None]
        ids = np.where(inside, np.take_along_axis(trees.ids, at, 1), 0)
        sees = np.take_along_axis(trees.ancestors(), at[:, :, None], 1)
        positions = sees.sum(2) - 1
        context = np.arange(width) < known[:, None]
        own = np.take_along_axis(sees, np.broadcast_to(at[:, None, :], (len(at), steps, steps)), 2)
        mask = np.concatenate([sees[:, :, :width] & context[:, None], own & inside[:, None, :]], axis=2)
        hidden = self._forward(torch.from_numpy(ids), torch.from_numpy(mask), torch.from_numpy(positions), cache)
        self.computed_tokens += int(left.sum())
        self._keep(trees, nodes, known, hidden, cache)
        filled = torch.from_numpy(np.concatenate([context, inside], axis=1)).to(self._device)
        return hidden, cache, filled

    def _forward(self, ids: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor, cache: Any) -> torch.Tensor:
        ids, mask, positions = (array.to(self._device) for array in (ids, mask[:, None], positions))
        if self._llama is not None:
            return self._llama(input_ids=ids, attention_mask=mask, position_ids=positions, cache=cache)
        hidden: torch.Tensor = self._hugging_face(
            input_ids=ids,
            attention_mask=added_mask(mask, self._dtype),
            position_ids=positions,
            use_cache=True,
            **{self._cache_argument: cache},
        ).last_hidden_state
        return hidden

    def _cache_below(self, nodes: np.ndarray, known: np.ndarray, width: int) -> Any:
        cache = DynamicCache()
        if width:
            places = self._trie.kv_of[np.maximum(nodes[:, :width], 0)]
            places[np.arange(width) >= known[:, None]] = 0
            kept = self._keys_values.take(torch.from_numpy(np.maximum(places, 0)))  # (B, W, layers, 2, heads, size)
            for layer in range(self._depth):
                keys, values = kept[:, :, layer].permute(2, 0, 3, 1, 4).contiguous()
                cache.update(keys, values, layer)
        return cache

    def _keep(self, trees: TokenTrees, nodes: np.ndarray, known: np.ndarray, hidden: torch.Tensor, cache: Any) -> None:
        new: list[tuple[int, int, int]] = []
        chained: list[tuple[int, int, int]] = []
        chain = trees.chains()
        for row, (count, start) in enumerate(zip(trees.counts.tolist(), known.tolist(), strict=True)):
            own = nodes[row].tolist()
            for place in range(start, count):
                parent = int(trees.parents[row, place])
                node = own[place]
                if node == NONE and (parent < 0 or own[parent] != NONE):
                    node, fresh = self._trie.add(own[parent] if parent >= 0 else NONE, int(trees.ids[row, place]))
                    own[place] = node
                    if fresh:
                        new.append((node, row, place - start))
                if node == NONE or place >= chain[row] or self._trie.kv_of[node] != NONE:
                    continue
                kv = self._trie.add_kv(node)
                if kv != NONE:
                    chained.append((kv, row, place - start))
        if new:
            where, row, step = torch.tensor(new).T
            self._states.put(where, hidden[row, step])
        if chained:
            where, row, step = torch.tensor(chained).T
            begin = cache.layers[0].keys.shape[2] - hidden.shape[1]
            sides = [
                torch.stack([layer.keys[row, :, begin + step], layer.values[row, :, begin + step]], 1)
                for layer in cache.layers
            ]
            self._keys_values.put(where, torch.stack(sides, 1))

    def _grown(self, trees: TokenTrees, cache: CutCache) -> torch.Tensor:
        """As `_all`, in one pass that leaves keys and values of all tokens in the cache."""
        nodes = self._find(trees)
        known = np.minimum(self._cached_prefix(trees, nodes), trees.counts - 1)
        fresh, cache.lower, cache.lower_mask = self._compute(trees, nodes, known)
        return self._assembled(trees, nodes, known, [(np.arange(len(nodes)), fresh)])

    def _step(self, ids: torch.Tensor, mask: torch.Tensor, cache: CutCache) -> torch.Tensor:
        """The next token of rows that go on."""
        assert cache.lower_mask is not None
        cache.lower_mask = torch.cat([cache.lower_mask, cache.lower_mask.new_ones(ids.shape)], dim=1)
        positions = cache.lower_mask.sum(1, keepdim=True) - 1
        self.computed_tokens += ids.numel()
        return self._forward(ids, cache.lower_mask[:, None, :], positions, cache.lower)
