"""Advantages beside `rl.train_batch`'s: of episodes against others of their group (RLOO, GRPO), and of messages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.rl_module import RLModule
from ray.rllib.env.multi_agent_episode import MultiAgentEpisode
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.evaluation.postprocessing import Postprocessing
from ray.rllib.utils.annotations import override
from ray.rllib.utils.typing import EpisodeType

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.rl.rllib_adapter import START
from rllib_llm_comm.rl.train_batch import (
    LEAST_STD,
    RAW_ADVANTAGES,
    ROW_GROUP,
    decisions_only,
    episodes_of_module,
    in_order,
    rewards_of,
    standardized,
)
from rllib_llm_comm.verco.encoding import MESSAGE_MOMENT

# ---- of episodes against their group ----------------------------------------------------------------------------


GAE, RLOO, GRPO = "gae", "rloo", "grpo"
"""Values of the setting `advantages`; the last two are computed here."""
EPISODE, PROMPT = "episode", "prompt"
"""Values of the setting `group_by`."""


class GroupAdvantages(NamedTuple):
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
        super().__init__(**kwargs)
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
            found = GroupAdvantages(*(np.repeat(part, lengths[acted]) for part in whole))
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


# ---- of messages ------------------------------------------------------------------------------------------------


SPEAKER, TEAM, LISTENERS = "speaker", "team", "listeners"
"""Values of the setting `message_credit`; the last two are computed here."""
MESSAGE_ADVANTAGES = "message_advantages"
"""Column of a train batch: the advantage of the message that each row's agent wrote."""


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
        *,
        credit: str = LISTENERS,
        floor: float = 0.0,
        **kwargs: Any,
    ) -> None:
        """Sets whose advantages count, `"team"` or `"listeners"`, and by what they are divided at least."""
        super().__init__(**kwargs)
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
            if RAW_ADVANTAGES not in rows or MESSAGE_MOMENT not in rows[Columns.OBS]:
                continue
            raw = rows.pop(RAW_ADVANTAGES).cpu().numpy()
            moments = rows[Columns.OBS][MESSAGE_MOMENT][:, 0].cpu().numpy()
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
            module_id: np.full(len(rows[Columns.OBS][MESSAGE_MOMENT]), np.nan)
            for module_id, rows in batch.items()
            if MESSAGE_MOMENT in rows[Columns.OBS]
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
            device = batch[module_id][Columns.OBS][MESSAGE_MOMENT].device
            batch[module_id][MESSAGE_ADVANTAGES] = torch.as_tensor(standardized(values, self.floor), device=device)
