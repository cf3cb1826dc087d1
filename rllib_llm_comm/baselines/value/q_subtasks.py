"""LDSA's agents: each chooses one of k learned subtasks by its ability (Yang et al. 2022, arXiv 2205.02561)."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from rllib_llm_comm.baselines.value.q_network import Memory, Unrolled
from rllib_llm_comm.baselines.value.q_settings import QSettings

SUBTASK_LOGITS = "subtask_logits"


class SubtaskAgents(nn.Module):
    """Values sum_j z_ij Q_ij, with z_i one-hot: the subtask j whose representation x_j fits the agent's ability e_i.

    x_j = tanh(MLP(one-hot j)); e_i is linear in a GRU's state of its own; z_i is drawn from softmax(e_i . x_j) by
    straight-through Gumbel-softmax while acting to learn and while learning, and is the most likely one in a test. The
    weights of Q_ij are linear in x_j, from which no gradient flows back, and stand on a second GRU.

    Attributes:
        memory_size: Length of what one agent remembers: both GRUs' states.

    Args:
        settings: Widths and number of subtasks.
        inputs: Length of an agent's input.
        actions: A.
    """

    def __init__(self, settings: QSettings, inputs: int, actions: int) -> None:
        super().__init__()
        self.settings, self.actions = settings, actions
        width, task = settings.width, settings.subtask_width
        self.memory_size = 2 * width
        self.ability_memory = Memory(inputs, width, settings.recurrent)
        self.ability = nn.Linear(width, task)
        self.memory = Memory(inputs, width, settings.recurrent)
        self.subtask = nn.Sequential(nn.Linear(settings.subtasks, task), nn.ReLU(), nn.Linear(task, task), nn.Tanh())
        self.weight = nn.Linear(task, width * actions)
        self.bias = nn.Linear(task, actions)
        self.register_buffer("names", torch.eye(settings.subtasks), persistent=False)

    def subtasks(self) -> torch.Tensor:
        """The representations x (k, subtask_width)."""
        representations: torch.Tensor = self.subtask(self.names)
        return representations

    def forward(
        self,
        inputs: torch.Tensor,
        memory: torch.Tensor,
        active: torch.Tensor | None = None,
        valid: torch.Tensor | None = None,
        sample: bool = True,
    ) -> Unrolled:
        """As of `PlainAgents.forward`, with `subtask_logits` (B, T, n, k) beside."""
        before = memory.chunk(2, -1)
        able, able_memory = self.ability_memory(inputs, before[0], active)
        hidden, hidden_memory = self.memory(inputs, before[1], active)
        tasks = self.subtasks()
        logits = self.ability(able) @ tasks.T
        fixed = tasks.detach()
        weight = self.weight(fixed).unflatten(-1, (self.settings.width, self.actions))
        each = torch.einsum("btnh,kha->btnka", hidden, weight) + self.bias(fixed)
        values = (each * self._choices(logits, sample).unsqueeze(-1)).sum(-2)
        return Unrolled(values, torch.cat([able_memory, hidden_memory], -1), {SUBTASK_LOGITS: logits})

    def _choices(self, logits: torch.Tensor, sample: bool) -> torch.Tensor:
        if self.settings.random_subtasks:
            drawn = torch.randint(logits.shape[-1], logits.shape[:-1], device=logits.device)
            return functional.one_hot(drawn, logits.shape[-1]).to(logits.dtype)
        if sample:
            return functional.gumbel_softmax(logits, tau=1.0, hard=True)
        return functional.one_hot(logits.argmax(-1), logits.shape[-1]).to(logits.dtype)
