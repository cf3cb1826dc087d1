"""Generalised advantage estimation over decisions that last several game steps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


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
        terminated: Whether the last decision ended the game; otherwise (truncation, or a cut between roll-out
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
