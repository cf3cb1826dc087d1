"""Agents that value their actions, their memories, and choices by values; plain torch on [B, T, n, ...]."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import nn
from torch.nn import functional

from rllib_llm_comm.baselines.value.q_settings import QSettings
from rllib_llm_comm.policies.narrow_linear import NarrowLinear

CLOSED = -9999999.0  # value of an action that is not open, as of PyMARL


@dataclass
class Unrolled:
    """Values of a piece of an episode, and what agents remember behind it.

    Attributes:
        values: (B, T, n, A), one value per agent and action.
        memory: (B, n, M), what agents remember behind the last step.
        more: Tensors that only some kinds of agents have, by name, for their own losses.
    """

    values: torch.Tensor
    memory: torch.Tensor
    more: dict[str, torch.Tensor] = field(default_factory=dict)


def agent_inputs(
    settings: QSettings, seen: torch.Tensor, last_actions: torch.Tensor, actions: int, ids: torch.Tensor
) -> torch.Tensor:
    """The inputs of agents: what they see, then what they did last and who they are, where the settings say so.

    Args:
        settings: Of the network.
        seen: (..., n, size).
        last_actions: (..., n), whole numbers; -1 for none.
        actions: A, number of actions.
        ids: (n, N), the agents' numbers in the team, one-hot.
    """
    parts = [seen.float()]
    if settings.last_action:
        # One class more, for no action, which is cut off again.
        parts.append(functional.one_hot(last_actions.long() % (actions + 1), actions + 1)[..., :actions].float())
    if settings.agent_ids:
        parts.append(ids.expand(*seen.shape[:-1], ids.shape[-1]))
    return torch.cat(parts, -1)


class Memory(nn.Module):
    """A layer with ReLU and a GRU, or a second layer with ReLU where nothing is remembered.

    Args:
        inputs: Length of the input.
        width: Units.
        recurrent: True for the GRU.
    """

    def __init__(self, inputs: int, width: int, recurrent: bool = True) -> None:
        super().__init__()
        self.encode = NarrowLinear(inputs, width)
        self.gru = nn.GRU(width, width, batch_first=True) if recurrent else None
        self.layer = None if recurrent else nn.Linear(width, width)

    def forward(
        self, inputs: torch.Tensor, memory: torch.Tensor, active: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Hidden states (B, T, n, H) and the memory (B, n, H) behind the last step.

        Args:
            inputs: (B, T, n, size).
            memory: (B, n, H) of before; zeros where an episode begins.
            active: (B, T, n), false where an agent is not asked: what it remembers stays as it is. `None`: all are.
        """
        batch, steps, agents = inputs.shape[:3]
        encoded = torch.relu(self.encode(inputs))
        if self.gru is None:
            assert self.layer is not None
            return torch.relu(self.layer(encoded)), memory
        rows = encoded.transpose(1, 2).reshape(batch * agents, steps, -1)
        hidden = memory.reshape(1, batch * agents, -1).contiguous()
        if active is None or bool(active.all()):
            out, hidden = self.gru(rows, hidden)
        else:
            asked = active.bool().transpose(1, 2).reshape(batch * agents, steps, 1)
            parts, last = [], hidden[0]
            for step in range(steps):
                new = self.gru(rows[:, step : step + 1], last[None].contiguous())[0][:, 0]
                parts.append(new)
                last = torch.where(asked[:, step], new, last)
            out, hidden = torch.stack(parts, 1), last[None]
        shaped = out.reshape(batch, agents, steps, -1).transpose(1, 2)
        return shaped, hidden[0].reshape(batch, agents, -1)


class PlainAgents(nn.Module):
    """Agents that share a GRU and a linear layer of values (PyMARL's rnn_agent).

    Attributes:
        memory_size: Length of what one agent remembers.

    Args:
        settings: Width.
        inputs: Length of an agent's input.
        actions: A.
    """

    def __init__(self, settings: QSettings, inputs: int, actions: int) -> None:
        super().__init__()
        self.memory_size = settings.width
        self.memory = Memory(inputs, settings.width, settings.recurrent)
        self.head = nn.Linear(settings.width, actions)

    def forward(
        self,
        inputs: torch.Tensor,
        memory: torch.Tensor,
        active: torch.Tensor | None = None,
        valid: torch.Tensor | None = None,
        sample: bool = True,
    ) -> Unrolled:
        """Values of a piece of an episode.

        Args:
            inputs: (B, T, n, size).
            memory: (B, n, memory_size).
            active: As of `Memory.forward`.
            valid: (B, T), false where an episode has ended already; `None`: nowhere.
            sample: True while acting to learn and while learning; false in a test. Nothing is drawn here.
        """
        hidden, memory = self.memory(inputs, memory, active)
        return Unrolled(self.head(hidden), memory)


def open_values(values: torch.Tensor, masks: torch.Tensor) -> torch.Tensor:
    """Values (..., A) with `CLOSED` where an action is not open.

    Args:
        values: (..., A).
        masks: (..., A), 0 where an action is not open.
    """
    return values.masked_fill(masks == 0, CLOSED)


def epsilon_greedy(
    values: torch.Tensor, masks: torch.Tensor, epsilon: float, generator: torch.Generator | None = None
) -> torch.Tensor:
    """Actions (...): each agent's best one or, with a probability of `epsilon` for itself, a random open one.

    Args:
        values: (..., A).
        masks: (..., A), 0 where an action is not open.
        epsilon: In [0, 1].
        generator: Draws; `None` for torch's own.
    """
    greedy = open_values(values, masks).argmax(-1)
    if epsilon <= 0:
        return greedy
    flat = (masks != 0).float().reshape(-1, masks.shape[-1])
    drawn = torch.multinomial(flat, 1, generator=generator)[:, 0].reshape(greedy.shape)
    chance = torch.rand(greedy.shape, generator=generator, device=values.device)
    return torch.where(chance < epsilon, drawn, greedy)
