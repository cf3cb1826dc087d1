"""Running statistics of returns, so that a critic learns targets of one size (MAPPO's ValueNorm)."""

from __future__ import annotations

import torch
from torch import nn

LEAST_VARIANCE = 1e-2


def moments(values: torch.Tensor) -> torch.Tensor:
    """Count, sum and sum of squares (3,) of values, in double precision; those of several parts can be added.

    Args:
        values: (B,), in units of reward.
    """
    exact = values.detach().double()
    return torch.stack([torch.full_like(exact.sum(), exact.numel()), exact.sum(), exact.square().sum()])


class ValueNorm(nn.Module):
    """Keeps mean and variance of returns as debiased exponential averages and converts values with them.

    After Yu et al. 2022 (arXiv 2103.01955), whose code averages mean m and mean square q with decay b from 0, divides
    both by 1 - b^n after n updates, and takes q - m^2, at least 0.01, as the variance. Here the same averages are kept
    in the debiased form and the variance itself in place of the mean square, so that returns far from 0 lose no digits.
    All numbers are buffers: they are in checkpoints and never touched by an optimizer.

    Args:
        beta: Decay per update, in [0, 1).
    """

    mean: torch.Tensor
    variance: torch.Tensor
    updates: torch.Tensor

    def __init__(self, beta: float = 0.99999) -> None:
        super().__init__()
        self.beta = beta
        self.register_buffer("mean", torch.zeros(()))
        self.register_buffer("variance", torch.zeros(()))
        self.register_buffer("updates", torch.zeros((), dtype=torch.int64))

    @property
    def std(self) -> torch.Tensor:
        """The standard deviation (), at least 0.1."""
        return self.variance.clamp(min=LEAST_VARIANCE).sqrt()

    @torch.no_grad()
    def update(self, batch: torch.Tensor) -> None:
        """Takes a batch of returns into account.

        Args:
            batch: Its `moments` (3,).
        """
        count, total, squares = batch.unbind()
        mean = total / count
        variance = (squares / count - mean.square()).clamp(min=0.0)
        self.updates += 1
        # The weight of the newest batch in a debiased average: 1 at first, 1 - beta in the long run.
        share = (1.0 - self.beta) / (1.0 - self.beta ** int(self.updates))
        shift = mean - self.mean
        self.variance.copy_((1.0 - share) * (self.variance + share * shift.square()) + share * variance)
        self.mean.copy_(self.mean + share * shift)

    def normalize(self, values: torch.Tensor) -> torch.Tensor:
        """Values (B,) in units of reward, as the critic is to say them."""
        return (values - self.mean) / self.std

    def denormalize(self, outputs: torch.Tensor) -> torch.Tensor:
        """Outputs of the critic (B,), in units of reward."""
        return outputs * self.std + self.mean
