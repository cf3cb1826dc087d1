"""Planners on the frozen lake: they know what the walkers know, which is not enough."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.frozen_lake import parallel_env
from rllib_llm_comm.envs.frozen_lake.env import ENV_ID
from rllib_llm_comm.evaluation.planner_scores import PlannedGames, PlanningSetup, ScriptedExecutor
from rllib_llm_comm.sama.planned_env import PlannedSubgoals
from rllib_llm_comm.sama.planners import ScriptedPlanner
from rllib_llm_comm.sama.planning_game import planning_game
from rllib_llm_comm.sama.plans import DONE, PlanRequest
from rllib_llm_comm.sama.reflection import ReflectivePlay


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
    player = planning_game(env).player()
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


@given(st.integers(0, 9999), st.data())
def test_walkers_take_a_shortest_way_and_stay(seed, data):
    env = parallel_env(layout="random", layout_seed=seed, holes=0.0, size=data.draw(st.integers(3, 6)))
    env.reset(seed=0)
    game = planning_game(env)
    agent, other = data.draw(st.permutations(("alice", "bob")))
    subgoal = data.draw(st.sampled_from(game.library(agent)))
    start = game.state()
    effort = game.effort(start, agent, subgoal)
    steps = 0
    while (
        env.agents and steps < 20 and not game.waits(game.state(), agent, subgoal) and "arrived" not in env.lake.fates
    ):
        env.step(game.player().act(None, told(**{agent: subgoal, other: ""})))
        steps += 1
    state = game.state()
    i = ("alice", "bob").index(other)
    assert state.cells[i] == start.cells[i]
    if game.waits(state, agent, subgoal):
        assert effort <= steps <= effort + 2  # around the other one, if that stands in the way
        env.step(game.player().act(None, told(**{agent: subgoal, other: ""})))
        assert game.state().cells == state.cells
    else:  # its target was on the way, or the other one stands where it should go
        assert "arrived" in state.fates or game.meant(subgoal) == start.cells[i]


def told(**subgoals):
    return {agent: {"subgoal": subgoal} for agent, subgoal in subgoals.items()}


def test_walkers_go_where_somebody_has_been():
    env = parallel_env(layout=["1..", ".H.", "..2", "a.b"])
    env.reset(seed=0)
    game = planning_game(env)
    for subgoal, steps in (("go to column 2, row 0", 2), ("go to column 2, row 1", 1), ("go to column 0, row 1", 4)):
        for _ in range(steps):
            env.step(game.player().act(None, told(alice=subgoal, bob="")))
    assert env.lake.cells[0] == (0, 1)  # not by the two steps over the hole


@given(st.integers(0, 9999), st.sampled_from([0.0, 0.5]))
def test_walkers_are_not_sent_into_one_cell_by_themselves(seed, slip):
    env = PlannedSubgoals(parallel_env(layout="random", layout_seed=seed, size=3, slip=slip, horizon=30), "random")
    observations, infos = env.reset(seed=seed)
    while env.agents:
        observations, *_, infos = env.step(env.game.player().act(None, observations))
        if not slip:
            assert not any("blocked" in info["events"] for info in infos.values())


def test_rllib_planning_knows_the_lakes():
    executor = ScriptedExecutor(ENV_ID)
    assert list(executor.scenarios) == ["4x4", "8x8", "random"]
    played = [PlannedGames(executor, {"layout": "random"}, PlanningSetup()).play(seed) for seed in (1, 1)]
    assert played[0] == played[1] and played[0]["metrics"]["subgoals_completed"] >= 1


def test_an_episode_can_be_put_back():
    env = parallel_env(slip=0.6, horizon=40)
    played = ReflectivePlay(env, planning_game(env).player(), ScriptedPlanner(), patience=3).play(seed=3)
    again = ReflectivePlay(env, planning_game(env).player(), ScriptedPlanner(), patience=3, recover="replay").play(
        seed=3
    )
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
