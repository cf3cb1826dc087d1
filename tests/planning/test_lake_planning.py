"""Planners on the frozen lake: they know what the walkers know, which is not enough."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rllib_llm_comm.envs.frozen_lake import parallel_env
from rllib_llm_comm.errors import UserError
from rllib_llm_comm.planning.env_wrapper import PlannedSubgoals
from rllib_llm_comm.planning.game import planning_game
from rllib_llm_comm.planning.planners import ScriptedPlanner
from rllib_llm_comm.planning.plans import DONE, PlanRequest
from rllib_llm_comm.planning.reflection import ReflectivePlay

MOVES = {(0, 0): 0, (-1, 0): 1, (0, 1): 2, (1, 0): 3, (0, -1): 4}


class Obedient:
    """Goes straight where it is told, first sideways."""

    def __init__(self, env):
        self.game = planning_game(env)

    def begin(self, seed):
        return None

    def act(self, memory, observations):
        state, actions = self.game.state(), {}
        for i, agent in enumerate(("alice", "bob")):
            if agent in observations:
                column, row = map(int, observations[agent]["subgoal"].removeprefix("go to column ").split(", row "))
                x, y = state.cells[i]
                dx, dy = np.sign(column - x), np.sign(row - y)
                step = (int(dx), 0) if dx else (0, int(dy))
                actions[agent] = MOVES[step] if observations[agent]["action_mask"][MOVES[step]] else 0
        return actions


def test_subgoals_are_cells_and_nobody_is_told_what_is_there():
    env = parallel_env()
    env.reset(seed=0)
    game = planning_game(env)
    assert game.library("bob") == game.library("alice") and len(game.library("bob")) == 16
    assert game.parse("Please go to Column 2, Row 1.") == "go to column 2, row 1"
    assert game.parse("go to column 9, row 1") is None and game.parse("go home") is None
    told = game.manual() + game.situation(game.state()) + json.dumps(game.plain(game.state()))
    other = parallel_env(layout=["1a.2", "....", "..H.", "b..."])
    other.reset(seed=0)
    again = planning_game(other)
    assert told == again.manual() + again.situation(again.state()) + json.dumps(again.plain(again.state()))


def test_the_scripted_planner_sends_both_where_nobody_has_been():
    env = PlannedSubgoals(parallel_env(horizon=30))
    observations, _ = env.reset(seed=0)
    player = Obedient(env)
    while env.agents:
        told = [observations[agent]["subgoal"] for agent in ("alice", "bob")]
        assert told[0] != told[1]
        observations, rewards, *_, infos = env.step(player.act(None, observations))
    assert infos["alice"]["episode_metrics"]["fallen"] >= 1  # as nobody knows of the holes
    assert infos["alice"]["episode_metrics"]["subgoals_completed"] >= 3


@given(st.integers(0, 99), st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=20))
def test_a_subgoal_is_done_when_its_cell_is_entered(seed, actions):
    env = parallel_env(slip=0.5)
    env.reset(seed=seed)
    game = planning_game(env)
    for pair in actions:
        if not env.agents:
            return
        env.step(dict(zip(("alice", "bob"), pair, strict=True)))
        before, after = game.passed()
        assert after.cells == tuple(env.lake.cells) and after.seen >= before.seen and after.time == env.lake.time
        for i, agent in enumerate(("alice", "bob")):
            done = [subgoal for subgoal in game.library(agent) if game.done(before, after, agent, subgoal)]
            moved = before.cells[i] != after.cells[i]
            assert done == ([f"go to column {after.cells[i][0]}, row {after.cells[i][1]}"] if moved else [])
            if after.fates[i] != "walks":
                assert game.possible(after, agent) == [s for s in game.library(agent) if game.waits(after, agent, s)]


def test_an_episode_can_be_put_back():
    env = parallel_env(slip=0.6, horizon=40)
    played = ReflectivePlay(env, Obedient(env), ScriptedPlanner(), patience=3).play(seed=3)
    again = ReflectivePlay(env, Obedient(env), ScriptedPlanner(), patience=3, recover="replay").play(seed=3)
    assert json.dumps(played.to_json()) == json.dumps(again.to_json()) and played.reflections > 0
    assert any(outcome.how == DONE for attempts in played.rounds for outcome in attempts[-1].outcomes)


def test_there_is_no_skill_graph():
    env = parallel_env()
    env.reset(seed=0)
    game = planning_game(env)
    with pytest.raises(UserError, match="no skill graph"):
        game.skills(game.state())
    goal, _ = game.scripted(game.state())
    assert ScriptedPlanner().plan(PlanRequest(game, game.state())).goal == goal
