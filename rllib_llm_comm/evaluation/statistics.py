"""Statistics for a handful of runs (Agarwal et al. 2021, arXiv 2108.13264), and information measures for talk, in nats.

Scores are arrays (runs, tasks): one row per seed, one column per scenario. The library that came with that paper
needs packages of a few hundred megabytes that nothing else here uses; these are its definitions in NumPy.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

_DRAWS = 5000  # of a bootstrap

Statistic = Callable[..., Any]
"""A function of values and an `axis` to take it over, as NumPy's; without one over all values."""


class Interval(NamedTuple):
    """A figure with its confidence interval."""

    value: float
    low: float
    high: float

    def overlaps(self, other: Interval) -> bool:
        """True if the intervals have a point in common."""
        return self.low <= other.high and other.low <= self.high

    def rounded(self) -> dict[str, float]:
        """The three figures by name with four decimals, and no minus before a zero."""
        return {name: round(value, 4) + 0.0 for name, value in self._asdict().items()}


def rounded(value: Any, digits: int = 4) -> Any:
    """Plain values with few digits, and no minus before a zero: figures are read by people, and files are kept."""
    if isinstance(value, Mapping):
        return {key: rounded(one, digits) for key, one in value.items()}
    return round(value, digits) + 0.0 if isinstance(value, float) else value


def wilson(successes: int, count: int) -> Interval:
    """A share of at least one attempt with its 95 % confidence interval (Wilson 1927)."""
    z = 1.96
    share, spread = successes / count, z * z / count
    middle = (share + spread / 2) / (1 + spread)
    half = z * math.sqrt(share * (1 - share) / count + spread / (4 * count)) / (1 + spread)
    return Interval(share, max(0.0, middle - half), min(1.0, middle + half))


def same_share(successes: int, count: int, other_successes: int, other_count: int) -> float:
    """The two-sided p-value of the test that two shares are the same (normal approximation, pooled variance).

    It is 1 if nothing or everything was a success. Numbers of attempts are at least 1.
    """
    pooled = (successes + other_successes) / (count + other_count)
    variance = pooled * (1 - pooled) * (1 / count + 1 / other_count)
    if variance == 0:
        return 1.0
    return math.erfc(abs(successes / count - other_successes / other_count) / math.sqrt(2 * variance))


class Estimate(NamedTuple):
    """A figure with its standard error over runs; NaN where there are too few."""

    value: float
    standard_error: float


def jackknife(runs: int, statistic: Callable[[np.ndarray], float]) -> Estimate:
    """A figure of several runs with the jackknife's standard error, of leaving one run out at a time.

    Of a mean that is the usual standard error. It holds also for means over pairs of runs, such as cross-play, whose
    pairs are not independent: the spread of the runs' means alone would be about half of it.

    Args:
        runs: Number of runs.
        statistic: The figure of the runs with the given indices; NaN if they are too few.
    """
    every = np.arange(runs)
    without = np.array([statistic(np.delete(every, run)) if runs > 1 else np.nan for run in every])
    error = math.sqrt((runs - 1) / runs * float(((without - without.mean()) ** 2).sum()))
    return Estimate(float(statistic(every)), error)


def iqm(scores: np.ndarray, axis: int | None = None) -> Any:
    """Interquartile mean: the mean of the middle half of the scores.

    A quarter of the values, rounded down, is left out at either end.

    Args:
        scores: Any shape, at least one value.
        axis: The axis over which it is taken; `None` for all scores.
    """
    ordered = np.sort(np.asarray(scores, np.float64), axis=axis)
    ordered = ordered if axis is None else np.moveaxis(ordered, axis, -1)
    cut, count = ordered.shape[-1] // 4, ordered.shape[-1]
    return ordered[..., cut : count - cut].mean(-1)


def middle_of(count: int) -> Statistic:
    """The statistic of so many runs: the interquartile mean, of fewer than four the mean."""
    return iqm if count >= 4 else np.mean


def bootstrap(
    scores: np.ndarray, statistic: Statistic = iqm, *, level: float = 0.95, draws: int = _DRAWS, seed: int = 0
) -> Interval:
    """A figure with its stratified percentile-bootstrap interval: runs are drawn anew within each task.

    With few runs such intervals are too narrow: of four normally distributed ones a nominal 95 % holds 87 % (IQM; by
    simulation).

    Args:
        scores: (runs, tasks), or (runs,) for one task.
        statistic: Function of the scores, of one sample or of many.
        level: Nominal coverage, in (0, 1).
        draws: Bootstrap samples.
        seed: Fixes them.
    """
    table = _table(scores)
    (samples,) = _drawn([table], draws, seed)
    return _interval(statistic(table), statistic(samples.reshape(draws, -1), axis=-1), level)


def bootstrap_difference(ours: np.ndarray, other: np.ndarray, statistic: Statistic = iqm) -> Interval:
    """The difference of a figure between two systems, ours minus the other, as of `bootstrap`."""
    tables = _table(ours), _table(other)
    first, second = (statistic(one.reshape(_DRAWS, -1), axis=-1) for one in _drawn(tables, _DRAWS))
    return _interval(statistic(tables[0]) - statistic(tables[1]), first - second)


