"""Env-to-module connector: of MiniRTS observations only the part that officers read goes on."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.core.rl_module.rl_module import RLModule
from ray.rllib.env.multi_agent_episode import MultiAgentEpisode
from ray.rllib.utils.annotations import override

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.minirts.view.officer_view import officer_spaces
from rllib_llm_comm.rl.newest_observation import newest_observation

_PARTS = tuple(officer_spaces())


class OfficerObservations(ConnectorV2):
    """Replaces every new observation by its arrays of `officer_view`, so that episodes stay small.

    Raises:
        UserError: If the spaces do not hold them.
    """

    @override(ConnectorV2)
    def recompute_output_observation_space(
        self, input_observation_space: gym.Space, input_action_space: gym.Space
    ) -> gym.Space:
        """The agents' spaces without the other parts."""
        if not isinstance(input_observation_space, gym.spaces.Dict):
            return input_observation_space
        return gym.spaces.Dict(
            {agent: _officer_space(agent, space) for agent, space in input_observation_space.spaces.items()}
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
            for agent, single in episode.agent_episodes.items():
                if not len(single.observations):
                    continue
                seen = newest_observation(single)
                if len(seen) == len(_PARTS):
                    continue
                single.set_observations(at_indices=-1, new_data={name: seen[name] for name in _PARTS})
                single.observation_space = self.observation_space[agent]
        return batch


def _officer_space(agent: Any, space: gym.Space) -> gym.spaces.Dict:
    parts = space.spaces if isinstance(space, gym.spaces.Dict) else {}
    if missing := [name for name in _PARTS if name not in parts]:
        raise UserError(
            f"the observations of {agent!r} have no `{missing[0]}`, which officers act on; use MiniRTS with "
            "`action_level: red` and `observe: [officer]`."
        )
    return gym.spaces.Dict({name: parts[name] for name in _PARTS})
