"""Rows of one batch that belong to different adapters on one base."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import torch

from rllib_llm_comm.language.llama import LlamaAdapter, Lora, Places, placed, stacked


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
        self._kept: tuple[Hashable, Lora] | None = None

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
            stacks = stacked([self._adapters[owner] for owner in used])
            return placed(stacks, Places.of(owners, len(used), tokens, device))
        stamp = self.stamp()
        if self._kept is None or self._kept[0] != stamp:
            self._kept = (stamp, stacked(self._adapters))
        return placed(self._kept[1], Places.of(owners, len(self._adapters), tokens, device))


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


def owners_of(role: Role) -> np.ndarray | None:
    """Number of each row's adapter; `None` where one role is that of all."""
    return role.owners if isinstance(role, Rows) else None
