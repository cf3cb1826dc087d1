"""Learner of Verco, and the advantages that its agents may have beside GAE's."""

from __future__ import annotations

import copy
import functools
import logging
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import gymnasium as gym
import numpy as np
import torch
import tree
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.rl_module import RLModule
from ray.rllib.env.multi_agent_episode import MultiAgentEpisode
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.evaluation.postprocessing import Postprocessing
from ray.rllib.utils.annotations import override
from ray.rllib.utils.typing import EpisodeType, ModuleID, ParamDict, TensorType

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.phases import UPDATE, phase
from rllib_llm_comm.rl.gae import (
    LEAST_STD,
    RAW_ADVANTAGES,
    SemiMarkovGAE,
    decisions_only,
    episodes_of_module,
    in_order,
    rewards_of,
    standardized,
)
from rllib_llm_comm.rl.minibatches import ROW_GROUP, WholeEpochs
from rllib_llm_comm.rl.multi_agent_ppo_learner import ACTOR, CRITIC, ActorTerms, MultiAgentPPOLearner, policy_loss
from rllib_llm_comm.rl.rllib_adapter import START
from rllib_llm_comm.verco.message_loss import UTTERANCE_LOGP, UTTERANCE_MOMENT, spoken
from rllib_llm_comm.verco.module import UTTERANCE_ENTROPY, UTTERANCE_KL, UTTERANCE_LOG_PROBS

logger = logging.getLogger(__name__)

Result = TypeVar("Result")
_WRITTEN = 0.1
_GAIN = 0.1
_LARGEST_ERROR = 0.2
_RIGID = 1e-3
GAE, RLOO, GRPO = "gae", "rloo", "grpo"
EPISODE, PROMPT = "episode", "prompt"
SPEAKER, TEAM, LISTENERS = "speaker", "team", "listeners"
MESSAGE_ADVANTAGES = "message_advantages"


# ---- against other episodes of a group -------------------------------------------------------------------------


@dataclass(frozen=True)
class GroupAdvantages:
    """Result of `group_advantages`, per entry.

    Attributes:
        advantages: (N,) float64; 0 where `alone`.
        alone: (N,) whether the group has entries of fewer than two episodes.
        level: (N,) whether all returns of the group are equal, so that it teaches nothing.
    """

    advantages: np.ndarray
    alone: np.ndarray
    level: np.ndarray


def returns_to_go(rewards: np.ndarray, durations: np.ndarray, gamma: float) -> np.ndarray:
    """Discounted returns G_t = R_t + gamma^d_t G_(t+1) of one complete episode of one agent.

    Args:
        rewards: (T,) each decision's rewards, discounted to its start.
        durations: (T,) game steps of each decision, >= 1.
        gamma: Discount per game step.

    Returns:
        (T,) float64.
    """
    returns = np.zeros(len(rewards), np.float64)
    following = 0.0
    for t in range(len(rewards) - 1, -1, -1):
        following = float(rewards[t]) + gamma ** float(durations[t]) * following
        returns[t] = following
    return returns


def group_advantages(
    returns: np.ndarray, groups: np.ndarray, episodes: np.ndarray, *, leave_out: bool, by_std: bool
) -> GroupAdvantages:
    """Advantages of returns against those of their group.

    With `leave_out` (RLOO, arXiv 2402.14740) the baseline of an entry is the mean over the group's entries of other
    episodes: it does not depend on the entry's own action, also where an episode meets the group several times.
    Otherwise it is the mean over all entries (GRPO, arXiv 2402.03300), and with `by_std` the difference is divided by
    their standard deviation (that of the population, at least 1e-4).

    Args:
        returns: (N,).
        groups: (N,) whole numbers.
        episodes: (N,) whole numbers.
        leave_out: True if the own episode is left out of the mean.
        by_std: True if differences are divided by the standard deviation.
    """
    values = returns.astype(np.float64)
    ids = np.unique(groups, return_inverse=True)[1].ravel()
    own = np.unique(np.stack([groups, episodes]), axis=1, return_inverse=True)[1].ravel()
    total, count = np.bincount(ids, values)[ids], np.bincount(ids)[ids]
    own_total, own_count = np.bincount(own, values)[own], np.bincount(own)[own]
    others = count - own_count
    alone = others == 0
    baseline = (total - own_total) / np.maximum(others, 1) if leave_out else total / count
    advantages = values - baseline
    if by_std:
        deviations = (values - total / count) ** 2
        std = np.sqrt(np.bincount(ids, deviations)[ids] / count)
        advantages = advantages / np.maximum(std, LEAST_STD)
    highest, lowest = np.full(len(values), -np.inf), np.full(len(values), np.inf)
    np.maximum.at(highest, ids, values)
    np.minimum.at(lowest, ids, values)
    return GroupAdvantages(np.where(alone, 0.0, advantages), alone, ~alone & (highest == lowest)[ids])


