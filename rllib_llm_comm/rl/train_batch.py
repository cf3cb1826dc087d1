"""The train batch of many agents: GAE over decisions of several game steps, its connector, and minibatches."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import tree
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.core.columns import Columns
from ray.rllib.core.learner.learner import Learner
from ray.rllib.core.learner.training_data import TrainingData
from ray.rllib.core.rl_module.apis.value_function_api import ValueFunctionAPI
from ray.rllib.core.rl_module.rl_module import RLModule
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.evaluation.postprocessing import Postprocessing
from ray.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch
from ray.rllib.utils.annotations import override
from ray.rllib.utils.typing import EpisodeType, ModuleID

from rllib_llm_comm.envs.interface import ACTION_MASK, DURATION, STEP_REWARDS
from rllib_llm_comm.policies.decision import CANDIDATE_IDS, CRITIC_IDS, PROMPT_IDS

LEAST_STD = 1e-4
"""Standard deviations by which something is divided are at least this."""
CRITIC_FEATURES = "critic_features"
"""Column of a train batch: frozen features of the observations, on which the critic stands."""
RAW_ADVANTAGES = "raw_advantages"
ROW_GROUP = "row_group"

# ---- advantages -------------------------------------------------------------------------------------------------


def discounted_sum(step_rewards: Sequence[float], gamma: float) -> float:
    """Rewards of the game steps inside one decision, discounted to its start: sum over k of gamma^k r_k."""
    total = 0.0
    for reward in reversed(step_rewards):
        total = float(reward) + gamma * total
    return total


def semi_markov_gae(
    rewards: np.ndarray,
    durations: np.ndarray,
    values: np.ndarray,
    terminated: bool,
    gamma: float,
    lambda_: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Advantages and value targets of one unbroken run of decisions of one agent.

    With d_t game steps in decision t: delta_t = R_t + gamma^d_t V_(t+1) - V_t and
    A_t = delta_t + gamma^d_t lambda A_(t+1), as in TWOSOME for macro-actions. With all durations 1 it is
    plain GAE.

    Args:
        rewards: (T,) each decision's rewards, discounted to its start.
        durations: (T,) game steps of each decision, >= 1.
        values: (T + 1,) values at the decisions, and of the state behind the last one.
        terminated: True if the last decision ended the game; otherwise (truncation, or a cut between roll-out
            fragments) the last value counts.
        gamma: Discount per game step.
        lambda_: GAE's lambda, once per decision.

    Returns:
        Advantages (T,) and value targets (T,) = advantages + values, float32.
    """
    count = len(rewards)
    advantages = np.zeros(count, np.float64)
    following = 0.0
    for t in range(count - 1, -1, -1):
        discount = gamma ** float(durations[t])
        ahead = 0.0 if terminated and t == count - 1 else float(values[t + 1])
        delta = float(rewards[t]) + discount * ahead - float(values[t])
        following = delta + discount * lambda_ * following
        advantages[t] = following
    return advantages.astype(np.float32), (advantages + values[:count]).astype(np.float32)


