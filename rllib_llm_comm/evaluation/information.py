"""Information measures for talk: mutual information, causal influence, Zipf's slope; plain NumPy, in nats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

_LEAST_WORDS = 3
"""A line through fewer ranks says nothing about Zipf's law."""


@dataclass(frozen=True)
class MutualInformation:
    """Mutual information of two variables, estimated from samples.

    Attributes:
        nats: Plug-in estimate, biased upwards.
        corrected: The same after Miller and Madow's correction; may fall below 0.
        entropy: Plug-in entropy of the second variable: the most that `nats` can be.
        p_value: Share of permutations of the second variable over groups that tell at least as much, with the
            observed order counted among them; 1 / (permutations + 1) at the least.
        samples: Number of samples.
    """

    nats: float
    corrected: float
    entropy: float
    p_value: float
    samples: int


def entropy(values: Sequence[Hashable]) -> float:
    """Plug-in entropy of samples, in nats.

    Args:
        values: At least one sample.
    """
    counts = np.array(list(Counter(values).values()), np.float64)
    shares = counts / counts.sum()
    return float(-(shares * np.log(shares)).sum())


def mutual_information(
    spoken: Sequence[Hashable],
    known: Sequence[Hashable],
    groups: Sequence[Hashable],
    *,
    permutations: int = 999,
    seed: int = 0,
) -> MutualInformation:
    """Estimates I(spoken; known) with a permutation test.

    Samples of one group (an episode) share one value of `known`, so the test permutes that value over groups, not
    over samples. The correction of Miller and Madow adds (cells - 1) / 2n to each of the three entropies.

    Args:
        spoken: One value per sample, such as the meaning of a message.
        known: One value per sample, such as the order; the same within a group.
        groups: The group of each sample.
        permutations: Random permutations, >= 1.
        seed: Fixes them.

    Raises:
        ValueError: If there are no samples, or `known` differs within a group.
    """
    if not len(spoken) == len(known) == len(groups) or not spoken:
        raise ValueError(f"{len(spoken)}, {len(known)} and {len(groups)} samples; equal numbers above 0 are needed")
    said, groups_of = _numbers(spoken), _numbers(groups)
    facts = _numbers(known)
    fact_of = np.zeros(groups_of.max() + 1, np.int64)
    fact_of[groups_of] = facts
    if not np.array_equal(fact_of[groups_of], facts):
        raise ValueError("`known` differs within a group")
    nats, bias = _plug_in(said, facts)
    rng = np.random.default_rng(seed)
    # Rounding must not decide whether a permutation that changes nothing counts.
    as_much = sum(_plug_in(said, rng.permutation(fact_of)[groups_of])[0] >= nats - 1e-12 for _ in range(permutations))
    return MutualInformation(nats, nats + bias, entropy(known), (as_much + 1) / (permutations + 1), len(spoken))


def miller_madow(one: Sequence[Hashable], two: Sequence[Hashable]) -> float:
    """Mutual information of two variables with Miller and Madow's correction, without a test.

    Args:
        one: At least one sample.
        two: As many.
    """
    nats, bias = _plug_in(_numbers(one), _numbers(two))
    return nats + bias


def causal_influence(given: np.ndarray, others: np.ndarray) -> float:
    """Causal influence of a message (Lowe et al. 2019, arXiv 1903.05168; Jaques et al. 2019, arXiv 1810.08647).

    KL(given || mean of others), exact over the candidates. It is 0 for a listener that does not hear, and ln n for one
    that obeys one of n equally likely messages to the letter.

    Args:
        given: (K,) probabilities of the candidates behind the message that was heard.
        others: (M, K) the same behind M messages of other episodes, drawn as often as they are said.

    Returns:
        Nats; infinite if the listener now does what no other message makes it do.
    """
    mean = np.asarray(others, np.float64).mean(0)
    held = np.asarray(given, np.float64)
    used = held > 0
    with np.errstate(divide="ignore"):
        return float(max(0.0, (held[used] * (np.log(held[used]) - np.log(mean[used]))).sum()))


def zipf_slope(words: Sequence[str]) -> float | None:
    """The slope of log frequency over log rank, about -1 in natural language.

    Args:
        words: All words in all messages.

    Returns:
        The least-squares slope; `None` with fewer than three different words.
    """
    counts = sorted(Counter(words).values(), reverse=True)
    if len(counts) < _LEAST_WORDS:
        return None
    return float(np.polyfit(np.log(np.arange(1, len(counts) + 1)), np.log(counts), 1)[0])


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction of a family of tests.

    Args:
        p_values: One per test.

    Returns:
        Adjusted p-values in the same order; a test passes at level a if its value is at most a.
    """
    order = np.argsort(p_values)
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = highest
    return adjusted


def _numbers(values: Sequence[Hashable]) -> np.ndarray:
    known: dict[Hashable, int] = {}
    return np.array([known.setdefault(value, len(known)) for value in values], np.int64)


def _plug_in(one: np.ndarray, two: np.ndarray) -> tuple[float, float]:
    """Plug-in mutual information and Miller and Madow's correction of it."""
    table = np.zeros((one.max() + 1, two.max() + 1))
    np.add.at(table, (one, two), 1)
    cells = [_used(table.sum(1)), _used(table.sum(0)), _used(table)]
    first, second, joint = (float(-(c / c.sum() * np.log(c / c.sum())).sum()) for c in cells)
    sizes = [len(c) for c in cells]
    return first + second - joint, (sizes[0] + sizes[1] - sizes[2] - 1) / (2 * len(one))


def _used(counts: np.ndarray) -> np.ndarray:
    return counts[counts > 0]
