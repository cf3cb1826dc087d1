"""ROMA's agents: the role that each draws from what it sees makes its head (Wang et al. 2020, arXiv 2003.08039)."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from rllib_llm_comm.baselines.value.q_network import Memory, Unrolled
from rllib_llm_comm.baselines.value.q_settings import QSettings
from rllib_llm_comm.policies.narrow_linear import NarrowLinear

ROLES, ROLE_MEANS, ROLE_VARIANCES = "roles", "role_means", "role_variances"
INFERRED_MEANS, INFERRED_VARIANCES = "inferred_means", "inferred_variances"


class RoleAgents(nn.Module):
    """Roles rho_i ~ N(mu, var) of what an agent sees now; weights and bias of its values come from rho_i.

    While learning, a second network q infers the role from what the agent remembered before it saw, and from what it
    sees, for the loss. Without `recurrent` nothing is remembered: in the memory's place q sees the hidden layer of this
    very step, which is made of what the agent sees now and tells nothing more (ours; the authors' agents always
    remember). Batch normalisation counts rows of steps that were played only, and uses running statistics while acting.

    Attributes:
        memory_size: Length of what one agent remembers.
        difference: The network D of pairs of roles, for the loss.

    Args:
        settings: Widths.
        inputs: Length of an agent's input.
        actions: A.
    """

    def __init__(self, settings: QSettings, inputs: int, actions: int) -> None:
        super().__init__()
        self.settings, self.actions = settings, actions
        self.memory_size = width = settings.width
        role, between = settings.role_size, settings.role_width
        self.memory = Memory(inputs, width, settings.recurrent)
        self.encoder = _normed(inputs, between, 2 * role)
        self.inference = _normed(width + inputs, between, 2 * role, before=width)
        self.decoder = nn.Sequential(nn.Linear(role, between), nn.BatchNorm1d(between), nn.LeakyReLU())
        self.weight = nn.Linear(between, width * actions)
        self.bias = nn.Linear(between, actions)
        self.difference = nn.Sequential(nn.Linear(2 * role, between), nn.LeakyReLU(), nn.Linear(between, 1))

    def forward(
        self,
        inputs: torch.Tensor,
        memory: torch.Tensor,
        active: torch.Tensor | None = None,
        valid: torch.Tensor | None = None,
        sample: bool = True,
    ) -> Unrolled:
        """As of `PlainAgents.forward`; roles are drawn in a test, too. Beside: the roles and, while learning, what the
        loss needs of them, all (B, T, n, role_size)."""
        hidden, last = self.memory(inputs, memory, active)
        rows = None if valid is None else (valid[..., None] > 0).expand(inputs.shape[:3])
        means, variances = self._gaussian(self.encoder, inputs, rows)
        roles = means + variances.sqrt() * torch.randn_like(means)
        decoded = _where(self.decoder, roles, rows)
        weight = self.weight(decoded).unflatten(-1, (self.settings.width, self.actions))
        values = (hidden.unsqueeze(-1) * weight).sum(-2) + self.bias(decoded)
        more = {ROLES: roles}
        if self.training:
            before = _kept(memory, hidden, active) if self.settings.recurrent else hidden
            seen = torch.cat([before.detach(), inputs], -1)
            inferred = self._gaussian(self.inference, seen, rows)
            more.update({ROLE_MEANS: means, ROLE_VARIANCES: variances})
            more.update({INFERRED_MEANS: inferred[0], INFERRED_VARIANCES: inferred[1]})
        return Unrolled(values, last, more)

    def _gaussian(
        self, network: nn.Module, inputs: torch.Tensor, rows: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        means, logs = _where(network, inputs, rows).chunk(2, -1)
        return means, logs.exp().clamp(min=self.settings.role_variance_floor)


def _normed(inputs: int, between: int, outputs: int, before: int = 0) -> nn.Sequential:
    return nn.Sequential(
        NarrowLinear(inputs, between, before), nn.BatchNorm1d(between), nn.LeakyReLU(), nn.Linear(between, outputs)
    )


def _kept(memory: torch.Tensor, hidden: torch.Tensor, active: torch.Tensor | None) -> torch.Tensor:
    """Memories of agents before each step (B, T, n, H): the state of the last step in which they were asked.

    The states of other steps are only what would have been remembered.
    """
    states = torch.cat([memory.unsqueeze(1), hidden[:, :-1]], 1)
    if active is None:
        return states
    steps = torch.arange(states.shape[1], device=states.device)[:, None]
    # State t + 1 is that behind step t; state 0 is what there was before all steps.
    asked = functional.pad(active[:, :-1] != 0, (0, 0, 1, 0))
    latest = (steps * asked).cummax(1).values
    return states.gather(1, latest.unsqueeze(-1).expand_as(states))


def _where(network: nn.Module, inputs: torch.Tensor, rows: torch.Tensor | None) -> torch.Tensor:
    """A network's outputs in the rows that count (`None`: all), zeros in the others."""
    if rows is None:
        return network(inputs.flatten(0, 2)).unflatten(0, inputs.shape[:3])
    out = network(inputs[rows])
    whole = out.new_zeros(*rows.shape, out.shape[-1])
    whole[rows] = out
    return whole
