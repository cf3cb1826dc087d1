"""PBT's bookkeeping: who learns with whom, fitness over both seats, what the worst takes over, how settings move."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rllib_llm_comm.baselines.population.pbt import PBTAgent, PBTPopulation, drawn_rounds, fitness, mutated

FACTORS = (0.75, 1.25)


@given(agents=st.integers(1, 6), seed=st.integers(0, 99))
def test_every_ordered_pair_once_and_each_agent_learns_k_times(agents, seed):
    rounds = drawn_rounds(agents, np.random.default_rng(seed))
    pairs = [pair for pairs in rounds for pair in pairs]
    assert sorted(pairs) == [(i, j) for i in range(agents) for j in range(agents)]
    assert Counter(learner for _, learner in pairs) == dict.fromkeys(range(agents), agents)
    assert all(sorted(learner for _, learner in side) == list(range(agents)) for side in rounds)


def test_the_order_is_random_and_fixed_by_the_seed():
    orders = [str(drawn_rounds(3, np.random.default_rng(seed))) for seed in range(30)]
    assert len(set(orders)) > 25 and orders[0] == str(drawn_rounds(3, np.random.default_rng(0)))
    first = Counter(drawn_rounds(3, np.random.default_rng(seed))[0][0][0] for seed in range(300))
    assert min(first.values()) > 70, "every partner comes first for the first learner equally often"


def test_fitness_counts_both_seats_and_itself():
    # Of agent 0: with itself 10 per 10 steps, with agent 1 (30 + 90) per (10 + 20) steps.
    rewards, lengths = np.array([[10.0, 30.0], [90.0, 5.0]]), np.array([[10.0, 10.0], [20.0, 10.0]])
    np.testing.assert_allclose(fitness(rewards, lengths), [(1.0 + 4.0) / 2, (4.0 + 0.5) / 2])
    np.testing.assert_allclose(fitness(rewards.T, lengths.T), fitness(rewards, lengths))
    np.testing.assert_allclose(fitness(rewards, np.full((2, 2), 2.0)), [(5 + 30) / 2, (30 + 2.5) / 2])


@given(fitnesses=st.lists(st.floats(-5, 5), min_size=2, max_size=5), seed=st.integers(0, 99))
def test_the_worst_takes_weights_count_and_mutated_settings_of_the_best(fitnesses, seed):
    agents = [PBTAgent(f"weights {i}", i, {"lr": 10.0**-i}) for i in range(len(fitnesses))]
    population = PBTPopulation(agents, seed)
    worst, best = population.select(np.array(fitnesses), np.zeros(len(agents)), agents, 1.0, FACTORS)
    after = population.agents
    assert fitnesses[worst] == min(fitnesses) and fitnesses[best] == max(fitnesses)
    if worst == best:
        assert after == agents
        return
    assert (after[worst].state, after[worst].runs) == (f"weights {best}", best)
    assert after[worst].settings["lr"] / 10.0**-best in (pytest.approx(0.75), pytest.approx(1.25))
    assert [agent for i, agent in enumerate(after) if i != worst] == [a for i, a in enumerate(agents) if i != worst]


@given(start=st.floats(0.01, 0.99), seed=st.integers(0, 99))
def test_lambda_stays_between_0_and_1(start, seed):
    rng, now = np.random.default_rng(seed), {"lambda_": start}
    for _ in range(30):
        following = mutated(now, rng, 1.0, FACTORS)
        step = min((1 - now["lambda_"]) / 2, now["lambda_"] / 2)
        assert abs(following["lambda_"] - now["lambda_"]) == pytest.approx(step)
        now = following
        assert 0.0 < now["lambda_"] < 1.0


def test_whole_numbers_are_truncated_and_at_least_1():
    rng = np.random.default_rng(0)
    assert {mutated({"num_epochs": 5}, rng, 1.0, FACTORS)["num_epochs"] for _ in range(40)} == {3, 6}
    assert {mutated({"num_epochs": 1}, rng, 1.0, FACTORS)["num_epochs"] for _ in range(40)} == {1}
    assert {type(value) for value in mutated({"num_epochs": 5, "lr": 1.0}, rng, 1.0, FACTORS).values()} == {int, float}


def test_settings_change_with_the_probability():
    rng = np.random.default_rng(0)
    changed = sum(mutated({"lr": 1.0}, rng, 0.33, FACTORS)["lr"] != 1.0 for _ in range(3000))
    assert changed / 3000 == pytest.approx(0.33, abs=0.03)
    assert mutated({"lr": 1.0}, rng, 0.0, FACTORS) == {"lr": 1.0}