def length_weights(lengths: np.ndarray) -> np.ndarray:
    """Weights of decisions with which every episode counts alike in a mean over decisions.

    GRPO divides each answer's part of the loss by its length. In a mean over all N decisions of M episodes the same is
    a weight N / (M T) for each of the T decisions of an episode; their mean is 1.

    Args:
        lengths: (M,) decisions of each episode, 0 for one that has none.

    Returns:
        (M,) the weight of each episode's decisions.
    """
    present = np.maximum(lengths, 1)
    return lengths.sum() / (max(1, np.count_nonzero(lengths)) * present)


class AddGroupAdvantages(ConnectorV2):
    """Adds advantages to the train batch and drops the rows made for bootstrapping; stands where `SemiMarkovGAE` does.

    Groups never mix agents. Grouped by `"episode"`, all decisions of an agent in an episode share one advantage, that
    of its discounted return among the episodes of equal start (`start` in the infos, as `ParallelEnvAdapter` tells).
    Grouped by `"prompt"`, a decision is compared with the decisions behind the same prompt and candidates, by the
    returns that followed.

    Advantages are in units of reward, unless divided by the group's standard deviation; unlike those of `SemiMarkovGAE`
    they are not standardised over the batch.
    """

    def __init__(
        self,
        input_observation_space: gym.Space | None = None,
        input_action_space: gym.Space | None = None,
        *,
        estimator: str = RLOO,
        group_by: str = EPISODE,
        by_std: bool = True,
        by_length: bool = True,
        gamma: float = 0.99,
        keep_raw: bool = False,
        **kwargs: Any,
    ) -> None:
        """Sets estimator and groups; `by_std` and `by_length` are GRPO's, `keep_raw` is as of `SemiMarkovGAE`."""
        super().__init__(input_observation_space, input_action_space, **kwargs)
        self.estimator = estimator
        self.group_by = group_by
        self.by_std = by_std and estimator == GRPO
        self.by_length = by_length and estimator == GRPO
        self.gamma = gamma
        self.keep_raw = keep_raw

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
        """Completes the batches of all modules.

        Raises:
            UserError: If an episode is not complete.
        """
        _require_complete(episodes)
        for module_id in list(batch):
            own = episodes_of_module(self, episodes, module_id)
            batch[module_id], found = self._complete(batch[module_id], own)
            if metrics is not None:
                shares = {"group_alone_share": found.alone.mean(), "group_level_share": found.level.mean()}
                metrics.log_dict({**shares, "group_alone": found.alone.sum()}, key=module_id, window=1)
        return batch

    def _complete(
        self, module_batch: dict[str, Any], episodes: list[SingleAgentEpisode]
    ) -> tuple[dict[str, Any], GroupAdvantages]:
        kept, rows = decisions_only(module_batch, episodes)
        ordered = [episode for episode, _ in in_order(episodes)]
        returns = [returns_to_go(*rewards_of(episode, self.gamma), self.gamma) for episode in ordered]
        lengths = np.array([len(own) for own in returns])
        agents = _numbers([str(episode.agent_id) for episode in ordered])
        played = _numbers([episode.multi_agent_episode_id for episode in ordered])
        if self.group_by == PROMPT:
            prompts = kept[ROW_GROUP].cpu().numpy()
            pairs = np.stack([np.repeat(agents, lengths), prompts], axis=1)
            groups = np.unique(pairs, axis=0, return_inverse=True)[1].ravel()
            found = self._estimate(np.concatenate(returns), groups, np.repeat(played, lengths))
        else:
            # One entry for all decisions of an agent's episode; an agent that never decided has none.
            starts = _numbers([(_start(episode), agent) for episode, agent in zip(ordered, agents, strict=True)])
            acted = lengths > 0
            whole = self._estimate(np.array([own[0] for own in returns if len(own)]), starts[acted], played[acted])
            found = _repeated(whole, lengths[acted])
        advantages = found.advantages
        if self.by_length:
            advantages = advantages * np.repeat(length_weights(lengths), lengths)
        column = torch.as_tensor(advantages.astype(np.float32), device=kept[Columns.ACTIONS].device)
        kept[Postprocessing.ADVANTAGES] = column
        if self.keep_raw:
            kept[RAW_ADVANTAGES] = column
        return kept, found

    def _estimate(self, returns: np.ndarray, groups: np.ndarray, episodes: np.ndarray) -> GroupAdvantages:
        return group_advantages(returns, groups, episodes, leave_out=self.estimator == RLOO, by_std=self.by_std)


