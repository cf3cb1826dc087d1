"""Semi-Markov GAE against its definition and against RLlib's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ray.rllib.utils.postprocessing.value_predictions import compute_value_targets

from rllib_llm_comm.rl.train_batch import discounted_sum, gae_of_steps, semi_markov_gae, standardized

numbers = st.floats(-2, 2, allow_nan=False, width=32)
decisions = st.lists(st.tuples(st.lists(numbers, min_size=1, max_size=6), numbers), min_size=1, max_size=8)


@given(decisions, numbers, st.booleans(), st.floats(0, 1), st.floats(0, 1))
def test_equals_the_sum_over_later_errors(run, last_value, terminated, gamma, lambda_):
    """A_t = sum over l of gamma^(game steps from t to t+l) lambda^l delta_(t+l), as plain loops."""
    values = [value for _, value in run] + [last_value]
    durations = [len(steps) for steps, _ in run]
    rewards = [sum(gamma**k * r for k, r in enumerate(steps)) for steps, _ in run]
    deltas = []
    for t in range(len(run)):
        ahead = 0.0 if terminated and t == len(run) - 1 else values[t + 1]
        deltas.append(rewards[t] + gamma ** durations[t] * ahead - values[t])
    expected = []
    for t in range(len(run)):
        total = 0.0
        for later in range(t, len(run)):
            total += gamma ** sum(durations[t:later]) * lambda_ ** (later - t) * deltas[later]
        expected.append(total)
    paid = np.array([discounted_sum(steps, gamma) for steps, _ in run])
    advantages, targets = semi_markov_gae(paid, np.array(durations), np.array(values), terminated, gamma, lambda_)
    np.testing.assert_allclose(advantages, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(targets, np.array(expected) + values[:-1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("terminated", [True, False])
def test_ordinary_steps_give_rllibs_gae(terminated):
    rng = np.random.default_rng(0)
    rewards, values = rng.normal(size=6), rng.normal(size=7)
    flags = np.zeros(7, bool)
    ends = flags.copy()
    ends[5] = True
    theirs = compute_value_targets(
        values=values,
        rewards=np.append(rewards, 0.0),
        terminateds=ends if terminated else flags,
        truncateds=flags if terminated else ends,
        gamma=0.97,
        lambda_=0.9,
    )
    _, targets = semi_markov_gae(rewards, np.ones(6), values, terminated, 0.97, 0.9)
    np.testing.assert_allclose(targets, theirs[:6], rtol=1e-5)


@given(st.integers(0, 2**31), st.floats(0, 1), st.floats(0, 1))
def test_many_games_at_once_equal_one_after_the_other(seed, gamma, lambda_):
    rng = np.random.default_rng(seed)
    steps, games = 9, 3
    rewards, values = rng.normal(size=(2, steps, games))
    done = rng.random((steps, games)) < 0.3
    final, last = rng.normal(size=(steps, games)), rng.normal(size=games)
    advantages, targets = gae_of_steps(rewards, values, done, final, last, gamma, lambda_)
    for game in range(games):
        start = 0
        for stop in [*(np.flatnonzero(done[:, game]) + 1).tolist(), steps]:
            if stop == start:
                continue
            behind = final[stop - 1, game] if done[stop - 1, game] else last[game]
            one, target = semi_markov_gae(
                rewards[start:stop, game],
                np.ones(stop - start),
                np.append(values[start:stop, game], behind),
                False,
                gamma,
                lambda_,
            )
            np.testing.assert_allclose(advantages[start:stop, game], one, rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(targets[start:stop, game], target, rtol=1e-5, atol=1e-5)
            start = stop


def test_standardized_values():
    values = np.array([[1.0, np.nan], [3.0, 5.0]], np.float32)
    found = standardized(values)
    assert found.dtype == np.float32 and found[0, 1] == 0.0
    np.testing.assert_allclose(found[[0, 1, 1], [0, 0, 1]], [-(1.5**0.5), 0.0, 1.5**0.5], rtol=1e-6)
    np.testing.assert_array_equal(standardized(np.full(3, 7.0)), np.zeros(3))
    np.testing.assert_array_equal(standardized(np.full(2, np.nan)), np.zeros(2))
