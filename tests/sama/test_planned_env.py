"""Games under a planner: who is told what, what is earned, and that nobody waits for a slow planner."""

from __future__ import annotations

import threading

import pytest
from chat_server import ChatServer
from hypothesis import assume, given
from hypothesis import strategies as st
from kitchens import kitchen, kitchen_env
from planner_model import planner

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.overcooked_ai.env import parallel_env
from rllib_llm_comm.envs.overcooked_ai.layouts import LAYOUT_NAMES
from rllib_llm_comm.envs.overcooked_ai.places import COOKS, routes_of
from rllib_llm_comm.envs.overcooked_ai.subgoal_env import subgoal_env
from rllib_llm_comm.envs.overcooked_ai.subgoals import parse_subgoal
from rllib_llm_comm.sama.planned_env import PlannedSubgoals
from rllib_llm_comm.sama.planning_game import PlanningGame
from tests.refusal import refused

pytestmark = pytest.mark.usefixtures("chat_client_at_home")


def chat(server: ChatServer, **more) -> dict:
    return {"name": "chat", "chat": server.settings(max_tokens=2000, max_retries=0, **more), "objects": False}


def follow(env, observations):
    """The actions of cooks that do what they are told, and stay where they are if they are told nothing."""
    layout = env.unwrapped.kitchen.layout
    actions = {}
    for agent, player in env.unwrapped.players.items():
        told = parse_subgoal(layout, observations[agent]["subgoal"])
        x, y = told.cell if told else env.unwrapped.kitchen.cook(player).cell
        actions[agent] = y * layout.width + x
    return actions


def test_cooks_that_obey_deliver_soups_and_earn_each_subgoal_once():
    env = PlannedSubgoals(kitchen_env(horizon=120), subgoal_reward=0.5)
    observations, infos = env.reset(seed=0)
    assert all(env.observation_space(agent).contains(seen) for agent, seen in observations.items())
    earned, done = 0.0, 0.0
    while env.agents:
        assert {a: o["subgoal"] for a, o in observations.items()} == env.tracker.told
        observations, rewards, _, _, infos = env.step(follow(env, observations))
        earned += sum(rewards.values())
        metrics = infos["alice"]["episode_metrics"]
        assert all(sum(infos[agent]["step_rewards"]) == rewards[agent] for agent in rewards)
        assert earned == 2 * metrics["score"] + 0.5 * metrics["subgoals_completed"]
        assert metrics["subgoals_completed"] - done in (0, 1, 2)
        done = metrics["subgoals_completed"]
    assert metrics["soups"] >= 2 and metrics["plan_requests"] == 0 and metrics["subgoals_refused"] == 0
    assert metrics["subgoals_share"] == done / metrics["subgoals_given"] and metrics["plans"] > done / 2


def test_rewards_stand_in_the_game_step_in_which_they_were_earned():
    env = PlannedSubgoals(kitchen_env(commit=True, horizon=60))
    observations, _ = env.reset(seed=0)
    late = 0
    while env.agents:
        free = {a: action for a, action in follow(env, observations).items()}
        observations, rewards, _, _, infos = env.step(free)
        for agent, info in infos.items():
            assert sum(info["step_rewards"]) == rewards[agent]
            late += any(info["step_rewards"][1:]) and not info["step_rewards"][0]
    assert late  # a `step` lasts several game steps here, and the subgoal is done in a later one


def test_who_does_nothing_is_stuck_and_told_anew():
    env = PlannedSubgoals(kitchen_env(action_level="primitive"), patience=7)
    env.reset(seed=0)
    told = []
    for _ in range(15):
        observations, _, _, _, infos = env.step({"alice": 4, "bob": 4})
        told.append(infos["bob"]["episode_metrics"]["subgoals_stuck"])
    assert told[5] == 0 and told[6] > 0 and told[13] > told[12] and observations["bob"]["subgoal"]