def _require_complete(episodes: list[EpisodeType]) -> None:
    played = [one for one in episodes if isinstance(one, MultiAgentEpisode)]
    cut = [one for one in played if not one.is_done or one.env_t_started > 0]
    if cut:
        raise UserError(
            f"{len(cut)} of {len(episodes)} episodes of a batch are cut, but group baselines need whole ones, whose "
            "returns are known; set `batch_mode` to 'complete_episodes'."
        )


def _start(episode: SingleAgentEpisode) -> Hashable:
    info = episode.get_infos(0)
    named = info.get(START) if isinstance(info, Mapping) else None
    # Without that info no other episode is known to have begun alike.
    return ("", episode.multi_agent_episode_id) if named is None else ("start", named)


def _numbers(keys: list[Hashable]) -> np.ndarray:
    """Equal keys as equal whole numbers."""
    seen: dict[Hashable, int] = {}
    return np.array([seen.setdefault(key, len(seen)) for key in keys])


def _repeated(found: GroupAdvantages, times: np.ndarray) -> GroupAdvantages:
    return GroupAdvantages(*(np.repeat(part, times) for part in (found.advantages, found.alone, found.level)))


# ---- of messages -----------------------------------------------------------------------------------------------


def message_advantages(
    moments: Mapping[Hashable, np.ndarray], advantages: Mapping[Hashable, np.ndarray], credit: str
) -> dict[Hashable, np.ndarray]:
    """Advantages of the messages of one episode, one for each decision of each agent.

    Every agent speaks just before it decides, and is heard until it speaks again. With j(t) the first decision of agent
    j at moment t or later, the message of agent i at moment t has the advantage

    * `"team"`: mean of A at j(t) over all agents j, the speaker included;
    * `"listeners"`: mean of A at j(t) over the other agents j that heard it, those whose j(t) comes before i speaks
      again.

    An agent without such a decision in the batch is left out of the mean.

    Args:
        moments: By agent (N,) the ascending moments of its decisions.
        advantages: By agent (N,) the advantages of these decisions.
        credit: `"team"` or `"listeners"`.

    Returns:
        By agent (N,) float64; NaN for a message that nobody can be asked about.
    """
    found: dict[Hashable, np.ndarray] = {}
    for speaker, times in moments.items():
        until = np.append(times[1:].astype(np.float64), np.inf)
        total, count = np.zeros(len(times)), np.zeros(len(times))
        if credit == TEAM:
            total, count = advantages[speaker].astype(np.float64), np.ones(len(times))
        for other, theirs in moments.items():
            if other == speaker or not len(theirs):
                continue
            next_one = np.searchsorted(theirs, times)
            known = next_one < len(theirs)
            next_one = np.minimum(next_one, len(theirs) - 1)
            if credit == LISTENERS:
                known &= theirs[next_one] < until
            total = total + np.where(known, advantages[other][next_one], 0.0)
            count = count + known
        found[speaker] = np.divide(total, count, out=np.full(len(times), np.nan), where=count > 0)
    return found


