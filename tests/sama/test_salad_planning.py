"""The textual kitchen under planners: who knows the order, who is told what to do, and when that is done."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.interface import HIDDEN, PRIVATE, secret_of
from rllib_llm_comm.envs.overcooked_text import ENV_ID, parallel_env
from rllib_llm_comm.evaluation.planner_scores import ScriptedExecutor
from rllib_llm_comm.sama.planned_env import PlannedSubgoals
from rllib_llm_comm.sama.planners import ScriptedPlanner, make_planner
from rllib_llm_comm.sama.planning_game import planning_game
from rllib_llm_comm.sama.plans import PlanRequest
from rllib_llm_comm.sama.reflection import ReflectivePlay
from tests.refusal import refused

SALADS = ["tomato salad", "lettuce salad", "onion salad"]
HIDDEN_ORDER = {"map_name": "B", "recipe": SALADS, "told_to": "planner", "max_game_steps": 40}


def followed(seed, planner="scripted", env_config=None, **settings):
    """An episode of cooks that follow their subgoals: the wrapper at its end, and the last infos."""
    env = PlannedSubgoals(parallel_env(**(env_config or HIDDEN_ORDER)), planner, **settings)
    observations, infos = env.reset(seed=seed)
    player = env.game.player()
    while env.agents:
        choosing = {agent: observations[agent] for agent in env.agents if infos[agent]["needs_action"]}
        observations, _, _, _, infos = env.step(player.actions(choosing))
    return env, infos["alice"]


def test_no_cook_is_told_what_the_planner_knows():
    env = parallel_env(**HIDDEN_ORDER)
    orders = set()
    for seed in range(20):
        observations, infos = env.reset(seed=seed)
        orders.add(infos["bob"][HIDDEN])
        assert {info[PRIVATE] for info in infos.values()} == {None} and secret_of(infos) == env.kitchen.recipe
        for seen in observations.values():
            assert "make a salad." in seen["text"] and not seen["vector"][-7:].any()
        foods = env.kitchen.recipe_foods
        game = planning_game(env)
        plan = make_planner("scripted").plan(PlanRequest(game, game.state()))
        assert plan.of("alice") == f"chop the {foods[0]}" and plan.of("bob") == f"bring the {foods[0]}"
    assert orders == set(SALADS) and "only a planner" in env.brief
    assert HIDDEN not in parallel_env(recipe=SALADS, told_to=["alice"]).reset(seed=0)[1]["alice"]


def test_cooks_that_obey_serve_the_order_as_fast_as_those_that_know_it():
    _, info = followed(1)
    assert info["task_success"] and info["game_step"] == 27
    assert info["episode_metrics"]["subgoals_completed"] == 4 and info["episode_metrics"]["subgoals_refused"] == 0


def test_three_foods_pass_over_two_boards():
    _, info = followed(0, env_config={"map_name": "B", "recipe": "lettuce-onion-tomato salad"})
    assert info["task_success"]


def test_only_those_named_are_told_and_paid():
    env = PlannedSubgoals(parallel_env(**HIDDEN_ORDER), subgoals_to=["alice"], subgoal_reward=5.0)
    observations, infos = env.reset(seed=0)
    player, earned = env.game.player(), {"alice": 0.0, "bob": 0.0}
    while env.agents:
        assert observations["bob"]["subgoal"] == "" and observations["alice"]["subgoal"]
        told = {agent: {"subgoal": env.tracker.told[agent]} for agent in env.agents if infos[agent]["needs_action"]}
        observations, rewards, _, _, infos = env.step(player.actions(told))  # both do what is planned for them
        for agent, reward in rewards.items():
            earned[agent] += reward
            assert sum(infos[agent]["step_rewards"]) == pytest.approx(reward)
    paid = 0.2 + 1.0 - 0.001 * 27
    assert earned == pytest.approx({"alice": paid + 2 * 5.0, "bob": paid})
    assert not followed(0, subgoals_to=["alice"])[1]["task_success"]  # bob knows nothing and waits


def test_numbers_of_subgoals_are_told_to_those_named_only():
    env = PlannedSubgoals(parallel_env(**HIDDEN_ORDER), subgoals_to=["bob"], in_vector=True)
    observations, _ = env.reset(seed=0)
    more = len(env.game.library("bob"))
    assert observations["bob"]["vector"][-more:].sum() == 1 and observations["alice"]["vector"][-more:].sum() == 0


@pytest.mark.parametrize("told", ["alice", [], ["alice", "alice"], ["carol"]])
def test_who_is_told_must_be_agents(told):
    with refused("subgoals_to", None):
        PlannedSubgoals(parallel_env(**HIDDEN_ORDER), subgoals_to=told)


def test_a_guess_tells_nothing_of_the_order():
    guessed, env = [], PlannedSubgoals(parallel_env(**HIDDEN_ORDER), {"name": "guessing"})
    for seed in range(300):
        env.reset(seed=seed)
        guessed.append((env.kitchen.recipe, env.plan.goal.removeprefix("serve a ")))
        assert env.plan.planner == "guessing" and env.plan.of("alice") == f"chop the {guessed[-1][1].split()[0]}"
    counts = np.array([[guessed.count((order, guess)) for guess in SALADS] for order in SALADS])
    assert counts.sum() == 300 and abs(counts - 300 / 9).max() < 4 * np.sqrt(300 / 9)


def test_a_guess_stays_for_an_episode():
    env, info = followed(0, {"name": "guessing"})
    goals = {attempt.plan.goal for attempt in env.attempts}
    assert len(goals) == 1 and len(env.attempts) > 2


def test_nothing_can_be_guessed_where_nothing_is_hidden():
    with pytest.raises(UserError, match="hides nothing"):
        followed(0, {"name": "guessing"}, {"map_name": "B"})


def test_words_of_subgoals():
    env = parallel_env(map_name="B", recipe=[*SALADS, "lettuce-tomato salad"])
    game = planning_game(env)
    assert [game.parse(words) for words in game.library("alice")] == game.library("bob")
    assert game.parse("Please fetch the tomato!") == "bring the tomato"
    assert game.parse("deliver a tomato and lettuce salad") == "serve the lettuce tomato salad"
    assert game.parse("stay here") == "wait" and game.parse("chop the bowl") is None
    assert game.parse("chop and serve the tomato") is None and game.parse("bring it") is None
    assert "bring the bowl" not in planning_game(parallel_env(map_name="A")).library("alice")


def test_what_a_room_lacks_is_refused():
    env = parallel_env(**HIDDEN_ORDER)
    env.reset(seed=0)
    game = planning_game(env)
    assert game.possible(game.state(), "alice") == ["chop the tomato", "chop the lettuce", "chop the onion", "wait"]
    assert game.possible(game.state(), "bob") == [*game.library("bob")[:4], "wait"]
    env, _ = followed(0)
    assert "chopped already" in env.game.refusal(env.game.state(), "alice", env.attempts[0].plan.of("alice"))
    assert "there already" in env.game.refusal(env.game.state(), "bob", "bring the bowl")


@given(st.integers(0, 999), st.sampled_from("ABC"), st.sampled_from(["macro", "primitive"]))
def test_moments_of_a_step_and_what_is_done_in_them(seed, map_name, level):
    env = parallel_env(map_name=map_name, recipe=SALADS, told_to="planner", action_level=level, max_game_steps=60)
    env.reset(seed=seed)
    game, rng = planning_game(env), np.random.default_rng(seed)
    while env.agents:
        start = game.state()
        *_, infos = env.step({agent: int(rng.integers(env.action_space(agent).n)) for agent in env.agents})
        passed = game.passed()
        assert passed[0]._replace(events=()) == start._replace(events=()) and passed[-1] == game.state()
        assert len(passed) - 1 == len(infos["alice"]["step_rewards"]) and passed[-1].time == env.kitchen.game_step
        json.dumps(game.plain(game.state()))
        for agent in game.agents:
            pairs = list(zip(passed, passed[1:], strict=False))
            done = [one for pair in pairs for one in game.library(agent) if game.done(*pair, agent, one)]
            chopped = [event for event in infos[agent]["events"] if event.startswith("chopped")]
            assert [f"chop the {event.split()[1]}" for event in chopped] == [one for one in done if one[:4] == "chop"]
            assert ("correct_delivery" in infos[agent]["events"]) == any(one[:5] == "serve" for one in done)


def test_rounds_tell_only_those_named():
    env, seen = parallel_env(**HIDDEN_ORDER), []

    def watch(attempt, game, observations, decisions):
        seen.append({agent: observed["subgoal"] for agent, observed in observations.items()})

    how = {"trials": 0, "subgoals_to": ["alice"], "watch": watch}
    ReflectivePlay(env, planning_game(env).player(), ScriptedPlanner(), **how).play(seed=0)
    assert seen and all(told["alice"] and not told["bob"] for told in seen)


def test_rllib_planning_knows_the_kitchen():
    assert list(ScriptedExecutor(ENV_ID).scenarios) == ["told_to_planner", "two_foods"]
    with refused("map_name"):
        planning_game(parallel_env(map_name="A")).player()
    with pytest.raises(UserError, match="macro-actions"):
        planning_game(parallel_env(map_name="B", action_level="primitive")).player()
