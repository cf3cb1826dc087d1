"""Batches whose rows belong to different adapters on one base (multi-LoRA), for models of `llama.py`."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from rllib_llm_comm.language.llama import LlamaAdapter, Lora

_LONG_STRETCH = 32
"""Tokens per adapter of a batch from which on a CPU computes one adapter's products after the other's: a few large
products rather than a batch of small ones, whose rows would be copied into place."""
_MOST_SLOTS = 2
"""Slots per row up to which adapters' products are a batch, in which each adapter has as many slots as the busiest."""


class AdapterPool:
    """Adapters on one base, among which batches share out their rows.

    Attributes:
        prefixes: Keys and values of the prompts that they have read.

    Args:
        adapters: By number; `None` is the bare base.
        prefixes: An empty `PrefixCache`.
    """

    def __init__(self, adapters: Sequence[LlamaAdapter | None], prefixes: Any) -> None:
        self._adapters, self.prefixes = adapters, prefixes
        self._kept: tuple[Hashable, dict[int, dict[str, _Stack]]] | None = None

    def rows(self, owners: Any) -> Rows:
        """Rows (B,) of the adapters with these numbers."""
        return Rows(self, np.asarray(owners, np.int64))

    def stamp(self) -> Hashable:
        """Changes whenever one of the adapters does."""
        return tuple(None if one is None else one.stamp() for one in self._adapters)

    def lora(self, owners: np.ndarray, tokens: int, device: torch.device) -> Lora:
        """The adapters of rows that are sorted by owner; gradients flow through them where they are wanted.

        Args:
            owners: (B,) number of each row's adapter.
            tokens: Of all rows.
            device: Of the model.
        """
        if torch.is_grad_enabled():
            used, owners = np.unique(owners, return_inverse=True)
            stacks, count = _stacked([self._adapters[owner] for owner in used]), len(used)
        else:
            stamp = self.stamp()
            if self._kept is None or self._kept[0] != stamp:
                self._kept = (stamp, _stacked(self._adapters))
            stacks, count = self._kept[1], len(self._adapters)
        slots = _Slots.of(owners, count, tokens, device)
        return {
            layer: {name: _RowLora(stack, slots) for name, stack in projections.items()}
            for layer, projections in stacks.items()
        }


class Rows:
    """The adapter of each row of a batch; stands where the role of a whole batch does.

    Attributes:
        pool: The adapters.
        owners: (B,) number of each row's adapter.
    """

    def __init__(self, pool: AdapterPool, owners: np.ndarray) -> None:
        self.pool, self.owners = pool, owners

    def __getitem__(self, which: Any) -> Rows:
        """Those of some rows."""
        return Rows(self.pool, self.owners[which if isinstance(which, slice) else np.asarray(which)])

    @property
    def sorted(self) -> bool:
        """True if rows of one owner stand beside each other."""
        return len(np.flatnonzero(np.diff(self.owners))) < len(np.unique(self.owners))


Role = str | Rows | None
"""Who reads a batch: one adapter, one per row, or the bare base."""


def of_rows(role: Role, which: Any) -> Role:
    """The role of some rows of a batch."""
    return role[which] if isinstance(role, Rows) else role


# ---- products ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Slots:
    """Where the rows of each adapter stand in a batch.

    Attributes:
        stretches: Number of an adapter, its first row, and the row behind its last one.
        count: Number of adapters.
        rows: (count * n,) row of the batch that stands in each slot, n slots per adapter; `None` where rows fill them
            as they are.
        back: (B,) slot of each row.
        batched: Whether the adapters' products are one batch of products, and not one after the other.
    """

    stretches: tuple[tuple[int, int, int], ...]
    count: int
    rows: torch.Tensor | None
    back: torch.Tensor
    batched: bool

    @classmethod
    def of(cls, owners: np.ndarray, count: int, tokens: int, device: torch.device) -> _Slots:
        """The slots of rows (B,) that are sorted by adapter; other arguments as of `AdapterPool.lora`."""
        starts = np.flatnonzero(np.diff(owners, prepend=-1))
        ends = [*starts[1:].tolist(), len(owners)]
        stretches = tuple(zip(owners[starts].tolist(), starts.tolist(), ends, strict=True))
        room = max(end - start for _, start, end in stretches)
        rows, back = np.zeros(count * room, np.int64), np.zeros(len(owners), np.int64)
        for owner, start, end in stretches:
            back[start:end] = owner * room + np.arange(end - start)
        rows[back] = np.arange(len(owners))
        filled = len(back) == len(rows) and bool((back == np.arange(len(rows))).all())
        long = device.type == "cpu" and tokens >= _LONG_STRETCH * len(stretches)
        wasteful = len(rows) > _MOST_SLOTS * len(owners)
        as_they_are = None if filled else torch.from_numpy(rows).to(device)
        return cls(stretches, count, as_they_are, torch.from_numpy(back).to(device), not (long or wasteful))