def gae_of_steps(
    rewards: np.ndarray,
    values: np.ndarray,
    done: np.ndarray,
    final_values: np.ndarray,
    last_values: np.ndarray,
    gamma: float,
    lambda_: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Advantages and value targets of many games side by side, of single steps.

    Args:
        rewards: (T, B) reward of each step.
        values: (T, B) value of the state before each step.
        done: (T, B) whether a step was the last of its game; the next one is the first of another game.
        final_values: (T, B) where `done`: value of the state in which the game ended (0 if that is a terminal one).
        last_values: (B,) values of the states behind the last step.
        gamma: Discount per step.
        lambda_: GAE's lambda.

    Returns:
        Advantages (T, B) and value targets (T, B) = advantages + values.
    """
    advantages = np.zeros_like(values, dtype=np.float64)
    following, ahead = np.zeros(values.shape[1]), last_values
    for t in range(len(values) - 1, -1, -1):
        ahead = np.where(done[t], final_values[t], ahead)
        following = np.where(done[t], 0.0, following)
        following = rewards[t] + gamma * ahead - values[t] + gamma * lambda_ * following
        advantages[t] = following
        ahead = values[t]
    return advantages, advantages + values


def standardized(values: np.ndarray, floor: float = 0.0) -> np.ndarray:
    """Values in standard deviations (at least 1e-4) from their mean.

    Args:
        values: Of any shape; NaN where there is none.
        floor: They are divided by this at least, in their own units.

    Returns:
        Of the same shape, float32; 0 in place of NaN.
    """
    known = ~np.isnan(values)
    if not known.any():
        return np.zeros(values.shape, np.float32)
    mean, std = values[known].mean(), values[known].std()
    return np.where(known, (values - mean) / max(LEAST_STD, floor, float(std)), 0.0).astype(np.float32)


def episodes_of_module(
    connector: ConnectorV2, episodes: list[EpisodeType], module_id: ModuleID
) -> list[SingleAgentEpisode]:
    """The single-agent episodes whose rows are in a module's batch, in the order of the batch."""
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
    in_words = PROMPT_IDS in module_batch[Columns.OBS]
    if in_words:
        from rllib_llm_comm.language.packing import trimmed  # only language agents need it

        seen = module_batch[Columns.OBS]  # without the padding that all rows share, which each minibatch would copy
        ids = {name: trimmed(seen[name]) for name in (PROMPT_IDS, CANDIDATE_IDS, CRITIC_IDS) if name in seen}
        module_batch = {**module_batch, Columns.OBS: {**seen, **ids}}
    kept: dict[str, Any] = tree.map_structure(
        lambda column: column[rows.to(column.device)] if isinstance(column, torch.Tensor) else column,
        module_batch,
    )
    if in_words:
        kept[ROW_GROUP] = _text_groups(kept[Columns.OBS])
    return kept, rows


def _text_groups(observations: dict[str, torch.Tensor]) -> torch.Tensor:
    # Rows that show the same prompt and candidates get the same number.
    from rllib_llm_comm.language.packing import distinct_rows

    columns = [observations[name].cpu().flatten(1).int() for name in (PROMPT_IDS, CANDIDATE_IDS, ACTION_MASK)]
    return distinct_rows(torch.cat(columns, dim=1))[1]


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
        super().__init__(**kwargs)
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
            predictions, outputs = _values_and_outputs(module, module_batch)
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


def _values_and_outputs(module: Any, batch: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """Values (B,) in units of reward, and what the critic itself says."""
    if getattr(module, "value_norm", None) is None:
        values = module.compute_values(batch)
        return values, values
    outputs = module.critic_outputs(batch)
    return module.value_norm.denormalize(outputs), outputs


# ---- minibatches ------------------------------------------------------------------------------------------------


class WholeEpochs:
    """Splits a multi-agent batch into minibatches of nearly equal size, anew in every epoch.

    Rows with an equal number in the column `row_group` stay together: a language model computes a text once
    per minibatch however many rows show it, so a game in which half of the decisions meet a text again costs
    half.

    RLlib's own iterator goes round the batch in steps of `minibatch_size`: rows at the seam are used twice,
    and without `minibatch_size` it takes the number of environment steps for the number of rows.

    Args:
        batch: Rows by module, as tensors.
        num_epochs: Passes over the batch.
        minibatch_size: Upper bound on the rows per module and minibatch; `None` for the whole batch.
        shuffle: True if rows are put in random order before each pass.
        num_total_minibatches: If > 0, exactly so many are made (several Learners must agree on it).
    """

    def __init__(
        self,
        batch: MultiAgentBatch,
        *,
        num_epochs: int = 1,
        minibatch_size: int | None = None,
        shuffle: bool = True,
        num_total_minibatches: int = 0,
    ) -> None:
        self._rows = {module_id: dict(rows) for module_id, rows in batch.policy_batches.items() if len(rows)}
        self._groups = {module_id: _groups(rows) for module_id, rows in self._rows.items()}
        self._counts = {module_id: len(groups) for module_id, groups in self._groups.items()}
        self._epochs = num_epochs
        largest = max(self._counts.values(), default=0)
        self._parts = math.ceil(largest / minibatch_size) if minibatch_size else min(1, largest)
        self._shuffle = shuffle and self._parts > 1
        self._total = num_total_minibatches
        self._first: dict[str, list[torch.Tensor]] | None = None

    def first_epoch(self) -> Iterator[tuple[str, torch.Tensor, SampleBatch]]:
        """Draws the minibatches of the first epoch now; iteration then begins with the same ones.

        Yields:
            Module, row numbers and rows of each of its minibatches.
        """
        self._first = {module_id: self._split(groups) for module_id, groups in self._groups.items()}
        for module_id, parts in self._first.items():
            for rows in parts:
                if len(rows):
                    yield module_id, rows, self._take(module_id, rows)

    def columns(self, module_id: str) -> dict[str, Any]:
        """The columns of a module, to be changed in place."""
        return self._rows[module_id]

    @property
    def rows(self) -> int:
        """Rows of all modules in an epoch."""
        return sum(map(len, self._groups.values()))

    def __len__(self) -> int:
        """Number of minibatches."""
        return self._total or self._parts * self._epochs

    def __iter__(self) -> Iterator[MultiAgentBatch]:
        made, epoch = 0, 0
        while self._parts and (made < self._total if self._total else epoch < self._epochs):
            for part in self._epoch():
                if self._total and made >= self._total:
                    return
                yield part
                made += 1
            epoch += 1

    def _epoch(self) -> Iterator[MultiAgentBatch]:
        splits, self._first = self._first, None
        if splits is None:
            splits = {module_id: self._split(groups) for module_id, groups in self._groups.items()}
        for part in range(self._parts):
            chosen = {}
            for module_id, rows_of_part in splits.items():
                if len(rows_of_part[part]):
                    chosen[module_id] = self._take(module_id, rows_of_part[part])
            if chosen:
                yield MultiAgentBatch(chosen, env_steps=max(len(rows) for rows in chosen.values()))

    def _split(self, groups: np.ndarray) -> list[torch.Tensor]:
        # Groups in random order, rows in the order of their groups, cut at the ends of groups where a part is
        # full.
        if self._parts == 1:
            return [torch.arange(len(groups))]
        count = int(groups.max()) + 1
        rank = torch.randperm(count).numpy() if self._shuffle else np.arange(count)
        order = np.argsort(rank[groups], kind="stable")
        ends = np.cumsum(np.bincount(rank[groups], minlength=count))
        targets = [part * len(groups) / self._parts for part in range(1, self._parts)]
        cuts = [int(ends[np.abs(ends - target).argmin()]) for target in targets]
        return [torch.from_numpy(rows) for rows in np.split(order, cuts)]

    def _take(self, module_id: str, rows: torch.Tensor) -> SampleBatch:
        columns = self._rows[module_id]
        if self._parts == 1:
            return SampleBatch(columns)
        return SampleBatch(tree.map_structure(lambda column: column[rows.to(column.device)], columns))


def _groups(rows: dict[str, Any]) -> np.ndarray:
    groups = rows.pop(ROW_GROUP, None)
    count = len(tree.flatten(rows)[0])
    return np.arange(count) if groups is None else groups.cpu().numpy()


class WholeEpochsMixin(Learner):
    """Makes a Learner use `WholeEpochs`; networks on numbers get observations as narrow as they take them."""

    def _create_iterator_if_necessary(
        self,
        *,
        training_data: TrainingData,
        num_total_minibatches: int = 0,
        num_epochs: int = 1,
        minibatch_size: int | None = None,
        shuffle_batch_per_epoch: bool = False,
        **kwargs: Any,
    ) -> Any:
        if training_data.data_iterators:
            return super()._create_iterator_if_necessary(
                training_data=training_data,
                num_total_minibatches=num_total_minibatches,
                num_epochs=num_epochs,
                minibatch_size=minibatch_size,
                shuffle_batch_per_epoch=shuffle_batch_per_epoch,
                **kwargs,
            )
        batch = self._make_batch_if_necessary(training_data=training_data)
        for module_id in list(batch.policy_batches):
            if not self.should_module_be_updated(module_id, batch):
                del batch.policy_batches[module_id]
        rows = {module_id: self._narrow(module_id, rows) for module_id, rows in batch.policy_batches.items()}
        return WholeEpochs(
            MultiAgentBatch(rows, env_steps=batch.env_steps()),
            num_epochs=num_epochs,
            minibatch_size=minibatch_size,
            shuffle=shuffle_batch_per_epoch,
            num_total_minibatches=num_total_minibatches,
        )

    def _narrow(self, module_id: str, rows: SampleBatch) -> SampleBatch:
        narrow = getattr(self.module[module_id].unwrapped(), "narrow", None)
        return rows if narrow is None else SampleBatch({**rows, Columns.OBS: narrow(rows[Columns.OBS])})
