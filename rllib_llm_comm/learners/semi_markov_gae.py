"""Learner connector: advantages for decisions of several game steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import torch
import tree
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis.value_function_api import ValueFunctionAPI
from ray.rllib.core.rl_module.rl_module import RLModule
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.evaluation.postprocessing import Postprocessing
from ray.rllib.utils.annotations import override
from ray.rllib.utils.typing import EpisodeType

from rllib_llm_comm.agents.encoding import CANDIDATE_IDS, PROMPT_IDS
from rllib_llm_comm.envs.interface import ACTION_MASK, DURATION, STEP_REWARDS
from rllib_llm_comm.language.packing import distinct_rows
from rllib_llm_comm.learners.gae import discounted_sum, semi_markov_gae
from rllib_llm_comm.learners.minibatches import TEXT_GROUP
from rllib_llm_comm.modules.llm_comm import CRITIC_FEATURES

RAW_ADVANTAGES = "raw_advantages"
LEAST_STD = 1e-4


class SemiMarkovGAE(ConnectorV2):
    """Adds advantages, value targets and old values to the train batch, and drops the rows made for
    bootstrapping.

    Replaces RLlib's `GeneralAdvantageEstimation` at the end of a learner pipeline that begins with
    `AddOneTsToEpisodesAndTruncate`. Four differences:

    * An agent's info may tell how many game steps its last decision took and what each paid (`duration`,
      `step_rewards`, as `ParallelEnvAdapter` does); discounting is per game step then. Without them a
      decision is one step.
    * The critic's frozen features are computed once, for every row by its own observation, so that the value
      of a final state is that of this state; they stay in the batch for the epochs.
    * Of a module with a `value_norm` (see `ValueNorm`) the old values in the batch stay normalised, as its critic
      says them; advantages and value targets are in units of reward.
    * Advantages are standardised over real decisions only, and only these stay in the batch, in an order that
      does not change between processes.
    """

    def __init__(
        self,
        input_observation_space: gym.Space | None = None,
        input_action_space: gym.Space | None = None,
        *,
        gamma: float = 0.99,
        lambda_: float = 0.95,
        keep_raw: bool = False,
        **kwargs: Any,
    ) -> None:
        """Sets the discount per game step and lambda per decision.

        With `keep_raw` the batch also gets the advantages in units of reward.
        """
        super().__init__(input_observation_space, input_action_space, **kwargs)
        self.gamma = gamma
        self.lambda_ = lambda_
        self.keep_raw = keep_raw

    @override(ConnectorV2)
    def __call__(
        self,
        *,
        rl_module: RLModule,
        batch: dict[str, Any],
        episodes: list[EpisodeType],
        explore: bool | None = None,
        shared_data: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Completes the batch of every module that has a critic."""
        singles = list(self.single_agent_episode_iterator(episodes, agents_that_stepped_only=False))
        for module_id in list(batch):
            module = rl_module[module_id].unwrapped()
            if isinstance(module, ValueFunctionAPI):
                own = [single for single in singles if single.module_id in (None, module_id)]
                batch[module_id] = self._complete(module, batch[module_id], own)
        return batch

    def _complete(
        self, module: Any, module_batch: dict[str, Any], episodes: list[SingleAgentEpisode]
    ) -> dict[str, Any]:
        with torch.no_grad():
            if hasattr(module, "critic_features"):
                module_batch[CRITIC_FEATURES] = module.critic_features(module_batch)
            predictions, outputs = _judgements(module, module_batch)
        values = predictions.float().cpu().numpy()
        advantages, targets = [], []
        for episode, start in in_order(episodes):
            rewards, durations = rewards_of(episode, self.gamma)
            advantage, target = semi_markov_gae(
                rewards,
                durations,
                values[start : start + len(rewards) + 1],
                bool(episode.is_terminated),
                self.gamma,
                self.lambda_,
            )
            advantages.append(advantage)
            targets.append(target)
        kept, rows = decisions_only(module_batch, episodes)
        joined = np.concatenate(advantages)
        if self.keep_raw:
            kept[RAW_ADVANTAGES] = torch.as_tensor(joined, device=predictions.device)
        joined = (joined - joined.mean()) / max(LEAST_STD, float(joined.std()))
        kept[Postprocessing.ADVANTAGES] = torch.as_tensor(joined, device=predictions.device)
        kept[Postprocessing.VALUE_TARGETS] = torch.as_tensor(np.concatenate(targets), device=predictions.device)
        kept[Columns.VF_PREDS] = outputs[rows.to(outputs.device)]
        return kept


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
        The batch, with the column `text_group` where rows hold prompts, and the indices of the rows that are left.
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
        kept[TEXT_GROUP] = _text_groups(kept[Columns.OBS])
    return kept, rows


def _judgements(module: Any, batch: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """Values (B,) in units of reward, and what the critic itself says."""
    if getattr(module, "value_norm", None) is None:
        values = module.compute_values(batch)
        return values, values
    outputs = module.critic_outputs(batch)
    return module.value_norm.denormalize(outputs), outputs


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


def _text_groups(observations: dict[str, torch.Tensor]) -> torch.Tensor:
    # Rows that show the same prompt and candidates get the same number.
    columns = [observations[name].flatten(1).long().cpu() for name in (PROMPT_IDS, CANDIDATE_IDS, ACTION_MASK)]
    return distinct_rows(torch.cat(columns, dim=1))[1]
