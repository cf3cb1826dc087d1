"""COLE's choices: partners to train with, members to accept and remove, the agent to keep.

Source: Li et al. 2023 (arXiv 2302.04831) and its code. Needs no Ray.
"""

from __future__ import annotations

import numpy as np

from rllib_llm_comm.baselines.population.coalition_values import SHARPNESS, preference_centrality, softmax, symmetrised

OLDEST = 10
"""Members that removal and the final choice look at."""
NEWEST_SHARE, LATER_SHARE, LATER_AFTER = 0.1, 0.2, 50
"""Share of newest members that may be preferred, and the rounds after which it is the later one."""
MOST_TRIES = 3
SPREAD_SHARE = 0.1
"""Visit bonus in relation to the spread of the softmax where no factor is given (ours)."""


def partner_weights(values: np.ndarray, visits: np.ndarray, visit_bonus: float | None = None) -> np.ndarray:
    """Weights (n,) with which partners are drawn: high for members with low Shapley values, and rarely visited ones.

    softmax(-10 phi / ||phi||) + c u / ||u|| with u_i = sqrt(all visits) / (1 + visits_i).

    Args:
        values: (n,) Shapley values phi.
        visits: (n,) how often each was drawn in this generation.
        visit_bonus: c >= 0, 1 in COLE's code. `None` (ours): a tenth of the softmax's spread, its largest minus its
            smallest weight. With 1 the bonus outweighs the values from the second draw on.
    """
    weights = softmax(-SHARPNESS * _unit(values))
    factor = SPREAD_SHARE * float(weights.max() - weights.min()) if visit_bonus is None else visit_bonus
    return np.asarray(weights + factor * _unit(np.sqrt(visits.sum()) / (1.0 + visits)))


def drawn_partner(weights: np.ndarray, rng: np.random.Generator) -> int:
    """The number of a partner, drawn in proportion to weights."""
    return int(rng.choice(len(weights), p=weights / weights.sum()))


def is_accepted(payoffs: np.ndarray, trained_rounds: int, tries: int, initial: int) -> bool:
    """True if the learner's copy becomes a member.

    It does if the member whom most prefer is the learner or one of the newest floor(share n) + 1 members, and in any
    case at the third try and while the population is young.

    Args:
        payoffs: (n + 1, n + 1), of n members and, last, the learner.
        trained_rounds: Rounds of training so far, with this one, >= 1.
        tries: Tries for this place so far, with this one, >= 1.
        initial: The first round whose copy may be refused.
    """
    members = len(payoffs) - 1
    share = LATER_SHARE if trained_rounds > LATER_AFTER else NEWEST_SHARE
    preferred = int(np.argmin(preference_centrality(symmetrised(payoffs))))
    newest = preferred >= members - (int(share * members) + 1)
    return newest or tries >= MOST_TRIES or trained_rounds < initial


def removed_member(members: int, most: int, rng: np.random.Generator) -> int | None:
    """The number of a member, one of the ten oldest, that makes room; `None` while there are not too many.

    Args:
        members: n, their number.
        most: The largest n allowed.
        rng: Draws it.
    """
    return None if members <= most else int(rng.integers(min(OLDEST, members)))


def kept_member(payoffs: np.ndarray) -> int:
    """The member with the best mean score with the ten oldest members in both seats, of equal ones the newest.

    Args:
        payoffs: (n, n), oldest members first.
    """
    oldest = slice(0, OLDEST)
    scores = payoffs[:, oldest].mean(1) + payoffs[oldest].mean(0)
    return len(scores) - 1 - int(np.argmax(scores[::-1]))


def with_learner(payoffs: np.ndarray, row: np.ndarray, column: np.ndarray, own: float) -> np.ndarray:
    """Payoffs (n + 1, n + 1) of the members and, last, the learner.

    Args:
        payoffs: (n, n) of the members.
        row: (n,) the learner as player 0 with each member.
        column: (n,) each member as player 0 with the learner.
        own: The learner with itself.
    """
    n = len(payoffs)
    grown = np.zeros((n + 1, n + 1))
    grown[:n, :n], grown[n, :n], grown[:n, n], grown[n, n] = payoffs, row, column, own
    return grown


def without_member(payoffs: np.ndarray, member: int) -> np.ndarray:
    """Payoffs without a member's row and column."""
    return np.asarray(np.delete(np.delete(payoffs, member, 0), member, 1))


def _unit(values: np.ndarray) -> np.ndarray:
    length = float(np.linalg.norm(values))
    return values / length if length > 0 else np.zeros_like(values, dtype=float)
