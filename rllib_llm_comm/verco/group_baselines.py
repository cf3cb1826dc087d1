"""Advantages of episodes against others of their group, without a critic."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rllib_llm_comm.rl.gae import LEAST_STD


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
