"""A trained policy of agents that see numbers, to act with; needs no Ray."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from pydantic import Field

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.settings import Several
from rllib_llm_comm.envs.interface import ACTION_MASK
from rllib_llm_comm.policies.array_policy import (
    MOST_SIZE,
    AgentRequest,
    ArrayMemory,
    ArrayPolicy,
    Observation,
    VectorRecord,
)
from rllib_llm_comm.policies.numeric_network import (
    CRITIC_STATE,
    STATE,
    TEAM_VECTORS,
    VECTOR,
    NumericNetwork,
    NumericSettings,
    team_vectors,
)


class NumericRecord(NumericSettings, VectorRecord):
    """`model_config` in the policy folder of agents that see numbers."""

    critic_size: int | None = Field(None, ge=1, le=MOST_SIZE)
    """Length of what a central critic reads; None where it sees what the actor sees."""
    team: Several[str] = ()
    """Names of the team whose vectors are read, sorted."""


class NumericPolicy(ArrayPolicy):
    """Acts by numeric vectors; an episode's memory holds the vector (V,) that each agent saw last."""

    @staticmethod
    def network_builder(settings: dict[str, Any]) -> Callable[[], NumericNetwork]:
        """Makes a network from `model_config`."""
        told = NumericRecord.checked("model_config", settings)
        own = NumericSettings.from_attributes(told)
        return lambda: NumericNetwork(own, told.size, told.actions, told.critic_size)

    @property
    def needs_the_team(self) -> bool:
        """True of CommNet's networks."""
        return bool(self.network.settings.hears)

    def batch(self, asked: Sequence[AgentRequest]) -> dict[str, torch.Tensor]:
        """The vectors of all rows, or those of their teams.

        Raises:
            UserError: If an observation has no `vector`, or one of another length.
        """
        size = int(self.manifest.model_config["size"])
        for agent, memory, seen in asked:
            if VECTOR not in seen:
                raise UserError(f"the observation of {agent!r} has no `{VECTOR}`, which this policy acts on.")
            memory.seen[agent] = np.array(seen[VECTOR], np.float32).reshape(-1)
            if memory.seen[agent].size != size:
                raise UserError(
                    f"the `{VECTOR}` of {agent!r} has {memory.seen[agent].size} numbers but this policy was trained "
                    f"with {size}; play the game with the settings of its training."
                )
        batch = {ACTION_MASK: self.masks(asked)}
        if self.network.settings.hears:
            batch[TEAM_VECTORS] = torch.from_numpy(np.stack([self._team(agent, memory) for agent, memory, _ in asked]))
        else:
            batch[VECTOR] = torch.from_numpy(np.stack([memory.seen[agent] for agent, memory, _ in asked]))
        return batch

    def values(self, asked: Sequence[AgentRequest], batch: dict[str, torch.Tensor]) -> Callable[[], list[float]]:
        """Values of all rows; NaN where a central critic is not told all that it needs, which acting does not need."""
        name = self.network.settings.critic_input
        if name in batch:
            return super().values(asked, batch)
        size = int(self.manifest.model_config["critic_size"])
        seen = [self._central(*row) for row in asked]
        told = np.array([view.size == size for view in seen])
        filled = [view if view.size == size else np.zeros(size, np.float32) for view in seen]
        batch = {name: torch.from_numpy(np.stack([view.reshape(-1) for view in filled]))}
        return lambda: np.where(told, self.network.values(batch).numpy(), np.nan).tolist()

    def _central(self, agent: str, memory: ArrayMemory, seen: Observation) -> np.ndarray:
        if self.network.settings.critic_input == CRITIC_STATE:
            return np.asarray(seen.get(STATE, ()), np.float32)
        return self._team(agent, memory)

    def _team(self, agent: str, memory: ArrayMemory) -> np.ndarray:
        """The vectors of the team of the training, zeros for those who are still to come."""
        trained = self.manifest.model_config.get("team", ())
        # Another team than that of the training is the agents that have been seen.
        team = list(trained) if memory.seen.keys() <= set(trained) else sorted(memory.seen)
        return team_vectors(agent, team, memory.seen)
