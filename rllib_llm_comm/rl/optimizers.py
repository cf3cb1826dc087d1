"""Optimizers of adapters and critic."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

_EPSILON = 1e-5


def adamw(parameters: Iterable[torch.nn.Parameter], learning_rate: Any) -> torch.optim.AdamW:
    """AdamW without weight decay and with epsilon 1e-5 (TWOSOME; Verco is silent).

    Args:
        parameters: The trainable parameters.
        learning_rate: The first learning rate; of a schedule ([[step, rate], ...]) the first rate.
    """
    start = learning_rate if isinstance(learning_rate, int | float) else learning_rate[0][1]
    return torch.optim.AdamW(parameters, lr=float(start), eps=_EPSILON, weight_decay=0.0)


def annealed(learning_rate: float, done: int, total: int | None) -> float:
    """The learning rate after a part of the way, on a straight line to 0.

    Args:
        learning_rate: At the start.
        done: Decisions (or passes) so far.
        total: Decisions (or passes) until 0; `None` or 0 for a constant rate.
    """
    return learning_rate * max(0.0, 1.0 - done / total) if total else learning_rate
