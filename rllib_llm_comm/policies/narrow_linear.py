"""Linear layers on inputs of which columns of zeros are left out."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

WORTH_IT = 0.75
"""Share of columns with anything in them above which leaving out the others is slower than it helps (ours)."""


class NarrowLinear(nn.Linear):
    """Linear layer that also takes inputs without the columns that hold zeros only.

    A zero adds nothing to an output, and its weight gets no gradient. So outputs and gradients are those of the whole
    input, up to the order of sums. The planes of an onion-soup kitchen leave four of five columns at zero for good.

    Attributes:
        columns: Indices (k,) of the columns that a narrow input has; `None` before the first.

    Args:
        inputs: Width of a whole input.
        outputs: Width of an output.
        before: Columns in front of the part of which some may be left out.
    """

    columns: torch.Tensor | None = None

    def __init__(self, inputs: int, outputs: int, before: int = 0) -> None:
        super().__init__(inputs, outputs)
        self.before = before

    def keep(self, columns: torch.Tensor, size: int) -> None:
        """Tells what narrow inputs have from here on.

        Args:
            columns: Indices (k,) of the columns that are left of the part.
            size: Width of the whole part.
        """
        behind = torch.arange(self.before + size, self.in_features, device=columns.device)
        front = torch.arange(self.before, device=columns.device)
        self.columns = torch.cat([front, columns + self.before, behind])

    def forward(self, seen: torch.Tensor) -> torch.Tensor:
        """Outputs (B, out) of inputs (B, in), or (B, k) of the columns in `columns`."""
        if self.columns is None or seen.shape[-1] == self.in_features:
            return super().forward(seen)
        return functional.linear(seen, self.weight.index_select(1, self.columns), self.bias)


def live_columns(seen: torch.Tensor) -> torch.Tensor | None:
    """Indices (k,) of the columns of a batch that are not zero in all rows; `None` where most columns are not.

    Args:
        seen: (..., size).
    """
    columns = seen.flatten(0, -2).any(0).nonzero()[:, 0]
    return None if len(columns) > WORTH_IT * seen.shape[-1] else columns


def take_columns(seen: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    """Some columns (..., k) of a batch (..., size), as floats.

    Args:
        seen: (..., size).
        columns: Their indices (k,).
    """
    # Of a matrix: of anything else torch takes columns slowly.
    rows = seen.reshape(-1, seen.shape[-1]).index_select(1, columns)
    return rows.float().reshape(*seen.shape[:-1], -1)


def without_zero_columns(seen: torch.Tensor, layers: list[NarrowLinear]) -> torch.Tensor:
    """A batch of inputs as floats without its columns of zeros; the layers that read it are told which are left.

    Args:
        seen: Inputs (B, in).
        layers: The layers that will read all or a part of its rows.

    Returns:
        (B, k), or the inputs as they are where most columns hold something.
    """
    columns = live_columns(seen)
    if columns is None:
        return seen
    for layer in layers:
        layer.keep(columns, seen.shape[1])
    return take_columns(seen, columns)
