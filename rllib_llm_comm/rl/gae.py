"""Generalised advantage estimation over decisions that last several game steps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

LEAST_STD = 1e-4
"""Lower bound of standard deviations that something is divided by."""


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
