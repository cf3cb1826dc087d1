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
    """

    columns: torch.Tensor | None = None

    def forward(self, seen: torch.Tensor) -> torch.Tensor:
        """Outputs (B, out) of inputs (B, in), or (B, k) of the columns in `columns`."""
        if self.columns is None or seen.shape[-1] == self.in_features:
            return super().forward(seen)
        return functional.linear(seen, self.weight.index_select(1, self.columns), self.bias)


def without_zero_columns(seen: torch.Tensor, layers: list[NarrowLinear]) -> torch.Tensor:
    """A batch of inputs as floats without its columns of zeros; the layers that read it are told which are left.

    Args:
        seen: Inputs (B, in).
        layers: The layers that will read all or a part of its rows.

    Returns:
        (B, k), or the inputs as they are where most columns hold something.
    """
    columns = seen.any(0).nonzero()[:, 0]
    if len(columns) > WORTH_IT * seen.shape[1]:
        return seen
    for layer in layers:
        layer.columns = columns
    return seen.index_select(1, columns).float()
