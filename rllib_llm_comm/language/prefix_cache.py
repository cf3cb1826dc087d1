"""Prefix cache: keys and values of earlier prompts, from which later ones that begin alike go on."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from rllib_llm_comm.language.multi_lora import Role, Rows
from rllib_llm_comm.language.packing import PAD

_STRIDE = 4  # beginnings are looked up at multiples of so many tokens
LEAST_COMMON = 8  # a common beginning shorter than this is not worth a pass of its own
LEAST_ROWS = 4
_TOKEN_BYTES = 4
_PASS_TOKENS = 192  # a forward pass costs about as much as so many tokens more in another one

# All caches of a process on one base model, so that a population's members do not take its memory many times over.
_OF_BASE: weakref.WeakKeyDictionary[Any, weakref.WeakSet[PrefixCache]] = weakref.WeakKeyDictionary()
_CLOCK = itertools.count()
_LOCK = threading.RLock()  # of what is kept: a thread may have to forget what another one's cache keeps


class _Place(NamedTuple):
    """Place of a prefix: a pass, a row in it, the column of its first token and of its last one's total."""

    number: int
    row: int
    begin: int
    length: int
    total: int


_NOWHERE = _Place(-1, 0, 0, 0, 0)


@dataclass(frozen=True)
class _Pass:
    """Keys and values that a forward pass left behind.

    Attributes:
        layers: Per layer keys and values (B, heads, columns, size).
        totals: (B, T, hidden_size) sums of the last hidden states from each prompt's first token on; T = 0 for
            adapters, of which nobody asks for them.
        keys: The beginnings that are looked up in it.
    """

    layers: list[tuple[torch.Tensor, torch.Tensor]]
    totals: torch.Tensor
    keys: list[bytes]

    @property
    def nbytes(self) -> int:
        """Bytes that it holds."""
        return self.totals.nbytes + sum(keys.nbytes + values.nbytes for keys, values in self.layers)


@dataclass(frozen=True)
class Prefixes:
    """The known beginnings of a batch of prompts, right-aligned in front of what is to be computed.

    Attributes:
        prompts: (B, P') token ids, left-aligned, on the CPU, of which the first `lengths` are known.
        lengths: (B,) tokens known of each prompt, on the CPU.
        layers: Per layer keys and values (B, heads, P, size), zero where a beginning is shorter than P.
        totals: (B, hidden_size) sums of the last hidden states of what is known; zero for adapters.
        mask: (B, P) bool, True where there is something.
    """

    prompts: torch.Tensor
    lengths: torch.Tensor
    layers: list[tuple[torch.Tensor, torch.Tensor]]
    totals: torch.Tensor
    mask: torch.Tensor

    def to_cache(self) -> Any:
        """A key-value cache that has read them.

        It keeps all of a row: a window counts places, of which candidates side by side take more than a text has.
        """
        from transformers import DynamicCache

        cache = DynamicCache()
        if self.mask.shape[1]:
            for index, (keys, values) in enumerate(self.layers):
                cache.update(keys, values, index)
        return cache


class Reader(Protocol):
    """A model that reads prompts under several adapters, such as `AdaptedModel`."""

    @property
    def base(self) -> Any:
        """The base model; its `hidden_size` and `kept_bytes_per_token` count."""

    @property
    def device(self) -> torch.device:
        """The place of the weights."""

    def stamp(self, role: Role) -> Hashable:
        """Changes whenever the weights do on which results under a role depend."""

    def use(self, role: Role) -> AbstractContextManager[None]:
        """Forwards inside this context run with the adapter of `role`."""

    def read(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        position_ids: torch.Tensor | None,
        known: Prefixes,
    ) -> tuple[torch.Tensor, Any]:
        """The last hidden states of prompts that go on behind what is known, and the cache behind them."""