def permutation_test(ours: np.ndarray, other: np.ndarray, *, draws: int = 20_000) -> float:
    """Two-sided permutation test of equal means of two sets of runs.

    All divisions of the runs into two groups are gone through where there are at most `draws`; otherwise so many are
    drawn, with the observed one counted among them.

    Returns:
        The share of divisions whose means differ at least as much.
    """
    pooled = np.concatenate([np.asarray(ours, np.float64).ravel(), np.asarray(other, np.float64).ravel()])
    count, total = np.size(ours), len(pooled)

    def difference(chosen: np.ndarray) -> np.ndarray:
        first = pooled[chosen].sum(1)
        return np.asarray(np.abs(first / count - (pooled.sum() - first) / (total - count)))

    observed = difference(np.arange(count)[None])[0] - 1e-12  # rounding must not exclude equal divisions
    if math.comb(total, count) <= draws:
        return float((difference(np.array(list(itertools.combinations(range(total), count)))) >= observed).mean())
    rng = np.random.default_rng(0)
    drawn = np.stack([rng.permutation(total)[:count] for _ in range(draws - 1)])
    return float(((difference(drawn) >= observed).sum() + 1) / draws)


def probability_of_improvement(ours: np.ndarray, other: np.ndarray, *, draws: int = 2000) -> Interval:
    """The probability that a run of one system beats a run of the other, averaged over tasks; ties count half.

    That is the Mann-Whitney statistic U divided by the number of pairs. Scores are (runs, tasks) of the same tasks.
    """
    tables = _table(ours), _table(other)
    parts = max(1, draws // 100)  # of all at once the pairs of many seeds would take gigabytes
    drawn = zip(*(np.array_split(one, parts) for one in _drawn(tables, draws)), strict=True)
    return _interval(_wins(*tables), np.concatenate([_wins(one, two) for one, two in drawn]))


def quartiles(curves: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """First quartile, median and third quartile over runs of (runs, points): the band that the Verco paper draws."""
    low, middle, high = np.percentile(np.asarray(curves, np.float64), [25, 50, 75], axis=0)
    return low, middle, high


def on_grid(x: Sequence[float], y: Sequence[float], grid: np.ndarray) -> np.ndarray:
    """A curve at other points, linearly between its own; NaN before its first and behind its last finite one.

    Points ascend; values that are not finite are left out.
    """
    known = np.isfinite(np.asarray(y, np.float64))
    if not known.any():
        return np.full(len(grid), np.nan)
    xs, ys = np.asarray(x, np.float64)[known], np.asarray(y, np.float64)[known]
    inside = (grid >= xs[0]) & (grid <= xs[-1])
    return np.where(inside, np.interp(grid, xs, ys), np.nan)


def lastingly_reached(x: Sequence[float], y: Sequence[float], threshold: float) -> float:
    """The first point from which a curve is at least at a threshold until its end.

    A first crossing alone may be luck: a mean over few episodes goes up and down.

    Args:
        x: Ascending points.
        y: Values; those that are not finite (nothing was measured there) are left out.
        threshold: The value to reach.

    Returns:
        The point; infinite if the last value lies below the threshold or there is none.
    """
    reached = float("inf")
    for point, value in zip(x, y, strict=True):
        if np.isfinite(value):
            reached = min(reached, float(point)) if value >= threshold else float("inf")
    return reached


def _table(scores: np.ndarray) -> np.ndarray:
    table = np.asarray(scores, np.float64)
    table = table[:, None] if table.ndim == 1 else table
    if table.ndim != 2 or table.size == 0:
        raise ValueError(f"scores have shape {np.shape(scores)} but must be (runs,) or (runs, tasks)")
    return table


def _drawn(tables: Sequence[np.ndarray], draws: int, seed: int = 0) -> list[np.ndarray]:
    """Per table (draws, runs, tasks): each task's runs, drawn with replacement, of all tables in turn."""
    rng = np.random.default_rng(seed)
    ends = np.cumsum([table.size for table in tables])
    if len({len(table) for table in tables}) == 1:  # the same numbers in one call
        rows = rng.integers(len(tables[0]), size=(draws, ends[-1]))
    else:
        in_turn = [[rng.integers(len(table), size=table.size) for table in tables] for _ in range(draws)]
        rows = np.array([np.concatenate(own) for own in in_turn])
    return [
        np.take_along_axis(table[None], own.reshape(draws, *table.shape), axis=1)
        for table, own in zip(tables, np.split(rows, ends[:-1], axis=1), strict=True)
    ]


def _interval(value: float, found: np.ndarray, level: float = 0.95) -> Interval:
    low, high = np.quantile(found, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(value), float(low), float(high))


def _wins(one: np.ndarray, two: np.ndarray) -> Any:
    """Of tables, or of samples of them (draws, runs, tasks), for each."""
    first, second = one[..., :, None, :], two[..., None, :, :]
    return ((first > second) + 0.5 * (first == second)).mean((-3, -2, -1))


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
    """Plug-in entropy of at least one sample, in nats."""
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
    """Mutual information of two variables (equally many samples) with Miller and Madow's correction, untested."""
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
    """The slope of log frequency over log rank of all words (least squares), about -1 in natural language.

    It is `None` with fewer than three different words.
    """
    counts = sorted(Counter(words).values(), reverse=True)
    if len(counts) < _LEAST_WORDS:
        return None
    return float(np.polyfit(np.log(np.arange(1, len(counts) + 1)), np.log(counts), 1)[0])


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction of a family of tests.

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