class MessageCredit(ConnectorV2):
    """Adds the advantages of messages to the train batch; stands behind `SemiMarkovGAE` with `keep_raw`.

    They are in standard deviations from their mean, over the messages of the module that anybody answers for; a message
    that nobody does has 0.
    """

    def __init__(
        self,
        input_observation_space: gym.Space | None = None,
        input_action_space: gym.Space | None = None,
        *,
        credit: str = LISTENERS,
        floor: float = 0.0,
        **kwargs: Any,
    ) -> None:
        """Sets whose advantages count, `"team"` or `"listeners"`, and by what they are divided at least."""
        super().__init__(input_observation_space, input_action_space, **kwargs)
        self.credit = credit
        self.floor = floor

    @override(ConnectorV2)
    def __call__(
        self,
        *,
        rl_module: RLModule,
        batch: dict[str, Any],
        episodes: list[EpisodeType],
        **kwargs: Any,
    ) -> Any:
        """Completes the batches of all modules whose messages are trained."""
        # By episode and agent: module, rows, moments and advantages of its decisions.
        talks: dict[Hashable, dict[Hashable, list[tuple[str, np.ndarray, np.ndarray, np.ndarray]]]] = defaultdict(dict)
        for module_id, rows in batch.items():
            if RAW_ADVANTAGES not in rows or UTTERANCE_MOMENT not in rows[Columns.OBS]:
                continue
            raw = rows.pop(RAW_ADVANTAGES).cpu().numpy()
            moments = rows[Columns.OBS][UTTERANCE_MOMENT][:, 0].cpu().numpy()
            begin = 0
            for single, _ in in_order(episodes_of_module(self, episodes, module_id)):
                own = np.arange(begin, begin + len(single) - 1)  # as in SemiMarkovGAE: one row was added
                begin += len(own)
                agents = talks[single.multi_agent_episode_id]
                agents.setdefault(single.agent_id, []).append((module_id, own, moments[own], raw[own]))
        self._write(batch, talks)
        return batch

    def _write(self, batch: dict[str, Any], talks: Mapping[Hashable, Mapping[Hashable, list[Any]]]) -> None:
        credits = {
            module_id: np.full(len(rows[Columns.OBS][UTTERANCE_MOMENT]), np.nan)
            for module_id, rows in batch.items()
            if UTTERANCE_MOMENT in rows[Columns.OBS]
        }
        for agents in talks.values():
            joined = {agent: [np.concatenate(column) for column in zip(*(part[1:] for part in parts), strict=True)]
                      for agent, parts in agents.items()}  # fmt: skip
            order = {agent: np.argsort(columns[1], kind="stable") for agent, columns in joined.items()}
            found = message_advantages(
                {agent: columns[1][order[agent]] for agent, columns in joined.items()},
                {agent: columns[2][order[agent]] for agent, columns in joined.items()},
                self.credit,
            )
            for agent, parts in agents.items():
                credits[parts[0][0]][joined[agent][0][order[agent]]] = found[agent]
        for module_id, values in credits.items():
            device = batch[module_id][Columns.OBS][UTTERANCE_MOMENT].device
            batch[module_id][MESSAGE_ADVANTAGES] = torch.as_tensor(standardized(values, self.floor), device=device)


# ---- the learner ------------------------------------------------------------------------------------------------


