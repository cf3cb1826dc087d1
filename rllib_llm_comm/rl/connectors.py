"""Connectors between games and modules: newest observations in a fixed order; and RLlib's own pieces, quicker.

RLlib's last steps from networks to games look every agent's episode up in a table; here they do not.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from ray.rllib.connectors.common import BatchIndividualItems
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.connectors.module_to_env import ListifyDataForVectorEnv, UnBatchToIndividualItems
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModule
from ray.rllib.env.multi_agent_episode import MultiAgentEpisode
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.utils.annotations import override
from ray.rllib.utils.spaces.space_utils import batch, unbatch

MAILBOX = "rllib_llm_comm/mailbox"
"""Key of an episode's `custom_data`: the latest message of every agent."""
LATEST_VECTORS = "rllib_llm_comm/latest_vectors"
"""Key of an episode's `custom_data`: the latest vector of every agent."""

# ---- observations -----------------------------------------------------------------------------------------------


def newest_observation(single: SingleAgentEpisode) -> Any:
    """The same as `get_observations(-1)`; read straight from the list that an episode is while it is played.

    Args:
        single: One agent's episode with at least one observation.
    """
    seen = single.observations
    return single.get_observations(-1) if seen.finalized else seen.data[-1]


class ReplaceObservations(ConnectorV2):
    """A piece that replaces every agent's newest observation in the episodes, which stay small by it."""

    @abstractmethod
    def spaces(self, agents: Mapping[str, gym.Space], actions: Any) -> Mapping[str, gym.Space]:
        """The agents' spaces behind this piece, of those before it and of the space of their actions."""

    @abstractmethod
    def write(self, episode: MultiAgentEpisode, newest: list[tuple[Any, SingleAgentEpisode, Any]]) -> None:
        """Replaces what is new; `newest` has each agent with its part of the episode and its newest observation."""

    @override(ConnectorV2)
    def recompute_output_observation_space(
        self, input_observation_space: gym.Space, input_action_space: gym.Space
    ) -> gym.Space:
        """The agents' spaces behind this piece."""
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

    RLlib's own piece takes the agents from a set, whose order depends on the process' hash seed; the sampled
    actions (and so whole runs with one `seed`) would differ between processes. RLlib's piece leaves alone
    what it finds.
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


# ---- in place of RLlib's own ------------------------------------------------------------------------------------


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


class BatchByPart(BatchIndividualItems):
    """As RLlib's, for observations that are dicts of arrays: part by part, without a walk through each of them."""

    @override(BatchIndividualItems)
    def __call__(self, *, rl_module: Any, batch: dict[str, Any], **kwargs: Any) -> Any:
        """Batches the items of every column of every module."""
        for module_id in batch.keys() & rl_module.keys() if isinstance(rl_module, MultiRLModule) else ():
            for column, items in batch[module_id].items():
                if isinstance(items, list) and items and is_flat(items[0]):
                    batch[module_id][column] = batch_by_part(items)
        return super().__call__(rl_module=rl_module, batch=batch, **kwargs)


def is_flat(item: Any) -> bool:
    """True of a dict of arrays."""
    return type(item) is dict and all(isinstance(part, np.ndarray) for part in item.values())


def batch_by_part(items: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """What RLlib's `batch` makes of dicts of arrays.

    Args:
        items: At least one; all have the same parts.
    """
    return {
        name: batch([one[name] for one in items], individual_items_already_have_batch_dim="auto") for name in items[0]
    }


OWN_CONNECTORS: dict[type[ConnectorV2], Callable[[Any, Any], ConnectorV2]] = {
    BatchIndividualItems: partial(BatchByPart, multi_agent=True),
    UnBatchToIndividualItems: UnBatchByTable,
    ListifyDataForVectorEnv: ListifyByTable,
}
"""RLlib's connector -> what makes ours that replaces it, from the spaces in front of it."""


def with_own_connectors(pipeline: Any) -> Any:
    """Puts our connectors in the places of RLlib's.

    Args:
        pipeline: A pipeline of RLlib's for several agents, or `None`; it is changed in place.
    """
    for place, piece in enumerate(pipeline.connectors if pipeline is not None else ()):
        if make := OWN_CONNECTORS.get(type(piece)):
            pipeline.connectors[place] = make(piece.input_observation_space, piece.input_action_space)
    return pipeline