@pytest.mark.parametrize(("replan", "plans"), [("any", 2), ("all", 1)])
def test_it_plans_when_one_is_done_or_when_all_are(replan, plans):
    env = PlannedSubgoals(kitchen_env(), replan=replan)
    observations, _ = env.reset(seed=0)
    while not env.tracker.ends["done"]:
        action = {**follow(env, observations), "alice": env.kitchen.cook(0).cell[1] * 5 + env.kitchen.cook(0).cell[0]}
        observations, _, _, _, infos = env.step(action)
    assert infos["bob"]["episode_metrics"]["plans"] == plans


@pytest.fixture
def slow():
    """A game whose planner asks a server, and what lets this answer."""
    go_on = threading.Event()

    def late(prompt: str) -> str:
        go_on.wait(60)
        return planner(prompt)

    with ChatServer(late) as server:
        env = PlannedSubgoals(kitchen_env(), chat(server, price_per_million_input=1000))
        yield env, go_on
        env.close()


def test_nobody_waits_for_a_slow_planner_and_its_answer_is_used_when_it_comes(slow):
    env, go_on = slow
    observations, _ = env.reset(seed=0)
    for _ in range(10):
        assert {o["subgoal"] for o in observations.values()} == {""}
        observations, _, _, _, infos = env.step(follow(env, observations))
    assert infos["alice"]["episode_metrics"]["plans"] == 0
    go_on.set()
    env._pending.result(60)
    observations, _, _, _, infos = env.step(follow(env, observations))
    metrics = infos["alice"]["episode_metrics"]
    assert metrics["plans"] == 1 and all(seen["subgoal"] for seen in observations.values())
    assert metrics["plan_requests"] == 3 and metrics["plan_tokens"] == 360
    assert metrics["plan_cost"] == pytest.approx(0.3)


def test_a_plan_for_an_episode_that_is_over_is_not_used(slow):
    env, go_on = slow
    env.reset(seed=0)
    first = env._pending
    observations, _ = env.reset(seed=1)
    assert env._pending is None or env._pending is not first
    go_on.set()
    first.exception(60)
    observations, _, _, _, infos = env.step(follow(env, observations))
    assert infos["alice"]["episode_metrics"]["plans"] == 0 and env.tracker.told["alice"] == ""
    env._pending.result(60)
    observations, _, _, _, infos = env.step(follow(env, observations))
    assert infos["alice"]["episode_metrics"]["plans"] == 1


def test_without_a_usable_answer_agents_keep_their_subgoals():
    with ChatServer("no") as server:
        env = PlannedSubgoals(kitchen_env(action_level="primitive"), chat(server), wait=True, patience=5)
        observations, infos = env.reset(seed=0)
        assert infos["alice"]["episode_metrics"]["plans_failed"] == 1 and observations["alice"]["subgoal"] == ""
        asked = len(server.requests)
        for _ in range(4):
            env.step({"alice": 4, "bob": 4})
        assert len(server.requests) == asked
        *_, infos = env.step({"alice": 4, "bob": 4})
        assert infos["alice"]["episode_metrics"]["plans_failed"] == 2
        env.close()


def test_games_that_do_not_fit_are_told():
    for env, how, wrong in (
        (subgoal_env(observe=["entities"]), {}, ("", "invalid", "gives subgoals itself")),
        (parallel_env(observe=["vector"]), {}, ("", "invalid", "no `subgoal`")),
        (kitchen_env(), {"replan": "never"}, ("replan", "choice")),
        (kitchen_env(), {"patience": 0}, ("patience", "range")),
    ):
        with refused(*wrong):
            PlannedSubgoals(env, **how)


# ---- cooks who do as they are told: they get there, do it once, and then stay -------------------------------------


def step(game, told):
    env, player = game.env, game.player()
    asked = {
        agent: {"subgoal": told.get(agent, "")} for agent in env.agents if env.level.needs_action(env.players[agent])
    }
    env.step(player.actions(asked))
    return game.passed()


@pytest.mark.parametrize("level", ["goal_cell", "primitive", "goal"])
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
    while steps < 52:
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
