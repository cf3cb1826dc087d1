"""Connectors between games and modules: newest observations, replaced and in a fixed order."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.core.columns import Columns
from ray.rllib.env.multi_agent_episode import MultiAgentEpisode
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.utils.annotations import override

MAILBOX = "rllib_llm_comm/mailbox"
"""Key of an episode's `custom_data`: the latest message of every agent."""
LATEST_VECTORS = "rllib_llm_comm/latest_vectors"
"""Key of an episode's `custom_data`: the latest vector of every agent."""


def newest_observation(single: SingleAgentEpisode) -> Any:
    """The same as `get_observations(-1)`; read straight from the list that an episode is while it is played.

    Args:
        single: One agent's episode with at least one observation.
    """
    seen = single.observations
    return single.get_observations(-1) if seen.finalized else seen.data[-1]


class ReplaceObservations(ConnectorV2):
    """A connector that replaces every agent's newest observation in the episodes, which stay small by it."""

    @abstractmethod
    def spaces(self, agents: Mapping[str, gym.Space], actions: Any) -> Mapping[str, gym.Space]:
        """The agents' spaces behind this connector, of those before it and of the space of their actions."""

    @abstractmethod
    def write(self, episode: MultiAgentEpisode, newest: list[tuple[Any, SingleAgentEpisode, Any]]) -> None:
        """Replaces what is new; `newest` has each agent with its part of the episode and its newest observation."""

    @override(ConnectorV2)
    def recompute_output_observation_space(
        self, input_observation_space: gym.Space, input_action_space: gym.Space
    ) -> gym.Space:
        """The agents' spaces behind this connector."""
        if not isinstance(input_observation_space, gym.spaces.Dict):
            return input_observation_space
        return gym.spaces.Dict({**self.spaces(input_observation_space.spaces, input_action_space)})

    @override(ConnectorV2)
    def __call__(self, *, batch: dict[str, Any], episodes: list[MultiAgentEpisode], **kwargs: Any) -> Any:
        """Writes into the episodes; the batch stays as it is."""
        for episode in episodes:
            parts = episode.agent_episodes.items()
            self.write(episode, [(a, part, newest_observation(part)) for a, part in parts if len(part.observations)])
        return batch


class AddObservationsInOrder(ConnectorV2):
    """Adds the newest observations of the agents that just stepped, sorted by agent within each episode.

    RLlib's own connector takes the agents from a set, whose order depends on the process' hash seed; the sampled
    actions (and so whole runs with one `seed`) would differ between processes. RLlib's leaves alone what it finds.
    """

    @override(ConnectorV2)
    def __call__(self, *, batch: dict[str, Any], episodes: list[MultiAgentEpisode], **kwargs: Any) -> Any:
        """Fills the observation column."""
        if Columns.OBS in batch:
            return batch
        seen: dict[Any, list[Any]] = {}
        for episode in episodes:
            for agent in sorted(episode.get_agents_that_stepped(), key=str):
                single = episode.agent_episodes[agent]
                key = (single.multi_agent_episode_id, single.agent_id, single.module_id)
                seen.setdefault(key, []).append(newest_observation(single))
        if seen:
            batch[Columns.OBS] = seen
        return batch
