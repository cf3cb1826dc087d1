"""Decisions of a train batch: rows in a fixed order, with rewards and durations from their episodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import tree
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.core.columns import Columns
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.utils.typing import EpisodeType, ModuleID

from rllib_llm_comm.envs.interface import ACTION_MASK, DURATION, STEP_REWARDS
from rllib_llm_comm.language.packing import distinct_rows, trimmed
from rllib_llm_comm.rl.columns import CANDIDATE_IDS, PROMPT_IDS
from rllib_llm_comm.rl.gae import discounted_sum
from rllib_llm_comm.rl.minibatches import ROW_GROUP

RAW_ADVANTAGES = "raw_advantages"


def episodes_of_module(
    connector: ConnectorV2, episodes: list[EpisodeType], module_id: ModuleID
) -> list[SingleAgentEpisode]:
    """The single-agent episodes whose rows are in a module's batch, in the order of the batch.

    Args:
        connector: The connector that completes the batch.
        episodes: Those that it was called with.
        module_id: The module.
    """
    singles = connector.single_agent_episode_iterator(episodes, agents_that_stepped_only=False)
    return [single for single in singles if single.module_id in (None, module_id)]


def in_order(episodes: list[SingleAgentEpisode]) -> list[tuple[SingleAgentEpisode, int]]:
    """Episodes with the index of their first row, sorted by agent within each multi-agent episode.

    RLlib takes the agents of an episode from a set; in this order a batch is the same in every process.
    """
    numbers: dict[Any, int] = {}
    starts, start = [], 0
    for episode in episodes:
        number = numbers.setdefault(episode.multi_agent_episode_id, len(numbers))
        starts.append((number, str(episode.agent_id), start, episode))
        start += len(episode)
    return [(episode, start) for _, _, start, episode in sorted(starts, key=lambda entry: entry[:3])]


def rewards_of(episode: SingleAgentEpisode, gamma: float) -> tuple[np.ndarray, np.ndarray]:
    """Rewards of an agent's decisions, each discounted to its start, and their durations in game steps.

    Args:
        episode: With the row that was added for the state behind the last decision.
        gamma: Discount per game step.

    Returns:
        (T,) rewards and (T,) durations >= 1, float64.
    """
    count = len(episode) - 1
    # A copy: in this process the EnvRunner goes on counting the episode's own rewards.
    rewards = np.array(episode.get_rewards(slice(0, count)), np.float64)
    durations = np.ones(count, np.float64)
    # The info that came with the next observation tells about the decision before it.
    for t, info in enumerate(episode.get_infos(slice(1, count + 1))):
        if isinstance(info, Mapping):
            steps = info.get(STEP_REWARDS)
            durations[t] = max(1, int(info.get(DURATION, len(steps) if steps else 1)))
            if steps:
                rewards[t] = discounted_sum(steps, gamma)
    return rewards, durations


def decisions_only(
    module_batch: dict[str, Any], episodes: list[SingleAgentEpisode]
) -> tuple[dict[str, Any], torch.Tensor]:
    """A module's batch without the rows that were added behind last decisions, in the order of `in_order`.

    Args:
        module_batch: Columns with one row for each row of the episodes; may have `loss_mask`, which is dropped.
        episodes: Those of the module, each with its added row.

    Returns:
        The batch, with the column `row_group` where rows hold prompts, and the indices of the rows that are left.
    """
    count = sum(len(episode) for episode in episodes)
    found = len(tree.flatten(module_batch[Columns.OBS])[0])
    if count != found:
        raise RuntimeError(f"the batch has {found} rows, which is not the length of its episodes")
    rows = torch.as_tensor(
        np.concatenate([np.arange(start, start + len(episode) - 1) for episode, start in in_order(episodes)])
    )
    module_batch.pop(Columns.LOSS_MASK, None)
    kept: dict[str, Any] = tree.map_structure(
        lambda column: column[rows.to(column.device)] if isinstance(column, torch.Tensor) else column,
        module_batch,
    )
    if PROMPT_IDS in kept[Columns.OBS]:
        kept[ROW_GROUP] = _text_groups(kept[Columns.OBS])
    return kept, rows


def _text_groups(observations: dict[str, torch.Tensor]) -> torch.Tensor:
    # Rows that show the same prompt and candidates get the same number.
    columns = [trimmed(observations[name].cpu()).flatten(1).long() for name in (PROMPT_IDS, CANDIDATE_IDS, ACTION_MASK)]
    return distinct_rows(torch.cat(columns, dim=1))[1]
