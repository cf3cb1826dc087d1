"""Mixers: from the values of a team's agents to the value of what they do together."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from rllib_llm_comm.baselines.value.q_settings import ALONE, VDN, QSettings
from rllib_llm_comm.policies.narrow_linear import NarrowLinear


class Alone(nn.Module):
    """Leaves each agent's value as it is: independent Q-learning."""

    def forward(self, values: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        """Values (..., n) of the agents, unchanged."""
        return values


class Sum(nn.Module):
    """The sum of the agents' values (VDN, Sunehag et al. 2017, arXiv 1706.05296)."""

    def forward(self, values: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        """Sums (..., 1) of the values (..., n)."""
        return values.sum(-1, keepdim=True)


class MonotoneMixer(nn.Module):
    """Q_tot = |w2(s)|^T elu(|W1(s)| Q + b1(s)) + V(s): it grows with each Q_i (QMIX, Rashid et al. 2018).

    So the joint greedy action is that of the agents alone. W1 and w2 come from hypernetworks of the state, b1 from a
    linear layer, V from a layer of `mixing_width` units with ReLU and a linear one.

    Args:
        settings: Widths.
        agents: n.
        state_size: Length of the state.
    """

    def __init__(self, settings: QSettings, agents: int, state_size: int) -> None:
        super().__init__()
        self.agents, self.width = agents, settings.mixing_width
        self.first_weight = _hypernet(settings, state_size, agents * self.width)
        self.first_bias = NarrowLinear(state_size, self.width)
        self.last_weight = _hypernet(settings, state_size, self.width)
        self.last_bias = nn.Sequential(NarrowLinear(state_size, self.width), nn.ReLU(), nn.Linear(self.width, 1))

    def forward(self, values: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        """Team values (..., 1).

        Args:
            values: (..., n).
            states: (..., state_size).
        """
        first = self.first_weight(states).abs().unflatten(-1, (self.agents, self.width))
        hidden = functional.elu((values.unsqueeze(-1) * first).sum(-2) + self.first_bias(states))
        mixed = (hidden * self.last_weight(states).abs()).sum(-1, keepdim=True)
        total: torch.Tensor = mixed + self.last_bias(states)
        return total


def _hypernet(settings: QSettings, inputs: int, outputs: int) -> nn.Module:
    if settings.hypernet_layers == 1:
        return NarrowLinear(inputs, outputs)
    width = settings.hypernet_width
    return nn.Sequential(NarrowLinear(inputs, width), nn.ReLU(), nn.Linear(width, outputs))


def build_mixer(settings: QSettings, agents: int, state_size: int) -> nn.Module:
    """The mixer of the settings.

    Args:
        settings: Name and widths.
        agents: Number of agents.
        state_size: Length of the state.
    """
    if settings.mixer == ALONE:
        return Alone()
    return Sum() if settings.mixer == VDN else MonotoneMixer(settings, agents, state_size)
