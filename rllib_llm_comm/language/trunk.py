"""The trunk: what lies below the first adapted layer, computed once per text for all roles."""

from __future__ import annotations

import threading
import weakref
from typing import Any

import numpy as np
import torch

from rllib_llm_comm.language.base_model import BaseModel
from rllib_llm_comm.language.cut_cache import CutCache
from rllib_llm_comm.language.kept_states import KeptStates
from rllib_llm_comm.language.layer_cut import added_mask, below
from rllib_llm_comm.language.llama import LlamaDecoder, llama_weights
from rllib_llm_comm.language.prefix_cache import split_by_size
from rllib_llm_comm.language.text_paths import TextPaths, chains, text_paths
from rllib_llm_comm.language.token_trie import NONE, TokenTrie

_LEAST_COMMON = 8  # as of the prefix cache: a shorter common beginning is not worth a pass of its own
_LEAST_ROWS = 4

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
        base: The frozen model.
        depth: Number of layers, >= 1.
        max_bytes: Most bytes that are kept.
        kept: Format in which they are kept, a name of `KEPT_DTYPES`.
        autocast: Format of matrix products, if not that of the weights.
    """

    def __init__(self, base: BaseModel, depth: int, max_bytes: int, kept: str, autocast: torch.dtype | None) -> None:
        weights = llama_weights(base)
        self._llama = None if weights is None else LlamaDecoder(weights, 0, depth)
        self._hugging_face = below(base.decoder, depth)
        self._dtype = base.model.dtype
        self._depth, self._autocast, self._device = depth, autocast, base.device
        self._cache_argument = base.cache_argument
        config, dtype = base.config, base.model.dtype
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self._hidden_size = base.hidden_size
        self._states = KeptStates(max_bytes // 2, (base.hidden_size,), dtype, kept)
        self._keys_values = KeptStates(max_bytes // 2, (depth, 2, heads, size), dtype, kept)
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
            "keys and values": trie.extras.count * self._keys_values.bytes_each,
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
            paths = _paths(ids, mask, cache)
            self._trie.begin_round()
            grows = cache is not None and cache.grows
            states = self._grown(paths, cache) if cache is not None and grows else self._all(paths, tokens_per_pass)
            rows = torch.arange(len(ids), device=states.device)[:, None]
            states = states[rows, torch.from_numpy(paths.place).to(states.device)]
            return states.contiguous()  # the residual stream keeps its strides, and products of others are slow

    def _all(self, paths: TextPaths, tokens_per_pass: int) -> torch.Tensor:
        """Hidden states (B, S, hidden_size) of all tokens, from memory where they are there."""
        nodes = self._find(paths)
        real = np.arange(paths.ids.shape[1]) < paths.counts[:, None]
        missing = np.nonzero((real & (nodes == NONE)).any(1))[0]
        if len(missing) == 0:
            return self._states.take(torch.from_numpy(np.maximum(nodes, 0)))
        if self._read_common(paths, nodes, missing):
            nodes = self._find(paths)
        known = self._context(paths, nodes)
        computed = []
        for part in split_by_size(torch.from_numpy((paths.counts - known)[missing]), tokens_per_pass):
            rows = missing[part.numpy()]
            computed.append((rows, self._compute(paths.rows(rows), nodes[rows], known[rows])[0]))
        return self._assembled(paths, nodes, known, computed)

    def _assembled(
        self, paths: TextPaths, nodes: np.ndarray, known: np.ndarray, computed: list[tuple[np.ndarray, torch.Tensor]]
    ) -> torch.Tensor:
        """Hidden states as kept, and those just computed, for which memory may have had no room."""
        states = torch.zeros((*nodes.shape, self._hidden_size), dtype=computed[0][1].dtype, device=self._device)
        row, column = np.nonzero(nodes != NONE)
        if len(row):
            states[row, column] = self._states.take(torch.from_numpy(nodes[row, column])).to(states.dtype)
        for rows, fresh in computed:
            row, column = np.nonzero(np.arange(fresh.shape[1]) < (paths.counts - known)[rows][:, None])
            states[rows[row], known[rows[row]] + column] = fresh[row, column]
        return states

    def _read_common(self, paths: TextPaths, nodes: np.ndarray, missing: np.ndarray) -> bool:
        """Reads the beginning that all of these rows share once, if that pays."""
        common = int(paths.chains()[missing].min()) - 1
        if len(missing) < _LEAST_ROWS or common < _LEAST_COMMON:
            return False
        differs = (paths.ids[missing, :common] != paths.ids[missing[:1], :common]).any(0).nonzero()[0]
        head = paths.rows(missing[:1], int(differs[0]) if len(differs) else common)
        common = int(head.counts[0])
        known = self._context(head, nodes[missing[:1], :common])
        if common - int(known[0]) < _LEAST_COMMON or common > self._trie.extras.capacity:
            return False
        self._compute(head, nodes[missing[:1], :common], known)
        return True

    def _find(self, paths: TextPaths) -> np.ndarray:
        """Nodes (B, S) of tokens, marked as used; `NONE` where there is none."""
        nodes = np.full(paths.ids.shape, NONE, np.int64)
        for row, (ids, parents, count) in enumerate(zip(paths.ids, paths.parents, paths.counts, strict=True)):
            nodes[row, :count] = self._trie.find(ids[:count].tolist(), parents[:count].tolist())
        self._trie.use(nodes)
        return nodes

    def _context(self, paths: TextPaths, nodes: np.ndarray) -> np.ndarray:
        """Tokens (B,) at the beginning of each row of which keys and values are kept."""
        if self._trie.extras.capacity == 0:
            return np.zeros(len(nodes), np.int64)
        held = (nodes != NONE) & (self._trie.extra_of[nodes] != NONE)
        held &= np.arange(nodes.shape[1]) < paths.chains()[:, None]
        found: np.ndarray = held.cumprod(1).sum(1)
        return found

    def _compute(
        self, paths: TextPaths, nodes: np.ndarray, known: np.ndarray
    ) -> tuple[torch.Tensor, Any, torch.Tensor]:
        """Computes what comes behind the known beginnings, and keeps it.

        Args:
            paths: The rows.
            nodes: (B, S) their nodes.
            known: (B,) tokens of which keys and values are kept.

        Returns:
            Hidden states (B, T, hidden_size) from the first token on that is not known, the key-value cache, and what
            of it is filled (B, W + T).
        """
        width, left = int(known.max()), paths.counts - known
        steps = int(left.max())
        cache = self._lower_cache(nodes, known, width)
        column = np.arange(steps)
        at = np.minimum(known[:, None] + column, paths.ids.shape[1] - 1)
        inside = column < left[:, None]
        ids = np.where(inside, np.take_along_axis(paths.ids, at, 1), 0)
        sees = np.take_along_axis(paths.ancestors(), at[:, :, None], 1)
        positions = sees.sum(2) - 1
        context = np.arange(width) < known[:, None]
        own = np.take_along_axis(sees, np.broadcast_to(at[:, None, :], (len(at), steps, steps)), 2)
        mask = np.concatenate([sees[:, :, :width] & context[:, None], own & inside[:, None, :]], axis=2)
        hidden = self._forward(torch.from_numpy(ids), torch.from_numpy(mask), torch.from_numpy(positions), cache)
        self.computed_tokens += int(left.sum())
        self._keep(paths, nodes, known, hidden, cache)
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

    def _lower_cache(self, nodes: np.ndarray, known: np.ndarray, width: int) -> Any:
        from transformers import DynamicCache

        cache = DynamicCache()
        if width:
            places = self._trie.extra_of[np.maximum(nodes[:, :width], 0)]
            places[np.arange(width) >= known[:, None]] = 0
            kept = self._keys_values.take(torch.from_numpy(np.maximum(places, 0)))  # (B, W, layers, 2, heads, size)
            for layer in range(self._depth):
                keys, values = kept[:, :, layer].permute(2, 0, 3, 1, 4).contiguous()
                cache.update(keys, values, layer)
        return cache

    def _keep(self, paths: TextPaths, nodes: np.ndarray, known: np.ndarray, hidden: torch.Tensor, cache: Any) -> None:
        new: list[tuple[int, int, int]] = []
        chained: list[tuple[int, int, int]] = []
        chain = paths.chains()
        for row, (count, start) in enumerate(zip(paths.counts.tolist(), known.tolist(), strict=True)):
            own = nodes[row].tolist()
            for place in range(start, count):
                parent = int(paths.parents[row, place])
                node = own[place]
                if node == NONE and (parent < 0 or own[parent] != NONE):
                    node, fresh = self._trie.add(own[parent] if parent >= 0 else NONE, int(paths.ids[row, place]))
                    own[place] = node
                    if fresh:
                        new.append((node, row, place - start))
                if node == NONE or place >= chain[row] or self._trie.extra_of[node] != NONE:
                    continue
                extra = self._trie.add_extra(node)
                if extra != NONE:
                    chained.append((extra, row, place - start))
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

    def _grown(self, paths: TextPaths, cache: CutCache) -> torch.Tensor:
        """As `_all`, in one pass that leaves keys and values of all tokens in the cache."""
        nodes = self._find(paths)
        known = np.minimum(self._context(paths, nodes), paths.counts - 1)
        fresh, cache.lower, cache.lower_mask = self._compute(paths, nodes, known)
        return self._assembled(paths, nodes, known, [(np.arange(len(nodes)), fresh)])

    def _step(self, ids: torch.Tensor, mask: torch.Tensor, cache: CutCache) -> torch.Tensor:
        """The next token of rows that go on."""
        assert cache.lower_mask is not None
        cache.lower_mask = torch.cat([cache.lower_mask, cache.lower_mask.new_ones(ids.shape)], dim=1)
        positions = cache.lower_mask.sum(1, keepdim=True) - 1
        self.computed_tokens += ids.numel()
        return self._forward(ids, cache.lower_mask[:, None, :], positions, cache.lower)


def _paths(ids: torch.Tensor, mask: torch.Tensor, cache: CutCache | None) -> TextPaths:
    known = None if cache is None else cache.known
    if known is None or known.mask.shape[1] == 0:
        return text_paths(ids, mask)
    return text_paths(ids, mask[..., known.mask.shape[1] :], chains(known.prompts, known.lengths))