class PrefixCache:
    """Keys and values of the prompts that one role, or a pool of adapters, has read since weights changed last.

    A new prompt takes over the longest beginning that it shares with an earlier one, to a multiple of four tokens. Of
    the prompts of a game, which differ in a few words, most is known that way. For use without gradients: keys and
    values that were kept carry none. Bounded in bytes together with all other caches on the base model in this process;
    the cache that was used longest ago gives up its oldest prompts first.

    Args:
        model: It reads the prompts.
        max_bytes: Most bytes kept in all caches on the base model.
    """

    def __init__(self, model: Reader, max_bytes: int) -> None:
        self._model, self._max_bytes = model, max_bytes
        self._used = next(_CLOCK)
        self.clear()
        with _LOCK:
            _OF_BASE.setdefault(model.base, weakref.WeakSet()).add(self)

    def clear(self) -> None:
        """Forgets everything."""
        self._passes: OrderedDict[int, _Pass] = OrderedDict()
        self._places: dict[bytes, _Place] = {}
        self._number = 0
        self.nbytes = 0
        self._stamp: Hashable = None

    def find(self, prompts: torch.Tensor, lengths: torch.Tensor, role: Role) -> Prefixes:
        """Known prefixes of some prompts.

        Where the prompts have much more in common than is known of any, that common beginning is read first, by a
        forward pass of its own, and kept.

        Args:
            prompts: (B, P) token ids, left-aligned, on the CPU.
            lengths: (B,) tokens per prompt; at least one of each is left to compute.
            role: The cache's own role; of a pool the adapter of each prompt.
        """
        self._used = next(_CLOCK)
        with _LOCK:
            self._check_weights(role)
            found = self._look_up(prompts, lengths, role)
            common = common_length(prompts, lengths) // _STRIDE * _STRIDE
            longest = max(place.length for place in found)
            if len(prompts) >= LEAST_ROWS and common - longest >= LEAST_COMMON:
                self._read_alone(prompts[:1, :common], role)
                found = self._look_up(prompts, lengths, role)
            return self._gather(prompts, found)

    def rests(self, prompts: torch.Tensor, lengths: torch.Tensor, role: Role) -> torch.Tensor:
        """Tokens (B,) of each prompt that are not known; arguments as of `find`."""
        with _LOCK:
            self._check_weights(role)
            found = self._look_up(prompts, lengths, role)
        return lengths - torch.tensor([place.length for place in found])

    def _check_weights(self, role: Role) -> None:
        stamp = self._model.stamp(role)
        if stamp != self._stamp:
            self.clear()
            self._stamp = stamp

    def _look_up(self, prompts: torch.Tensor, lengths: torch.Tensor, role: Role) -> list[_Place]:
        return [self._longest(raw, int(count)) for raw, count in zip(_texts(prompts, role), lengths, strict=True)]

    def _longest(self, raw: bytes, count: int) -> _Place:
        """The longest beginning that is known of a prompt and leaves at least one token."""
        for length in range((count - 1) // _STRIDE * _STRIDE, 0, -_STRIDE):
            place = self._places.get(raw[: _TOKEN_BYTES * (1 + length)])
            if place is not None:
                self._passes.move_to_end(place.number)
                return place
        return _NOWHERE

    def _read_alone(self, ids: torch.Tensor, role: Role) -> None:
        """Reads a common beginning, once for each adapter."""
        if isinstance(role, Rows):
            role = role.pool.rows(np.unique(role.owners))
            ids = ids.repeat(len(role.owners), 1)
        lengths = torch.tensor([ids.shape[1]] * len(ids))
        nothing = self.nothing(len(ids))
        with self._model.use(role):
            hidden, cache = self._model.read(ids.to(self._model.device), torch.ones_like(ids), None, nothing)
        self.put(ids, lengths, role, nothing, cache, hidden)

    def _gather(self, prompts: torch.Tensor, found: Sequence[_Place]) -> Prefixes:
        lengths = torch.tensor([place.length for place in found])
        width, device = int(lengths.max()), self._model.device
        mask = torch.arange(width, device=device) >= width - lengths.to(device)[:, None]
        totals = torch.zeros(len(found), self._model.base.hidden_size, device=device)
        rows = [(row, self._passes[place.number], place) for row, place in enumerate(found) if place.length]
        layers = []
        for row, source, place in rows:
            if source.totals.shape[1]:
                totals[row] = source.totals[place.row, place.total]
        for index in range(len(rows[0][1].layers) if rows else 0):
            both = []
            for side in (0, 1):
                like = rows[0][1].layers[index][side]
                whole = like.new_zeros((len(found), like.shape[1], width, like.shape[3]))
                for row, source, place in rows:
                    stretch = slice(place.begin, place.begin + place.length)
                    whole[row, :, width - place.length :] = source.layers[index][side][place.row, :, stretch]
                both.append(whole)
            layers.append((both[0], both[1]))
        return Prefixes(prompts, lengths, layers, totals, mask)

    def has_room(self, tokens: int) -> bool:
        """True if keys and values of so many tokens could be kept.

        Args:
            tokens: Number of tokens, padding included.
        """
        return tokens * int(self._model.base.kept_bytes_per_token) <= self._max_bytes

    def nothing(self, rows: int) -> Prefixes:
        """What is known of rows of which nothing is."""
        return self._gather(torch.zeros(rows, 0, dtype=torch.long), [_NOWHERE] * rows)

    def put_packed(
        self,
        prompts: torch.Tensor,
        lengths: torch.Tensor,
        role: Role,
        row_of: torch.Tensor,
        columns: torch.Tensor,
        cache: Any,
        hidden: torch.Tensor,
    ) -> None:
        """Keeps what a forward pass has computed of prompts that share rows.

        Args:
            prompts: (B, P) token ids, left-aligned, on the CPU.
            lengths: (B,) tokens per prompt.
            role: As of `find`.
            row_of: (B,) row of each prompt.
            columns: (B, P) column of each of its tokens.
            cache: The key-value cache after the pass, which had nothing in it.
            hidden: (R, T, hidden_size) last hidden states of the pass; of adapters none are kept, and any will do.
        """
        row = row_of[:, None].to(hidden.device)
        layers = [
            SimpleNamespace(
                keys=layer.keys[row, :, columns].transpose(1, 2), values=layer.values[row, :, columns].transpose(1, 2)
            )
            for layer in cache.layers
        ]
        own = hidden[row, columns] if role is None else hidden[:, :0]
        self.put(prompts, lengths, role, self.nothing(len(prompts)), SimpleNamespace(layers=layers), own)

    def put(
        self,
        prompts: torch.Tensor,
        lengths: torch.Tensor,
        role: Role,
        known: Prefixes,
        cache: Any,
        hidden: torch.Tensor,
        starts: Sequence[int] | None = None,
    ) -> None:
        """Keeps what a forward pass has computed.

        Args:
            prompts: (B, P) token ids, left-aligned, on the CPU.
            lengths: (B,) tokens per prompt.
            role: As of `find`.
            known: Result of `find` for them.
            cache: The key-value cache after the pass.
            hidden: (B, T, hidden_size) last hidden states of the pass; of adapters as of `put_packed`.
            starts: The column in which each prompt's rest begins in the pass; 0 by default.
        """
        width = known.mask.shape[1]
        layers = [(layer.keys, layer.values) for layer in cache.layers]
        if starts is not None:  # known and rest are brought together
            moved = torch.tensor(starts)
            layers = [(_closed(keys, width, moved), _closed(values, width, moved)) for keys, values in layers]
            column = (torch.arange(hidden.shape[1]) + moved[:, None]).clamp(max=hidden.shape[1] - 1)
            hidden = hidden.gather(1, column.to(hidden.device)[..., None].expand_as(hidden))
        places = {}
        with _LOCK:
            for row, (raw, count) in enumerate(zip(_texts(prompts, role), lengths.tolist(), strict=True)):
                before = int(known.lengths[row])
                for length in range(count // _STRIDE * _STRIDE, before, -_STRIDE):
                    key = raw[: _TOKEN_BYTES * (1 + length)]
                    if key in self._places or key in places:
                        break  # then its own beginnings are known, too
                    places[key] = _Place(self._number, row, width - before, length, length - before - 1)
            if places:
                totals = known.totals[:, None].to(hidden) + hidden.cumsum(1) if role is None else hidden[:, :0]
                self._keep(places, _Pass(layers, totals, list(places)))

    def _keep(self, places: Mapping[bytes, _Place], new: _Pass) -> None:
        self._places.update(places)
        self._passes[self._number] = new
        self._number += 1
        self.nbytes += new.nbytes
        caches = sorted(_OF_BASE[self._model.base], key=lambda cache: cache._used)
        excess = sum(cache.nbytes for cache in caches) - self._max_bytes
        for cache in caches:
            while excess > 0 and cache._passes:
                excess -= cache._forget_oldest()

    def _forget_oldest(self) -> int:
        """Forgets the pass used longest ago, and says how many bytes that were."""
        _, old = self._passes.popitem(last=False)
        self.nbytes -= old.nbytes
        for key in old.keys:
            del self._places[key]
        return old.nbytes


def _texts(prompts: torch.Tensor, role: Role) -> list[bytes]:
    """Prompts as bytes, the number of the adapter in front."""
    owners = role.owners if isinstance(role, Rows) else np.zeros(len(prompts))
    return [row.tobytes() for row in np.column_stack([owners, prompts.numpy()]).astype(np.int32)]


def _closed(array: torch.Tensor, width: int, starts: torch.Tensor) -> torch.Tensor:
    """Keys or values without the gap of `starts` columns behind the first `width`."""
    total = array.shape[2]
    column = torch.arange(total).repeat(len(starts), 1)
    column[:, width:] += starts[:, None]
    index = column.clamp(max=total - 1).to(array.device)[:, None, :, None]
    return array.gather(2, index.expand(-1, array.shape[1], -1, array.shape[3]))


def split_by_size(sizes: torch.Tensor, most_tokens: int) -> list[torch.Tensor]:
    """Splits rows into passes so that little is padding: the cheapest split of the rows sorted by size.

    A pass costs its rows times its longest one, and something for itself.

    Args:
        sizes: (B,) tokens of each row.
        most_tokens: Bound on rows times longest row; a longer row has a pass of its own.

    Returns:
        Row numbers of each pass.
    """
    order = torch.argsort(sizes, stable=True)
    values, counts = torch.unique(sizes, return_counts=True)  # ascending; cuts lie between different sizes
    longest, ends = values.clamp(min=1).tolist(), [0, *counts.cumsum(0).tolist()]
    best: list[tuple[float, int]] = [(0.0, 0)]
    for stop in range(1, len(ends)):
        best.append(
            min((best[k][0] + (ends[stop] - ends[k]) * longest[stop - 1] + _PASS_TOKENS, k) for k in range(stop))
        )
    parts: list[torch.Tensor] = []
    stop = len(ends) - 1
    while stop:
        begin = best[stop][1]
        parts += order[ends[begin] : ends[stop]].split(max(1, most_tokens // longest[stop - 1]))
        stop = begin
    return parts


def without(prompts: torch.Tensor, known: torch.Tensor) -> torch.Tensor:
    """The rests of left-aligned prompts behind what is known of each.

    Args:
        prompts: (B, P) token ids.
        known: (B,) tokens to leave out.
    """
    column = torch.arange(prompts.shape[1]) + known[:, None]
    padded = torch.nn.functional.pad(prompts, (0, 1), value=PAD)
    return padded.gather(1, column.clamp(max=prompts.shape[1]))


def common_length(prompts: torch.Tensor, lengths: torch.Tensor) -> int:
    """Tokens that all left-aligned prompts (B, P) have in common at their beginning; at least one of each is left."""
    common = int(lengths.min()) - 1
    differs = (prompts[:, :common] != prompts[:1, :common]).any(0).nonzero()
    return int(differs[0]) if len(differs) else common
