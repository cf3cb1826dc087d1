"""Env-to-module connector: maps of symbols, manuals and subgoals become the arrays that EMMA's network reads."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.core.rl_module.rl_module import RLModule
from ray.rllib.env.multi_agent_episode import MultiAgentEpisode
from ray.rllib.utils.annotations import override

from rllib_llm_comm.language.text_encoder import load_text_encoder
from rllib_llm_comm.policies.numeric_network import CRITIC_STATE
from rllib_llm_comm.rl.newest_observation import newest_observation
from rllib_llm_comm.sama.emma.inputs import ENTITIES, EmmaEncoder, emma_space
from rllib_llm_comm.sama.emma.settings import EmmaSettings

EARLIER_FRAMES = "rllib_llm_comm/earlier_frames"


class EmmaObservations(ConnectorV2):
    """Replaces every new observation by what `EmmaEncoder` makes of it.

    Input: multi-agent episodes whose newest observations are dicts with `entities`, `manual` and `subgoal`, and
    optionally `action_mask` and `state`. The earlier maps of an agent travel in the episode's `custom_data` and so
    survive the cuts between roll-out fragments.

    Args:
        input_observation_space: Dict of the agents' observation spaces.
        input_action_space: Dict of the agents' Discrete spaces.
        settings: The network's settings.

    Raises:
        UserError: If the spaces do not hold what is needed.
    """

    def __init__(
        self,
        input_observation_space: gym.Space | None = None,
        input_action_space: gym.Space | None = None,
        *,
        settings: EmmaSettings,
        **kwargs: Any,
    ) -> None:
        self._settings = settings
        self._encoder = EmmaEncoder(load_text_encoder(settings.text_encoder), settings)
        super().__init__(input_observation_space, input_action_space, **kwargs)

    @override(ConnectorV2)
    def recompute_output_observation_space(
        self, input_observation_space: gym.Space, input_action_space: gym.Space
    ) -> gym.Space:
        """The agents' spaces as arrays."""
        if not isinstance(input_observation_space, gym.spaces.Dict):
            return input_observation_space
        return gym.spaces.Dict(
            {
                agent: emma_space(agent, space, input_action_space[agent], self._settings)  # type: ignore[index]
                for agent, space in input_observation_space.spaces.items()
            }
        )

    @override(ConnectorV2)
    def __call__(
        self,
        *,
        rl_module: RLModule,
        batch: dict[str, Any],
        episodes: list[MultiAgentEpisode],
        explore: bool | None = None,
        shared_data: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Writes the arrays into the episodes."""
        for episode in episodes:
            earlier = episode.custom_data.setdefault(EARLIER_FRAMES, {})
            for agent, single in episode.agent_episodes.items():
                if not len(single.observations):
                    continue
                seen = newest_observation(single)
                if ENTITIES not in seen:  # arrays already
                    continue
                space = self.observation_space[agent]
                frames = earlier.setdefault(str(agent), [])
                arrays = self._encoder.encode(seen, frames, CRITIC_STATE in space.spaces)
                single.set_observations(at_indices=-1, new_data=arrays)
                single.observation_space = space
                frames.append(np.array(seen[ENTITIES]))
                del frames[: -self._settings.frames]
        return batch