def first_kl_coeff(config: Any) -> float:
    """The weight of the drift of messages that a config sets: `message_kl_coeff`, or what its default means.

    Args:
        config: Of an algorithm whose messages are trained.
    """
    if config.message_kl_coeff is None:
        return _WRITTEN if config.messages == "student" else 0.0
    return float(config.message_kl_coeff)


def adapted_kl_coeff(coefficient: float, kl: float, target: float) -> float:
    """The next weight beta of a KL divergence that is held near a target (arXiv 1909.08593, section 2.2).

    With e the relative error (kl - target) / target, cut to [-0.2, 0.2], beta is multiplied by 1 + 0.1 e.

    Args:
        coefficient: The weight up to now, > 0.
        kl: The divergence measured with it.
        target: The divergence aimed at, > 0.
    """
    error = min(max(kl / target - 1.0, -_LARGEST_ERROR), _LARGEST_ERROR)
    return coefficient * (1.0 + _GAIN * error)


class VercoLearner(MultiAgentPPOLearner):
    """Trains `LLMCommModule`s: their action adapter and critic and, if PPO trains it, their message adapter.

    What was said is then part of the action (docs/algorithms/verco.md): with the credit `"speaker"` the ratio is that
    of both together; otherwise the message has a clipped surrogate objective of its own, with advantages of
    `MessageCredit`. The loss has two terms more, the exact entropy of its tokens and its KL divergence from the
    reference.

    With `advantages` "rloo" or "grpo" there is no critic and no value loss; advantages are those of
    `AddGroupAdvantages`.

    A minibatch with more tokens than `micro_batch_tokens` is computed in parts whose gradients are added up. Where the
    memory of a GPU does not hold it, the parts get smaller. In half precision ratios are taken from log-probabilities
    of the update itself.
    """

    rates: ClassVar[Mapping[str, str]] = {ACTOR: "lr", "speaker": "message_lr", CRITIC: "critic_lr"}

    @override(MultiAgentPPOLearner)
    def build(self) -> None:
        """Builds as PPO does."""
        self._checked_entropy = False
        self._message_kls: dict[ModuleID, list[float]] = defaultdict(list)
        self._rounding_errors: dict[ModuleID, torch.Tensor] = {}
        super().build()

    @override(MultiAgentPPOLearner)
    def _advantage_pieces(self) -> Sequence[ConnectorV2]:
        config: Any = self.config
        apart = config.train_messages and config.message_credit != SPEAKER
        piece: ConnectorV2
        if config.advantages == GAE:
            piece = SemiMarkovGAE(
                gamma=config.gamma, lambda_=config.lambda_, floor=config.advantage_floor, keep_raw=apart
            )
        else:
            piece = AddGroupAdvantages(
                estimator=config.advantages,
                group_by=config.group_by,
                by_std=config.normalize_by_std,
                by_length=config.normalize_by_length,
                gamma=config.gamma,
                keep_raw=apart,
            )
        credit = MessageCredit(credit=config.message_credit, floor=config.advantage_floor)
        return [piece, credit] if apart else [piece]

    @override(MultiAgentPPOLearner)
    def before_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """Starts an update."""
        super().before_gradient_based_update(timesteps=timesteps)
        self._message_kls.clear()
        self._rounding_errors.clear()

    @override(MultiAgentPPOLearner)
    def after_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """Adapts the weights of the drift of messages."""
        super().after_gradient_based_update(timesteps=timesteps)
        for module_id, drifts in self._message_kls.items():
            config: Any = self.config.get_config_for_module(module_id)
            if config.message_kl_target is not None and drifts:
                module = self.module[module_id].unwrapped()
                before = self._message_kl_coeff(module, config)
                module.message_kl_coeff = adapted_kl_coeff(before, sum(drifts) / len(drifts), config.message_kl_target)

    # ---- the loss --------------------------------------------------------------------------------------------------

    @override(MultiAgentPPOLearner)
    def _critic_loss(
        self, module_id: ModuleID, module: Any, config: Any, batch: dict[str, Any], fwd_out: dict[str, TensorType]
    ) -> torch.Tensor:
        if config.advantages == GAE:
            return super()._critic_loss(module_id, module, config, batch, fwd_out)
        return torch.zeros((), device=batch[Postprocessing.ADVANTAGES].device)

    @override(MultiAgentPPOLearner)
    def _actor_terms(
        self, config: Any, module: Any, batch: Mapping[str, Any], fwd_out: Mapping[str, torch.Tensor]
    ) -> ActorTerms:
        acted = super()._actor_terms(config, module, batch, fwd_out)
        if UTTERANCE_LOG_PROBS not in fwd_out:
            return acted
        of_message = fwd_out[UTTERANCE_LOG_PROBS] - batch[Columns.OBS][UTTERANCE_LOGP][:, 0]
        log_ratio = acted.log_ratio + of_message  # what was said is part of the action
        if MESSAGE_ADVANTAGES not in batch:
            loss = policy_loss(log_ratio.exp(), batch[Postprocessing.ADVANTAGES], config.clip_param)
        else:
            credited = batch[MESSAGE_ADVANTAGES]
            loss = acted.policy_loss + policy_loss(of_message.exp(), credited, config.clip_param)
        return acted._replace(log_ratio=log_ratio, policy_loss=loss)

    @override(MultiAgentPPOLearner)
    def _other_terms(
        self, module_id: ModuleID, module: Any, config: Any, fwd_out: Mapping[str, torch.Tensor]
    ) -> torch.Tensor | float:
        if UTTERANCE_LOG_PROBS not in fwd_out:
            return 0.0
        entropy, drift = fwd_out[UTTERANCE_ENTROPY], fwd_out[UTTERANCE_KL]
        self._message_kls[module_id].append(float(self._mean_over_learners(drift.detach())))
        coefficient = self._message_kl_coeff(module, config)
        self._log(module_id, message_entropy=entropy, message_kl=drift, message_kl_coeff=coefficient)
        return self._message_loss(module_id, module, config, fwd_out)

    def _message_loss(
        self, module_id: ModuleID, module: Any, config: Any, fwd_out: Mapping[str, torch.Tensor]
    ) -> torch.Tensor:
        """Loss terms of messages beside the policy loss: drift, and the negated entropy."""
        openness = config.message_entropy_coeff
        if openness is None:
            openness = self._entropy_coeff(module_id)
        return self._message_kl_coeff(module, config) * fwd_out[UTTERANCE_KL] - openness * fwd_out[UTTERANCE_ENTROPY]

    def _message_kl_coeff(self, module: Any, config: Any) -> float:
        adapted = module.message_kl_coeff if config.message_kl_target is not None else None
        return first_kl_coeff(config) if adapted is None else float(adapted)

    @override(MultiAgentPPOLearner)
    def _log_first_minibatch(self, module_id: ModuleID, terms: ActorTerms, batch: Mapping[str, Any]) -> None:
        super()._log_first_minibatch(module_id, terms, batch)
        if module_id in self._rounding_errors:  # its log-probabilities are no longer those of the roll-out
            self._log(module_id, roll_out_ratio_error=self._rounding_errors[module_id])
        # The usual trap with a language model that has never read a game's phrases.
        if not self._checked_entropy and terms.entropy < _RIGID:
            logger.warning(
                "The untrained policy takes the same action nearly always (entropy %.1e), so it will hardly learn: the "
                "language model finds one candidate far likelier than the others. `rllib calibrate FILE` finds a "
                "`temperature` and `score_normalization` that keep it open.",
                float(terms.entropy.detach()),
            )
        self._checked_entropy = True

    # ---- half precision --------------------------------------------------------------------------------------------

    @override(MultiAgentPPOLearner)
    def _create_iterator_if_necessary(self, **kwargs: Any) -> Any:
        iterator = super()._create_iterator_if_necessary(**kwargs)
        if isinstance(iterator, WholeEpochs):
            with phase(UPDATE, whole=True):
                self._recompute_log_probs(iterator)
        return iterator

    def _recompute_log_probs(self, iterator: WholeEpochs) -> None:
        """Puts the update's own log-probabilities in the place of the roll-out's where the two are rounded apart.

        Half precision rounds otherwise in a batch of another shape, and over a phrase that is as much as a step of PPO
        moves a ratio. So what the ratios are taken from is computed in the minibatches that the first epoch then has.
        Decisions of older weights keep theirs.
        """
        modules = {name: self.module[name].unwrapped() for name in self.module.keys()}  # noqa: SIM118
        if not any(getattr(module, "rounds_by_batch", False) for module in modules.values()):
            return
        apart: dict[ModuleID, list[torch.Tensor]] = defaultdict(list)
        for module_id, rows, part in iterator.first_epoch():
            module = modules[module_id]
            if not getattr(module, "rounds_by_batch", False):
                continue
            columns = iterator.columns(module_id)
            out = self._within_memory({module_id: part}, functools.partial(self._outputs, module_id, part))
            distribution = module.get_train_action_dist_cls().from_logits(out[Columns.ACTION_DIST_INPUTS].detach())
            old, new = part[Columns.ACTION_LOGP], distribution.logp(part[Columns.ACTIONS])
            newest = self._of_newest_weights(part)
            apart[module_id].append(((new - old)[newest].exp() - 1.0).abs())
            columns[Columns.ACTION_LOGP][rows[newest.to(rows.device)]] = new[newest]
            if UTTERANCE_LOG_PROBS in out:
                said = columns[Columns.OBS][UTTERANCE_LOGP]
                said[rows[newest.to(rows.device)], 0] = out[UTTERANCE_LOG_PROBS].detach()[newest].to(said)
        for module_id, parts in apart.items():
            self._rounding_errors[module_id] = torch.cat(parts).mean()
            self._log(module_id, roll_out_ratio_error=self._rounding_errors[module_id])

    # ---- parts that the memory holds -------------------------------------------------------------------------------

    @override(MultiAgentPPOLearner)
    def _losses_and_gradients(
        self, batch: Mapping[ModuleID, Any], live: Mapping[ModuleID, Any]
    ) -> tuple[dict[ModuleID, Any], dict[ModuleID, Any], ParamDict]:
        def compute() -> tuple[dict[ModuleID, Any], dict[ModuleID, Any], ParamDict]:
            split = {module_id: parts for module_id, rows in live.items() if (parts := self._parts(module_id, rows))}
            whole = {module_id: rows for module_id, rows in live.items() if module_id not in split}
            outputs = dict(self.module.forward_train(whole)) if whole else {}
            of_parts: dict[ModuleID, ParamDict] = {}
            for module_id, parts in split.items():
                of_parts[module_id] = {}
                outputs[module_id] = self._outputs(module_id, live[module_id], parts, of_parts[module_id])
            outputs = {module_id: outputs.get(module_id, {}) for module_id in batch}
            losses = self.compute_losses(fwd_out=outputs, batch=dict(batch))
            gradients = self.compute_gradients(losses)
            for module_id, own in of_parts.items():
                if not self._kl_stop.stopped(module_id):
                    gradients.update(own)
            return outputs, losses, gradients

        return self._within_memory(live, compute)

    def _parts(self, module_id: ModuleID, rows: Mapping[str, Any]) -> list[torch.Tensor]:
        """Row numbers of the parts of a minibatch whose gradients are added up; none where it is computed as a whole.

        With several Learners DDP wants one backward pass, and an actor's loss of somebody else's may be no mean over
        rows. There a module goes by parts itself, and computes each once more in the backward pass.
        """
        module = self.module[module_id].unwrapped()
        added = self.config.num_learners <= 1 and self._grad_scalers is None and hasattr(module, "micro_batches")
        if not added or any(getattr(type(self), name) is not here for name, here in _MEANS_OVER_ROWS.items()):
            return []
        parts: list[torch.Tensor] = module.micro_batches(rows[Columns.OBS])
        return parts if len(parts) > 1 else []

    def _outputs(
        self,
        module_id: ModuleID,
        rows: Mapping[str, Any],
        parts: list[torch.Tensor] | None = None,
        gradients: ParamDict | None = None,
    ) -> dict[str, torch.Tensor]:
        """A module's outputs for a minibatch, computed part by part; with `gradients` these are added up in there.

        Each part's loss is weighted by its share of the rows, and of the messages, over which the whole loss is a mean.
        """
        module = self.module[module_id].unwrapped()
        parts = self._parts(module_id, rows) if parts is None else parts
        if not parts:
            return dict(module.forward_train(dict(rows)))
        config, observations = self.config.get_config_for_module(module_id), rows[Columns.OBS]
        speaks = UTTERANCE_LOGP in observations
        said = spoken(observations) if speaks else torch.zeros(len(torch.cat(parts)))
        trained = self._policy_parameters(module_id)
        found: list[dict[str, torch.Tensor]] = []
        shares = []
        for part in parts:
            own = tree.map_structure(lambda column, part=part: column[part.to(column.device)], dict(rows))
            out = module.forward_train(own)
            shares.append(float(said[part.to(said.device)].sum() / said.sum().clamp(min=1)))
            if gradients is not None:
                terms = self._actor_terms(config, module, own, out)
                loss = self._policy_objective(module_id, terms) * (len(part) / len(said))
                if speaks:
                    loss = loss + shares[-1] * self._message_loss(module_id, module, config, out)
                _add_gradients(gradients, trained, loss)
            found.append({name: value.detach() for name, value in out.items()})
        back = torch.argsort(torch.cat(parts))
        # What has no rows is a mean over messages.
        return {
            name: torch.cat([out[name] for out in found])[back.to(value.device)]
            if value.dim()
            else sum((share * out[name] for share, out in zip(shares, found, strict=True)), torch.zeros_like(value))
            for name, value in found[0].items()
        }

    def _within_memory(self, batch: Mapping[ModuleID, Any], compute: Callable[[], Result]) -> Result:
        """What a function computes of a batch, in smaller micro-batches if a GPU's memory does not hold it."""
        while True:
            counted = self._minibatches.copy(), self._policy_steps.copy(), copy.deepcopy(self._message_kls)
            try:
                return compute()
            except torch.cuda.OutOfMemoryError:
                self._minibatches, self._policy_steps, self._message_kls = counted
                if not self._halve_micro_batches(batch):
                    raise

    def _halve_micro_batches(self, batch: Mapping[ModuleID, Any]) -> bool:
        """Lets a step begin anew with smaller micro-batches; False if that cannot be."""
        torch.cuda.empty_cache()
        modules = {name: self.module[name].unwrapped() for name in batch} if self.config.num_learners <= 1 else {}
        halved = False
        for name, module in modules.items():
            tokens = module.halve_micro_batches(batch[name][Columns.OBS]) if hasattr(module, "core") else None
            if tokens is not None:
                logger.warning(
                    "The GPU's memory does not hold a minibatch of module %r; `micro_batch_tokens` is %d from here on.",
                    name, tokens,
                )  # fmt: skip
                halved = True
        return halved


# A Learner that overrides one of these computes minibatches whole: parts add up only if its loss is a mean over rows.
_MEANS_OVER_ROWS = {
    name: getattr(VercoLearner, name)
    for name in (
        "compute_loss_for_module",
        "_actor_loss",
        "_actor_terms",
        "_policy_objective",
        "_other_terms",
        "_message_loss",
    )
}


def _add_gradients(gradients: ParamDict, parameters: list[torch.nn.Parameter], loss: torch.Tensor) -> None:
    """Adds the gradients of a loss to those by parameter; a parameter that has no part in it gets none."""
    if not (parameters and loss.requires_grad):
        return
    for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters, allow_unused=True), strict=True):
        if gradient is not None:
            gradients[parameter] = gradients[parameter] + gradient if parameter in gradients else gradient