@dataclass(frozen=True)
class _Stack:
    """LoRA's factors of several adapters for projections of one input.

    Attributes:
        a: Per adapter (inputs, total rank); in one array where there are no gradients.
        b: Per matrix of the projections and adapter scaled B (rank, outputs), as of `llama.LowRank`.
    """

    a: Sequence[torch.Tensor] | torch.Tensor
    b: tuple[Sequence[torch.Tensor] | torch.Tensor | None, ...]


def _stacked(adapters: Sequence[LlamaAdapter | None]) -> dict[int, dict[str, _Stack]]:
    """Adapters of one shape, by layer and name of the projections; `None` is the bare base."""
    loras = [None if one is None else one.low_rank() for one in adapters]
    shape: Lora = next((lora for lora in loras if lora is not None), {})
    graded = torch.is_grad_enabled()

    def stacked(like: torch.Tensor, own: Sequence[torch.Tensor | None]) -> Sequence[torch.Tensor] | torch.Tensor:
        arrays = [torch.zeros_like(like).T if one is None else one.T for one in own]
        return arrays if graded else torch.stack(arrays)

    found: dict[int, dict[str, _Stack]] = {}
    for layer, projections in shape.items():
        for name, first in projections.items():
            factors = [None if lora is None else lora[layer][name] for lora in loras]
            b = [
                None if like is None else stacked(like, [None if one is None else one.b[matrix] for one in factors])
                for matrix, like in enumerate(first.b)
            ]
            a = stacked(first.a, [None if one is None else one.a for one in factors])
            found.setdefault(layer, {})[name] = _Stack(a, tuple(b))
    return found


@dataclass(frozen=True)
class _RowLora:
    """Several adapters' products beside the weights, each for rows of its own."""

    stack: _Stack
    slots: _Slots

    def added(self, outs: Sequence[torch.Tensor], x: torch.Tensor) -> Sequence[torch.Tensor]:
        """The projections' outputs with those of each row's adapter added."""
        return self._in_a_batch(outs, x) if self.slots.batched else self._one_by_one(outs, x)

    def _one_by_one(self, outs: Sequence[torch.Tensor], x: torch.Tensor) -> Sequence[torch.Tensor]:
        own = [b for b in self.stack.b if b is not None]
        changed = [out for out, b in zip(outs, self.stack.b, strict=True) if b is not None]
        rows = [end - start for _, start, end in self.slots.stretches]
        stretches = zip(self.slots.stretches, x.split(rows), *(out.split(rows) for out in changed), strict=True)
        parts: list[list[torch.Tensor]] = []
        for (number, *_), read, *before in stretches:
            narrow = (read @ self.stack.a[number]).split([b[number].shape[0] for b in own], dim=-1)
            if torch.is_grad_enabled() or torch.is_autocast_enabled(x.device.type):
                parts.append([out + one @ b[number] for out, one, b in zip(before, narrow, own, strict=True)])
            else:  # into the outputs, which nobody else has
                for out, one, b in zip(before, narrow, own, strict=True):
                    out.flatten(0, -2).addmm_(one.flatten(0, -2), b[number])
        added = iter([torch.cat(part) for part in zip(*parts, strict=True)] if parts else changed)
        return [out if b is None else next(added) for out, b in zip(outs, self.stack.b, strict=True)]

    def _in_a_batch(self, outs: Sequence[torch.Tensor], x: torch.Tensor) -> Sequence[torch.Tensor]:
        slots = self.slots
        arrays = [array for array in (self.stack.a, *self.stack.b) if array is not None]
        a, *wide = [array if isinstance(array, torch.Tensor) else torch.stack(list(array)) for array in arrays]
        taken = x if slots.rows is None else x.index_select(0, slots.rows)
        narrow = torch.bmm(taken.reshape(slots.count, -1, x.shape[-1]), a).split([b.shape[1] for b in wide], dim=-1)
        parts = []
        for one, b in zip(narrow, wide, strict=True):
            part = torch.bmm(one, b).view(*taken.shape[:-1], -1)
            parts.append(part if slots.rows is None else part.index_select(0, slots.back))
        added = iter(parts)
        return [out if b is None else out + next(added) for out, b in zip(outs, self.stack.b, strict=True)]
