"""Statistics against SciPy, by hand, and by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from rllib_llm_comm.evaluation.statistics import (
    Interval,
    bootstrap,
    bootstrap_difference,
    iqm,
    lastingly_reached,
    on_grid,
    probability_of_improvement,
    quartiles,
)

ARRAYS = hnp.arrays(np.float64, hnp.array_shapes(min_dims=1, max_dims=2, max_side=9), elements=st.floats(-1e3, 1e3))


@given(ARRAYS)
def test_iqm_is_scipys_trimmed_mean(scores):
    assert iqm(scores) == pytest.approx(stats.trim_mean(scores, 0.25, axis=None), abs=1e-9)


def test_iqm_by_hand():
    assert iqm(np.array([0, 1, 2, 3, 4, 5, 6, 100])) == 3.5  # the middle four
    assert iqm(np.array([7.0])) == 7.0
    assert iqm(np.array([1.0, 2.0, 3.0])) == 2.0  # nothing to leave out


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 8), st.integers(1, 8), st.integers(0, 1000))
def test_probability_of_improvement_is_mann_whitney(m, n, seed):
    rng = np.random.default_rng(seed)
    x, y = rng.integers(0, 5, m).astype(float), rng.integers(0, 5, n).astype(float)
    expected = stats.mannwhitneyu(x, y).statistic / (m * n)
    found = probability_of_improvement(x, y, draws=50)
    assert found.value == pytest.approx(expected)
    assert 0 <= found.low <= found.high <= 1


def test_probability_of_improvement_averages_over_tasks():
    ours, other = np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([[0.0, 1.0], [0.0, 1.0]])
    assert probability_of_improvement(ours, other).value == 0.5
    assert probability_of_improvement(ours[:, :1], other[:, :1]) == Interval(1.0, 1.0, 1.0)


def test_bootstrap_is_as_wide_as_theory_says_draws_runs_within_a_task_and_is_fixed_by_its_seed():
    scores = np.random.default_rng(0).normal(size=400)
    found = bootstrap(scores, np.mean)
    half = 1.96 * scores.std() / 20
    assert found.value == pytest.approx(scores.mean())
    assert found.high - found.low == pytest.approx(2 * half, rel=0.05)
    levels = np.array([[0.0, 100.0], [0.0, 100.0], [0.0, 100.0]])  # of tasks; their difference adds no width
    assert bootstrap(levels, np.mean) == Interval(50.0, 50.0, 50.0)
    scores = np.random.default_rng(2).normal(size=(4, 3))
    assert bootstrap(scores) == bootstrap(scores)
    assert bootstrap(scores, seed=1) != bootstrap(scores)
    assert bootstrap(scores, np.median).value == pytest.approx(np.median(scores))


def test_differences_and_overlaps():
    assert bootstrap_difference(np.full(3, 2.0), np.ones(3)) == Interval(1.0, 1.0, 1.0)
    assert not Interval(1, 0.5, 1.5).overlaps(Interval(2, 1.6, 2.4))
    assert Interval(1, 0.5, 1.7).overlaps(Interval(2, 1.6, 2.4))


def test_curves():
    low, middle, high = quartiles(np.array([[0.0, 4.0], [1.0, 5.0], [2.0, 6.0], [3.0, 7.0], [4.0, 8.0]]))
    assert (low.tolist(), middle.tolist(), high.tolist()) == ([1, 5], [2, 6], [3, 7])
    grid = np.array([0.0, 1.0, 2.0, 3.0, 4.0])
    np.testing.assert_array_equal(on_grid([1, 2, 3], [float("nan"), 1.0, 3.0], grid), [np.nan, np.nan, 1, 3, np.nan])
    assert np.isnan(on_grid([1, 2], [float("nan")] * 2, grid)).all()


def test_a_lucky_moment_is_no_return_that_lasts():
    nan, never = float("nan"), float("inf")
    assert lastingly_reached([10, 20, 30], [0.1, 0.6, 0.5], 0.5) == 20
    assert lastingly_reached([10, 20, 30, 40, 50], [0.1, 0.9, 0.4, 0.6, 0.7], 0.5) == 40  # 20 was luck
    assert lastingly_reached([10, 20, 30], [0.1, 0.6, 0.4], 0.5) == never  # and lost again
    assert lastingly_reached([10, 20, 30, 40, 50], [nan, 0.6, nan, 0.7, nan], 0.5) == 20  # nothing measured is no loss
    assert lastingly_reached([10, 20], [nan, 0.6], 0.5) == 20
    assert lastingly_reached([10], [0.1], 0.5) == lastingly_reached([10], [nan], 0.5) == never


@pytest.mark.parametrize("scores", [np.zeros((0,)), np.zeros((2, 2, 2))])
def test_wrong_shapes(scores):
    with pytest.raises(ValueError, match="must be"):
        bootstrap(scores)
