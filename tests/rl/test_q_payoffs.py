"""A payoff matrix whose best plan teams find, though it is not monotone."""

from __future__ import annotations

import numpy as np
import pytest
from team_games import greedy, matrix_game, plain, table, train

# PyMARL2's one-step game: what one agent earns with an action changes its sign with what the other does.
MILD = np.array([[12.0, -0.1, -0.1], [-0.1, 0, 0], [-0.1, 0, 0]])


@pytest.mark.parametrize("mixer", ["vdn", "qmix"])
def test_a_payoff_that_is_hardly_out_of_shape_is_played_best(mixer):
    team, _ = train(matrix_game(MILD), plain(mixer=mixer), 600, lr=2e-3)
    assert MILD[tuple(greedy(team, [[1.0]] * 2))] == 12
    if mixer == "vdn":  # the additive least squares: means of rows and columns, less that of all
        fit = MILD.mean(1)[:, None] + MILD.mean(0)[None] - MILD.mean()
        np.testing.assert_allclose(table(team, [1.0]), fit, atol=0.6)
    else:  # and a monotone one comes close to all of it
        np.testing.assert_allclose(table(team, [1.0]), MILD, atol=1.5)
