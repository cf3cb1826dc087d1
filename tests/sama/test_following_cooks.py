"""Cooks who do as they are told: they get there, do it once, and then stay."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from kitchens import kitchen

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.overcooked_ai.layouts import LAYOUT_NAMES
from rllib_llm_comm.envs.overcooked_ai.names import COOKS
from rllib_llm_comm.envs.overcooked_ai.routes import routes_of
from rllib_llm_comm.sama.planning_game import PlanningGame

PATIENCE = 40


def step(game, told):
    env, player = game.env, game.player()
    asked = {
        agent: {"subgoal": told.get(agent, "")} for agent in env.agents if env.level.needs_action(env.players[agent])
    }
    env.step(player.act(player.begin(0), asked))
    return game.passed()


@pytest.mark.parametrize("level", ["goal_cell", "primitive", "goal"])
@settings(max_examples=40)
@given(st.sampled_from(LAYOUT_NAMES), st.integers(0, 100_000), st.data())
def test_whoever_can_get_there_does_it_once_and_stays(level, layout, seed, data):
    game = kitchen(layout, seed, action_level=level)
    env, agent = game.env, data.draw(st.sampled_from(COOKS))
    subgoal = data.draw(st.sampled_from(game.possible(game.state(), agent)))
    cook, other = env.kitchen.cook(COOKS.index(agent)), env.kitchen.cook(1 - COOKS.index(agent))
    meant = game.meant(subgoal)
    way = routes_of(env.kitchen.layout).path((cook.cell, cook.facing), meant.cell, frozenset({other.cell}))
    assume(way is not None and not game.waits(game.state(), agent, subgoal))
    assume(level != "goal" or meant.verb != "go")
    done = steps = 0
    while steps < PATIENCE + 12:
        passed = step(game, {agent: subgoal})
        done += sum(game.done(a, b, agent, subgoal) for a, b in zip(passed, passed[1:], strict=False))
        steps += len(passed) - 1
    assert done == 1
    assert env.kitchen.cook(1 - COOKS.index(agent)).cell == other.cell  # who is told nothing stays


@pytest.mark.parametrize("level", ["goal_cell", "primitive", "goal"])
def test_what_cannot_be_done_now_is_waited_for(level):
    game = kitchen(action_level=level)
    before = [game.env.kitchen.cook(i) for i in range(2)]
    for _ in range(6):
        step(game, {"alice": "deliver the soup at the serving counter", "bob": "put the onion into the pot"})
    assert [game.env.kitchen.cook(i) for i in range(2)] == before


def test_a_game_without_a_player_says_so():
    class Bare(PlanningGame):
        state = passed = manual = situation = situation_of = plain = library = parse = refusal = done = None

    with pytest.raises(UserError, match="Bare has no player who follows subgoals"):
        Bare(None).player()
