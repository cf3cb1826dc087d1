"""The strategy game under planners: subgoals in words, when they are done, and playing them."""

from __future__ import annotations

import json

import pytest

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs import minirts
from rllib_llm_comm.envs.minirts.commanders.tasks import Command, all_commands
from rllib_llm_comm.envs.minirts.engine.units import PEASANT
from rllib_llm_comm.evaluation.planner_scores import PlannedGames, PlanningSetup, ScriptedExecutor
from rllib_llm_comm.sama.planners import make_planner
from rllib_llm_comm.sama.planning_game import planning_game
from rllib_llm_comm.sama.plans import PlanRequest
from rllib_llm_comm.sama.reflection import ReflectivePlay

EVERY = list(range(1, 7))


def started(**settings):
    env = minirts.parallel_env(numbers=EVERY, **settings)
    env.reset(seed=0)
    return env, planning_game(env)


def step(env, **words):
    phrases = env.action_phrases("alice")
    return env.step({agent: phrases.index(words.get(agent, "wait")) for agent in env.agents})


def test_every_subgoal_is_read_back_and_an_action():
    env, game = started()
    assert game.library("alice") == env.action_phrases("alice")
    assert [game.parse(words) for words in game.library("bob")] == game.library("bob")
    assert game.parse("build 4 swordman") == "train 4 swordmen" and game.parse("win") is None


@pytest.mark.parametrize("decision_ticks", [50, 200])
def test_training_is_done_when_so_many_came_out(decision_ticks):
    env, game = started(num_agents=1, money=2000, decision_ticks=decision_ticks)
    done = []
    game.state()
    for decision in range(13):
        step(env, alice="wait" if decision else "train 3 peasants")
        before, after = game.passed()
        assert after.tick - before.tick == decision_ticks
        done.append(game.done(before, after, "alice", "train 3 peasants"))
        assert not done[-1] or env.team.counts()[PEASANT] == 6
    assert sum(done) == 1


def test_what_is_in_force_is_not_refused_and_what_cannot_be_is():
    env, game = started()
    state = game.state()
    assert "no building for it" in game.refusal(state, "bob", "train 2 spearmen")
    assert game.refusal(state, "bob", "build one barrack") == ""
    step(env, bob="build one barrack")
    state = game.state()
    assert game.refusal(state, "bob", "build one barrack") == ""
    assert game.refusal(state, "alice", "build one barrack") != ""


def test_the_scripted_plan_shares_the_work():
    _, game = started()
    plan = make_planner("scripted").plan(PlanRequest(game, game.state()))
    assert plan.by_agent() == {"alice": "mine with idle peasants", "bob": "mine with idle peasants"}
    for _ in range(3):
        env, game = started()
        step(env, alice="mine with idle peasants", bob="mine with idle peasants")
        step(env, alice="train 1 peasant")
        wanted = game.scripted(game.state())[1]
        assert len([words for words in wanted.values() if words.startswith("build")]) <= 1


def test_commanders_that_do_as_they_are_told_win():
    executor = ScriptedExecutor(minirts.ENV_ID)
    assert set(executor.scenarios) == {"simple", "medium", "medium2", "medium3", "strong"}
    game = PlannedGames(executor, {"opponent": "simple"}, PlanningSetup(patience=40))
    played = game.play(seed=1)
    assert played["return"] == played["metrics"]["won"] == 1 and played["metrics"]["subgoals_completed"] >= 5
    assert played["metrics"]["subgoals_stuck"] == played["metrics"]["subgoals_refused"] == 0


def test_followers_command_once_and_the_nearest_number():
    env = minirts.parallel_env(numbers=[1, 3], num_agents=1, money=2000)
    observations, _ = env.reset(seed=0)
    player = planning_game(env).player()

    def act(subgoal):
        action = player.act(player.begin(0), {"alice": {**observations["alice"], "subgoal": subgoal}})
        return env.action_phrases("alice")[action["alice"]], action

    assert act("")[0] == act("train 2 dragons")[0] == "wait"
    words, action = act("train 5 peasants")
    assert words == "train 3 peasants"
    observations = env.step(action)[0]
    assert act("train 5 peasants")[0] == "wait" and act("build one stable")[0] == "build one stable"


def test_a_saved_game_goes_on_the_same():
    env, game = started()
    for _ in range(10):
        step(env, alice="mine with idle peasants", bob="build one stable")
    saved, first = game.save(), []
    for target in (first, second := []):
        game.load(saved)
        for _ in range(10):
            step(env, alice="train 1 peasant")
            target.append(game.plain(game.state()))
    assert first == second


def test_both_ways_back_give_the_same_war():
    env, episodes = minirts.parallel_env(numbers=EVERY, observe=["text"], max_tick=1000), []
    for recover in ("snapshot", "replay"):
        planner = make_planner("random")
        play = ReflectivePlay(env, planning_game(env).player(), planner, patience=4, recover=recover)
        episodes.append(play.play(seed=2))
    assert json.dumps(episodes[0].to_json()) == json.dumps(episodes[1].to_json())
    # Some rounds were put back that did not begin with the game.
    assert any(len(attempts) > 1 for attempts in episodes[0].rounds[1:])


def test_reds_actions_have_no_subgoals():
    with pytest.raises(UserError, match="action_level"):
        planning_game(minirts.parallel_env(action_level="red"))


def test_commands_are_those_of_the_game():
    assert Command("train", 1, 6) in all_commands()
