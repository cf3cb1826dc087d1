"""A trained policy of agents that value their actions, each by itself, to act with; needs no Ray and no mixer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field, model_validator
from typing_extensions import Self

from rllib_llm_comm.baselines.value.q_network import QSettings, QTeam, agent_inputs, open_values
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.settings import Several
from rllib_llm_comm.envs.interface import ACTION_MASK
from rllib_llm_comm.policies.array_policy import (
    MOST_SIZE,
    AgentRequest,
    ArrayMemory,
    ArrayPolicy,
    VectorRecord,
    flat,
    open_actions,
)

MEMORY, LAST, VALUES = "memory", "last_actions", "values"


class QRecord(QSettings, VectorRecord):
    """`model_config` in the policy folder of a team that learned by value decomposition."""

    agents: int = Field(ge=1, le=MOST_SIZE)
    """Number of agents."""
    state_size: Literal[0]
    """Of the mixer, which a policy folder has not."""
    team: Several[str]
    """Names of the agents."""
    choices: dict[str, Annotated[int, Field(ge=1)]]
    """Number of actions of each agent."""
    forms: dict[str, dict[str, Any]]
    """Form of each agent's observations (`form_of`)."""

    @model_validator(mode="after")
    def _tells_of_all_agents(self) -> Self:
        for setting in ("choices", "forms"):
            if not set(self.team) <= set(getattr(self, setting)) or len(self.team) != self.agents:
                raise UserError(f"`team` and `{setting}` must tell of {self.agents} agents; save it again.")
        if most := next((agent for agent in self.team if self.choices[agent] > self.actions), None):
            raise UserError(f"`choices.{most}` is {self.choices[most]} but there are {self.actions} `actions`.")
        return self


class QPolicy(ArrayPolicy):
    """Takes each agent's best open action; an episode's memory holds what the agents' networks remember.

    An agent that is asked needs nothing of the others: policies of a team may act in different processes.
    """

    draws = False

    @staticmethod
    def network_builder(settings: dict[str, Any]) -> Callable[[], QTeam]:
        """Makes a network from `model_config`."""
        told = QRecord.checked("model_config", settings)
        own = QSettings.from_attributes(told)
        return lambda: QTeam(own, told.size, told.actions, told.agents, told.state_size)

    def batch(self, asked: Sequence[AgentRequest]) -> dict[str, torch.Tensor]:
        """Values of all rows' actions and what is remembered behind them, which goes into the episodes' memories.

        Raises:
            UserError: If an agent was not in the team, an observation is not of its form, or a mask not one of its
                actions.
        """
        config = self.manifest.model_config
        size, actions, team = int(config["size"]), int(config["actions"]), list(config["team"])
        seen = np.zeros((len(asked), size), np.float32)
        for row, (agent, _, observation) in enumerate(asked):
            if agent not in team:
                raise UserError(f"agent {agent!r} was not in the team that was trained ({', '.join(team)}).")
            vector = flat(config["forms"][agent], observation, agent)
            seen[row, : vector.size] = vector
        masks = self.masks(asked)
        known = [memory.seen.get(agent) for agent, memory, _ in asked]
        width = self.network.agents.memory_size
        before = torch.stack([torch.zeros(width) if own is None else own[MEMORY] for own in known])
        last = torch.tensor([-1 if own is None else own[LAST] for own in known])
        who = self.network.ids[[team.index(agent) for agent, _, _ in asked]]
        inputs = agent_inputs(self.network.settings, torch.from_numpy(seen), last, actions, who)
        values, after = self._judge(inputs, before, asked)
        for row, (agent, memory, _) in enumerate(asked):
            memory.seen[agent] = {MEMORY: after[row], LAST: int(last[row])}
        return {VALUES: open_values(values, masks), ACTION_MASK: masks}

    def _judge(
        self, inputs: torch.Tensor, before: torch.Tensor, asked: Sequence[AgentRequest]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Values (B, A) and memories (B, M) of rows."""
        settings = self.network.settings
        draws = settings.kind == "roma" or (settings.kind == "ldsa" and settings.random_subtasks)
        # What is drawn comes from the row's own episode, so that it does not depend on the episodes beside it.
        parts = [[row] for row in range(len(asked))] if draws else [list(range(len(asked)))]
        values, memories = [], []
        for rows in parts:
            with torch.no_grad(), torch.random.fork_rng(devices=[], enabled=draws):
                if draws:
                    torch.manual_seed(int(asked[rows[0]][1].rng.integers(2**31)))
                out = self.network.agents(inputs[rows][None, None], before[rows][None], sample=False)
            values.append(out.values[0, 0])
            memories.append(out.memory[0])
        return torch.cat(values), torch.cat(memories)

    def probabilities(self, batch: Mapping[str, torch.Tensor]) -> np.ndarray:
        """One-hot (B, K): the best open action of each row. There is no chance in it, so sampling changes nothing."""
        best = batch[VALUES].argmax(-1)
        return torch.nn.functional.one_hot(best, batch[VALUES].shape[-1]).double().numpy()

    def values(self, asked: Sequence[AgentRequest], batch: dict[str, torch.Tensor]) -> Callable[[], list[float]]:
        """Each agent's own value of its best action, a part of the team's value that means little by itself."""
        return batch[VALUES].max(-1).values.tolist

    def keep(self, agent: str, memory: ArrayMemory, action: int) -> None:
        """Remembers an agent's action, which is an input of its next choice."""
        memory.seen[agent][LAST] = action

    def masks(self, asked: Sequence[AgentRequest]) -> torch.Tensor:
        """int8 (B, K): which actions are open, those of games without masks and of shorter lists of actions, too."""
        config = self.manifest.model_config
        rows = np.zeros((len(asked), int(config["actions"])), np.int8)
        for row, (agent, _, seen) in enumerate(asked):
            count = int(config["choices"][agent])
            rows[row, :count] = open_actions(seen, count, agent)
        return torch.from_numpy(rows)
