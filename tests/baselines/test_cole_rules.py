"""COLE's arithmetic: PageRank, Shapley values, partners' weights, who is accepted, removed and kept."""

from __future__ import annotations

from itertools import permutations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from rllib_llm_comm.baselines.population import cole
from rllib_llm_comm.baselines.population.cole import (
    COLEPopulation,
    COLESettings,
    coalition_value,
    entropy,
    is_accepted,
    kept_member,
    pagerank,
    partner_weights,
    preference_centrality,
    shapley_values,
)

ODD = np.array([[10.0, 8.0, 1.0], [8.0, 10.0, 1.0], [1.0, 1.0, 10.0]])
"""Two members that understand each other, and one that nobody does."""
payoffs = st.integers(2, 5).flatmap(lambda n: arrays(float, (n, n), elements=st.floats(0, 100)))


@given(payoffs)
def test_pagerank_is_that_of_networkx(weights):
    graph = nx.DiGraph()
    graph.add_nodes_from(range(len(weights)))
    graph.add_weighted_edges_from((i, j, w) for i, row in enumerate(weights) for j, w in enumerate(row) if w > 1e-9)
    known = nx.pagerank(graph, tol=1e-12, max_iter=2000)
    np.testing.assert_allclose(pagerank(np.where(weights > 1e-9, weights, 0.0)), list(known.values()), atol=1e-9)


def test_signed_values_find_the_odd_one_and_clamped_ones_do_not():
    """The values that the released formulas have on this matrix, the clamp aside and with it."""
    values = shapley_values(ODD)
    np.testing.assert_allclose(values, [2.2895, 2.2895, 0.5395], atol=5e-5)
    np.testing.assert_allclose(shapley_values(ODD, "clamped"), [10 / 3] * 3)
    weights = partner_weights(values, np.zeros(3))
    assert weights[2] / weights.sum() > 0.9, "it is drawn most"


@given(payoffs)
def test_values_are_those_of_all_orders_and_share_out_the_whole(matrix):
    n = len(matrix)
    orders = list(permutations(range(n)))
    for marginals, lowest in (("signed", -np.inf), ("clamped", 0.0)):
        slow = np.zeros(n)
        for order in orders if n < 5 else ():
            for place, joining in enumerate(order):
                added = coalition_value(matrix, order[: place + 1]) - coalition_value(matrix, order[:place])
                slow[joining] += max(lowest, added) / len(orders)
        if n < 5:
            np.testing.assert_allclose(shapley_values(matrix, marginals), slow, atol=1e-8)
    assert shapley_values(matrix).sum() == pytest.approx(coalition_value(matrix, range(n)), abs=1e-6)


def test_equal_payoffs_give_equal_values():
    for n in (1, 3, 12):
        for level in (0.0, 7.0):
            values = shapley_values(np.full((n, n), level), rng=np.random.default_rng(0))
            np.testing.assert_allclose(values, values[0], atol=1e-9)
            weights = partner_weights(values, np.zeros(n))
            np.testing.assert_allclose(weights, 1 / n)
            assert entropy(weights) == pytest.approx(np.log(n))


def test_sampled_values_come_close_to_exact_ones(monkeypatch):
    matrix = np.random.default_rng(1).uniform(0, 100, (7, 7))
    exact = shapley_values(matrix)
    monkeypatch.setattr(cole, "EXACT_UP_TO", 2)
    drawn = [shapley_values(matrix, permutations=k, rng=np.random.default_rng(0)) for k in (20, 2000)]
    errors = [np.abs(values - exact).max() for values in drawn]
    assert errors[1] < 0.05 * np.ptp(exact) and errors[1] < errors[0]
    with pytest.raises(ValueError, match="rng"):
        shapley_values(matrix)


def test_the_literal_bonus_outweighs_the_values_and_ours_does_not():
    values = np.linspace(0.0, 1.0, 50)
    visits = np.zeros(50)
    visits[0] = 1
    chances = {bonus: partner_weights(values, visits, bonus) for bonus in (None, 0.0, 1.0)}
    chances = {bonus: weights / weights.sum() for bonus, weights in chances.items()}
    assert chances[1.0].max() < 0.03 and entropy(chances[1.0]) > 0.99 * np.log(50)
    assert chances[None].max() / chances[None].min() > 2 * chances[1.0].max() / chances[1.0].min()
    assert entropy(chances[0.0]) < entropy(chances[None]) < entropy(chances[1.0])
    assert chances[None][0] < chances[0.0][0], "a member that was drawn is drawn less"


def test_preferences():
    # 0 and 1 like 1 best, 2 likes itself best: in-degrees 0, 2, 1 of 2 possible.
    liked = np.array([[1.0, 5.0, 0.0], [5.0, 6.0, 1.0], [0.0, 1.0, 3.0]])
    np.testing.assert_allclose(preference_centrality(liked), [1.0, 0.0, 0.5])
    np.testing.assert_allclose(preference_centrality(np.ones((3, 3))), [1.0, 1.0, -0.5])
    np.testing.assert_allclose(preference_centrality(np.zeros((3, 3))), [1.0, 1.0, 1.0])


def test_acceptance():
    """The oldest of 20 members is the one whom all prefer: a learner has to try three times."""
    scores = np.ones((21, 21))
    scores[:, 0] = scores[0] = 9.0
    assert [is_accepted(scores, 30, tries, 5) for tries in (1, 2, 3)] == [False, False, True]
    assert is_accepted(scores, 4, 1, 5) and not is_accepted(scores, 5, 1, 5)
    for preferred, early, late in ((20, True, True), (17, True, True), (16, False, True), (15, False, True)):
        scores = np.ones((21, 21))
        scores[:, preferred] = scores[preferred] = 9.0
        assert is_accepted(scores, 50, 1, 5) is early and is_accepted(scores, 51, 1, 5) is late


def test_members_come_and_go(monkeypatch):
    """One of the oldest members makes room, here of the two oldest, and its payoffs go with it."""
    monkeypatch.setattr(cole, "OLDEST", 2)
    gone = set()
    for seed in range(30):
        population = COLEPopulation(COLESettings(initial_size=1, most_members=2), 0, 10.0, seed)
        assert population.judge(1, [8.0], [8.0], 10.0)
        np.testing.assert_array_equal(population.payoffs, ODD[:2, :2])
        assert [population.judge(2, [1.0, 2.0], [3.0, 4.0], 10.0) for _ in range(3)][-1]
        grown = np.array([[10.0, 8.0, 3.0], [8.0, 10.0, 4.0], [1.0, 2.0, 10.0]])
        np.testing.assert_array_equal(population.payoffs, grown[np.ix_(population.members, population.members)])
        gone |= {0, 1, 2} - set(population.members)
    assert gone == {0, 1}


def test_the_kept_member_plays_best_with_the_oldest_in_both_seats():
    scores = np.ones((12, 12))
    scores[3, :10] = 5.0  # as player 0
    scores[:10, 7] = 4.0  # as player 1
    assert kept_member(scores) == 3
    scores[:10, 7] = 6.0
    assert kept_member(scores) == 7
    scores[11, 10:] = 99.0  # with the two newest, which does not count
    assert kept_member(scores) == 7
    assert kept_member(np.zeros((3, 3))) == 2, "of equal ones the newest: the oldest has learned nothing"
