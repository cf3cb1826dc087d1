"""Cooperative game theory of a population: who cooperates with whom, from the scores of all pairs.

Source: Li et al. 2023, "Cooperative Open-ended Learning Framework for Zero-shot Coordination" (arXiv 2302.04831) and
its code. Payoffs are matrices (n, n), [i, j] the mean score of i as player 0 with j as player 1, >= 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import combinations

import numpy as np

SIGNED, CLAMPED = "signed", "clamped"
DAMPING = 0.85
SHARPNESS = 10.0
"""Factor inside the softmax over PageRank and over Shapley values (COLE's code)."""
EXACT_UP_TO = 8
"""Members up to which the Shapley values are exact: 2^8 coalitions."""


def pagerank(weights: np.ndarray, damping: float = DAMPING) -> np.ndarray:
    """PageRank of a weighted directed graph, solved as linear equations.

    Args:
        weights: (n, n), [i, j] the weight >= 0 of the edge from i to j; a node without edges leads to all alike.
        damping: Share of steps that follow an edge.

    Returns:
        (n,) chances, which sum to 1.
    """
    n = len(weights)
    sums = weights.sum(1, keepdims=True)
    steps = np.where(sums > 0, weights / np.where(sums > 0, sums, 1.0), 1.0 / n)
    return np.asarray(np.linalg.solve(np.eye(n) - damping * steps.T, np.full(n, (1 - damping) / n)))


def softmax(values: np.ndarray) -> np.ndarray:
    """Chances (n,) in proportion to exp(values)."""
    powers = np.exp(values - values.max())
    return np.asarray(powers / powers.sum())


def coalition_value(payoffs: np.ndarray, members: Sequence[int]) -> float:
    """Worth of a coalition: sum over i and j of sigma_j U_ij / |S|, where sigma favours a low PageRank in it.

    Args:
        payoffs: (n, n).
        members: The coalition S; empty is worth 0.
    """
    if not members:
        return 0.0
    own = payoffs[np.ix_(members, members)]
    sigma = softmax(-SHARPNESS * pagerank(own))
    return max(0.0, float((own @ sigma).sum()) / len(own))


def shapley_values(
    payoffs: np.ndarray, marginals: str = SIGNED, permutations: int = 200, rng: np.random.Generator | None = None
) -> np.ndarray:
    """Additions of each member to the coalitions that it joins, in the mean over all orders of joining.

    Exact for up to `EXACT_UP_TO` members; beyond, the mean over random orders and all their rotations (ours): every
    member is as often at every place, so that members who are alike have like values.

    Args:
        payoffs: (n, n).
        marginals: `"signed"`: what a member adds may be negative (the Shapley value). `"clamped"`: negative additions
            count as 0 (COLE's code).
        permutations: Orders where they are drawn, >= 1, rounded up to a multiple of n; COLE: 200.
        rng: Draws the orders; needed for more than `EXACT_UP_TO` members.

    Returns:
        (n,) values.
    """
    n = len(payoffs)
    lowest = 0.0 if marginals == CLAMPED else -math.inf

    @cache
    def worth(members: tuple[int, ...]) -> float:
        return coalition_value(payoffs, members)

    values = np.zeros(n)
    for before, joining, weight in _joins(n, permutations, rng):
        added = worth(tuple(sorted((*before, joining)))) - worth(tuple(sorted(before)))
        values[joining] += weight * max(lowest, added)
    return values


def _joins(n: int, permutations: int, rng: np.random.Generator | None) -> Iterator[tuple[Sequence[int], int, float]]:
    """Coalitions, members that join them, and the weight of it."""
    if n <= EXACT_UP_TO:
        for joining in range(n):
            others = [member for member in range(n) if member != joining]
            for size in range(n):
                weight = 1.0 / (n * math.comb(n - 1, size))
                for before in combinations(others, size):
                    yield before, joining, weight
        return
    if rng is None:
        raise ValueError(f"{n} members need `rng`: their Shapley values are sampled")
    draws = math.ceil(permutations / n)
    for _ in range(draws):
        drawn = rng.permutation(n).tolist()
        for turn in range(n):
            order = drawn[turn:] + drawn[:turn]
            for place, joining in enumerate(order):
                yield order[:place], joining, 1.0 / (draws * n)


def symmetrised(payoffs: np.ndarray) -> np.ndarray:
    """The mean (n, n) over both seats."""
    return np.asarray((payoffs + payoffs.T) / 2)


def preference_centrality(payoffs: np.ndarray) -> np.ndarray:
    """1 minus the in-degree centrality in the preference graph; low for members that many play best with.

    Each member has one edge, to the partner with whom its payoff is highest (it may be itself; of equal ones the last
    member), and none if all its payoffs are 0. An in-degree is divided by n - 1, so values may be below 0.

    Args:
        payoffs: (n, n), symmetrised.

    Returns:
        (n,) eta.
    """
    n = len(payoffs)
    indegrees = np.zeros(n)
    for row in payoffs:
        if row.max() > 0:
            indegrees[n - 1 - int(np.argmax(row[::-1]))] += 1
    return np.asarray(1.0 - indegrees / max(1, n - 1))


def entropy(weights: np.ndarray) -> float:
    """Entropy in nats of weights >= 0, normalised; log(n) if all are alike."""
    chances = weights / weights.sum()
    held = chances[chances > 0]
    return float(-(held * np.log(held)).sum())
