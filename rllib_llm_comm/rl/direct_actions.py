"""RLlib's last steps from networks to games, which look every agent's episode up in a table.

RLlib's own pieces go through all episodes for every agent and every column: with a hundred games side by side that is
longer than the games themselves. Results are the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.connectors.module_to_env import ListifyDataForVectorEnv, UnBatchToIndividualItems
from ray.rllib.env.multi_agent_episode import MultiAgentEpisode
from ray.rllib.utils.annotations import override
from ray.rllib.utils.spaces.space_utils import unbatch


class UnBatchByTable(UnBatchToIndividualItems):
    """As RLlib's, for several agents."""

    @override(UnBatchToIndividualItems)
    def __call__(
        self, *, batch: dict[str, Any], episodes: list[Any], shared_data: dict[str, Any] | None = None, **kwargs: Any
    ) -> Any:
        """Gives every agent of every episode its own items."""
        memorized = (shared_data or {}).get("memorized_map_structure")
        if not isinstance(memorized, dict) or any(module_id not in memorized for module_id in batch):
            return super().__call__(batch=batch, episodes=episodes, shared_data=shared_data, **kwargs)
        renamed = (shared_data or {}).get("vector_env_episodes_map", {})
        known = {episode.id_: episode for episode in episodes}
        for module_id, columns in batch.items():
            keys = [(episode_id, agent, module_id) for episode_id, agent in memorized[module_id]]
            for episode_id, agent, _ in keys:
                episode = known.get(renamed.get(episode_id, episode_id))
                if episode is None or not _may_act(episode, agent):  # RLlib has the sentence
                    return super().__call__(batch=batch, episodes=episodes, shared_data=shared_data, **kwargs)
            for column, values in columns.items():
                items = list(values) if isinstance(values, np.ndarray) else unbatch(values)
                columns[column] = {key: [item] for key, item in zip(keys, items, strict=True)}
        return batch


def _may_act(episode: Any, agent: Any) -> bool:
    if not episode.agent_episodes or episode.is_done:
        return True
    single = episode.agent_episodes.get(agent)
    return single is not None and not single.is_done


class ListifyByTable(ListifyDataForVectorEnv):
    """As RLlib's, for several agents."""

    @override(ListifyDataForVectorEnv)
    def __call__(
        self, *, batch: dict[str, Any], episodes: list[Any], shared_data: dict[str, Any] | None = None, **kwargs: Any
    ) -> Any:
        """Makes a list of every column, with a dict by agent for every game."""
        if not isinstance(episodes[0], MultiAgentEpisode):
            return super().__call__(batch=batch, episodes=episodes, shared_data=shared_data, **kwargs)
        renamed = (shared_data or {}).get("old_episode_ids", {})
        numbers = {episode.id_: number for number, episode in enumerate(episodes)}
        for column, items in batch.items():
            listed: list[dict[Any, Any]] = [{} for _ in episodes]
            for (episode_id, agent, _), (item,) in items.items():
                listed[numbers.get(renamed.get(episode_id, episode_id), 0)][agent] = item
            batch[column] = listed
        return batch


BY_TABLE: dict[type[ConnectorV2], type[ConnectorV2]] = {
    UnBatchToIndividualItems: UnBatchByTable,
    ListifyDataForVectorEnv: ListifyByTable,
}
"""RLlib's piece -> ours that stands in its place."""
