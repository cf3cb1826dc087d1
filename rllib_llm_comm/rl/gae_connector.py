"""Learner connector: advantages for decisions of several game steps."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis.value_function_api import ValueFunctionAPI
from ray.rllib.core.rl_module.rl_module import RLModule
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.evaluation.postprocessing import Postprocessing
from ray.rllib.utils.annotations import override
from ray.rllib.utils.typing import EpisodeType

from rllib_llm_comm.rl.columns import CRITIC_FEATURES
from rllib_llm_comm.rl.decision_rows import (
    RAW_ADVANTAGES,
    decisions_only,
    episodes_of_module,
    in_order,
    rewards_of,
)
from rllib_llm_comm.rl.gae import semi_markov_gae, standardized


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
    * Of a module with a `value_norm` (`ValueNorm`) the old values in the batch stay normalised, as its critic
      says them; advantages and value targets are in units of reward.
    * Advantages are standardised over real decisions only (divided by `floor` at least), and only these stay in the
      batch, in an order that does not change between processes.
    """

    def __init__(
        self,
        input_observation_space: gym.Space | None = None,
        input_action_space: gym.Space | None = None,
        *,
        gamma: float = 0.99,
        lambda_: float = 0.95,
        keep_raw: bool = False,
        floor: float = 0.0,
        **kwargs: Any,
    ) -> None:
        """Sets the discount per game step and lambda per decision.

        With `keep_raw` the batch also gets the advantages in units of reward. They are divided by their standard
        deviation, or by `floor` where that is larger.
        """
        super().__init__(input_observation_space, input_action_space, **kwargs)
        self.gamma = gamma
        self.lambda_ = lambda_
        self.keep_raw = keep_raw
        self.floor = floor

    @override(ConnectorV2)
    def __call__(
        self,
        *,
        rl_module: RLModule,
        batch: dict[str, Any],
        episodes: list[EpisodeType],
        metrics: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Completes the batch of every module that has a critic."""
        for module_id in list(batch):
            module = rl_module[module_id].unwrapped()
            if isinstance(module, ValueFunctionAPI):
                own = episodes_of_module(self, episodes, module_id)
                batch[module_id], std = self._complete(module, batch[module_id], own)
                if metrics is not None:
                    metrics.log_value((module_id, "advantage_std"), std, window=1)
        return batch

    def _complete(
        self, module: Any, module_batch: dict[str, Any], episodes: list[SingleAgentEpisode]
    ) -> tuple[dict[str, Any], float]:
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
        kept[Postprocessing.ADVANTAGES] = torch.as_tensor(standardized(joined, self.floor), device=predictions.device)
        kept[Postprocessing.VALUE_TARGETS] = torch.as_tensor(np.concatenate(targets), device=predictions.device)
        kept[Columns.VF_PREDS] = outputs[rows.to(outputs.device)]
        return kept, float(joined.std())


def _judgements(module: Any, batch: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """Values (B,) in units of reward, and what the critic itself says."""
    if getattr(module, "value_norm", None) is None:
        values = module.compute_values(batch)
        return values, values
    outputs = module.critic_outputs(batch)
    return module.value_norm.denormalize(outputs), outputs
