"""Scripted opponents of the strategy game: what they remember, whom they count, whom they drive off."""

from __future__ import annotations

import numpy as np
import pytest

from rllib_llm_comm.envs.minirts.engine import opponents
from rllib_llm_comm.envs.minirts.engine.rts_game import RTSGame
from rllib_llm_comm.envs.minirts.engine.units import (
    ARCHER,
    BARRACK,
    BLACKSMITH,
    DRAGON,
    GUARD_TOWER,
    NUM_TYPES,
    PEASANT,
    TOWN_HALL,
)

# Words of the random stream that one act takes for the sequence of what is produced.
SHUFFLE = NUM_TYPES - 1
ENEMY_HOME = [(1, TOWN_HALL, 28, 28), (1, PEASANT, 28, 30)]


def scripted(name, units):
    """A game in which a scripted opponent acts for player 0 at each tick, and nobody for player 1."""
    game = RTSGame.scenario([(0, TOWN_HALL, 5, 5), *units, *ENEMY_HOME], (0, 100))
    opponents.enter(game.record, 0, name, seed=0, every=1)
    return game


@pytest.mark.parametrize(("queued", "more"), [(None, 1), (BARRACK, 0)])
def test_a_type_is_drawn_against_archers_without_a_melee_producer_a_queued_one_included(queued, more):
    game = scripted("strong", [(0, PEASANT, 8, 5), (1, ARCHER, 14, 5)])
    if queued is not None:
        game.record["ai_queued"][0, 0] = queued
    before = int(game.record["rng_at"][0, 0])
    game.run(1)
    assert int(game.record["rng_at"][0, 0]) - before == SHUFFLE + more


def test_only_producers_that_still_stand_are_countered_and_a_found_base_stays_found():
    game = scripted("strong", [(0, PEASANT, 4, 8), (0, DRAGON, 9, 5), (1, BARRACK, 12, 5)])
    barrack = next(unit for unit in game.units(1) if unit.type == BARRACK)
    game.record["money"][0, 0] = 200
    game.run(1)
    assert game.memory["wanted"][0][BLACKSMITH] and not game.memory["scout"][0]
    game.record["money"][0, 0] = 0
    game.record["hp"][0, barrack.ref % game.record["hp"].shape[1]] = 1
    while game.unit(barrack.ref) is not None:
        game.run(1)
        assert game.tick < 200
    game.record["money"][0, 0] = 200
    game.run(1)
    assert set(np.flatnonzero(game.memory["wanted"][0])) == {PEASANT, GUARD_TOWER} and not game.memory["scout"][0]


@pytest.mark.parametrize(("away", "attacks"), [(2.9, True), (3.0, True), (3.1, False)])
def test_peasants_up_to_three_cells_away_are_driven_off(away, attacks):
    game = scripted("simple", [(0, PEASANT, 8, 5), (1, PEASANT, 8 + away, 5)])
    game.run(1)
    assert (game.units(0)[1].order == "ATTACK") is attacks
