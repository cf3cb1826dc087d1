"""Pieces of the env-to-module connector: the newest observation of each agent, in a fixed order."""

from __future__ import annotations

from typing import Any

from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.rl_module import RLModule
from ray.rllib.env.multi_agent_episode import MultiAgentEpisode
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.utils.annotations import override


def newest_observation(single: SingleAgentEpisode) -> Any:
    """The same as `get_observations(-1)`; read straight from the list that an episode is while it is played.

    Args:
        single: One agent's episode with at least one observation.
    """
    seen = single.observations
    return single.get_observations(-1) if seen.finalized else seen.data[-1]


class AddObservationsInOrder(ConnectorV2):
    """Adds the newest observations of the agents that just stepped, sorted by agent within each episode.

    RLlib's own piece takes the agents from a set, whose order depends on the process' hash seed; the sampled
    actions (and so whole runs with one `seed`) would differ between processes. RLlib's piece leaves alone
    what it finds.
    """

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
