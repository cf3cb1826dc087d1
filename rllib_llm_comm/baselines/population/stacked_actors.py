"""The actors of several small networks of one shape in one pass: many little products cost more than a batched one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np
import torch
from torch import nn


class StackedActors:
    """Logits of rows that belong to different numeric networks.

    Plain MLPs of one shape and activation are computed together, each row by its own network's weights; others, such as
    those with layer norms, in a pass each. The logits are those of each network alone up to rounding.

    Args:
        actors: The actor of each row's network; the same object for rows of one network.
    """

    def __init__(self, actors: Sequence[nn.Sequential]) -> None:
        rows: dict[int, list[int]] = {}
        for row, actor in enumerate(actors):
            rows.setdefault(id(actor), []).append(row)
        owned = [(actors[own[0]], own) for own in rows.values()]
        owned.sort(key=lambda one: _shape(one[0]))
        self._parts = [_Part(list(alike)) for _, alike in groupby(owned, key=lambda one: _shape(one[0]))]
        self._count = len(actors)

    def logits(self, seen: torch.Tensor) -> np.ndarray:
        """Logits (B, K), a row for each given actor.

        Args:
            seen: (B, V) float32.
        """
        out = np.zeros((0, 0), np.float32)
        for part in self._parts:
            for rows, logits in part.run(seen):
                if not out.size:
                    out = np.zeros((self._count, logits.shape[-1]), np.float32)
                out[rows] = logits.numpy()
        return out


class _Part:
    """Networks of one shape, each with the rows that are its own."""

    def __init__(self, owned: list[tuple[nn.Sequential, list[int]]]) -> None:
        self._owned = [(actor, np.array(rows)) for actor, rows in owned]
        layers = list(owned[0][0])
        self._stacked = len(owned) > 1 and all(isinstance(one, nn.Linear | nn.ReLU | nn.Tanh) for one in layers)
        if not self._stacked:
            return
        widest = max(len(rows) for _, rows in owned)
        padded = [[*rows, *[rows[0]] * (widest - len(rows))] for _, rows in owned]
        self._table, self._rows = torch.tensor(padded), np.array(padded)
        self._layers: list[Any] = [
            _stack([actor[place] for actor, _ in owned]) if isinstance(layer, nn.Linear) else layer
            for place, layer in enumerate(layers)
        ]

    def run(self, seen: torch.Tensor) -> list[tuple[np.ndarray, torch.Tensor]]:
        """Rows and their logits; padding repeats a row with its own logits."""
        if not self._stacked:
            return [(rows, actor(seen[rows])) for actor, rows in self._owned]
        hidden = seen[self._table]
        for layer in self._layers:
            hidden = torch.baddbmm(layer[1], hidden, layer[0]) if isinstance(layer, tuple) else layer(hidden)
        return [(self._rows, hidden)]


def _stack(layers: Sequence[Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights (P, in, out) and biases (P, 1, out)."""
    weights = torch.stack([layer.weight.detach() for layer in layers]).transpose(1, 2).contiguous()
    return weights, torch.stack([layer.bias.detach() for layer in layers])[:, None]


def _shape(actor: nn.Sequential) -> str:
    return str(actor)
