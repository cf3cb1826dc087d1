"""Reflection: failures are put back exactly, planned anew without repetition, and not scored."""

from __future__ import annotations

import json

import numpy as np
import pytest
from chat_server import ChatServer, client
from hypothesis import given, settings
from hypothesis import strategies as st
from kitchens import kitchen_env, prompts
from planner_model import planner

from rllib_llm_comm import make_env
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.overcooked_ai.env import OvercookedAI
from rllib_llm_comm.envs.overcooked_ai.layouts import LAYOUT_NAMES
from rllib_llm_comm.envs.overcooked_ai.subgoals import parse_subgoal
from rllib_llm_comm.policies.decision import Policy, unweighed
from rllib_llm_comm.sama.planners import ScriptedPlanner, make_planner
from rllib_llm_comm.sama.planners.chat import ChatPlanner, ChatPlanSettings
from rllib_llm_comm.sama.planning_game import planning_game
from rllib_llm_comm.sama.plans import STUCK, Plan, PlanRequest
from rllib_llm_comm.sama.reflection import ReflectivePlay
from tests.refusal import refused

pytestmark = pytest.mark.usefixtures("chat_client_at_home")


class Obedient(Policy):
    """Goes where it is told; what it remembers is how often it was asked, and its random numbers."""

    def __init__(self, game, refuses=lambda agent, subgoal, asked: False):
        self.game, self.refuses = game, refuses

    def begin(self, seed):
        return {"asked": 0, "rng": np.random.default_rng(seed)}

    def act_together(self, requests, explore=True):
        ((memory, observations),) = requests
        memory["asked"] += 1
        layout, decisions = self.game.kitchen.layout, {}
        for agent, seen in observations.items():
            x, y = parse_subgoal(layout, seen["subgoal"]).cell
            if self.refuses(agent, seen["subgoal"], memory["asked"]):
                x, y = self.game.kitchen.cook(self.game.players[agent]).cell
            decisions[agent] = unweighed(y * layout.width + x)
            memory["rng"].random()
        return [decisions]


def everything(env) -> dict:
    level = env.level
    return {
        "state": env.kitchen.state.tolist(),
        "score": env.score,
        "agents": list(env.agents),
        "goals": list(level._goal),
        "rng": [walker._rng.bit_generator.state for walker in level._walkers],
        "walkers": [(w._goal, w._way, w._before, w._nearest, w._waited, w._detour) for w in level._walkers],
    }


@settings(max_examples=15)
@given(st.sampled_from(LAYOUT_NAMES), st.booleans(), st.integers(0, 999), st.integers(0, 25), st.integers(0, 25))
def test_snapshot_and_replay_lead_to_the_same_state_and_the_same_future(layout, commit, seed, before, after):
    env = kitchen_env(layout, commit=commit)
    rng = np.random.default_rng(seed)
    env.reset(seed=seed)

    def play(actions):
        return [env.step(action)[1] for action in actions]

    def choices(number):
        return [{agent: int(rng.integers(env.level.num_actions)) for agent in env.agents} for _ in range(number)]

    past, future, other = choices(before), choices(after), choices(after)
    play(past)
    adapter = planning_game(env)
    saved, there = adapter.save(), everything(env)
    rewards = play(future)
    then = everything(env)
    for _ in range(2):  # as often as wanted
        play(other)
        adapter.load(saved)
        assert everything(env) == there
        assert play(future) == rewards and everything(env) == then
    env.reset(seed=seed)
    play(past)
    assert everything(env) == there
    assert play(future) == rewards and everything(env) == then


HIDDEN_ORDER = {"map_name": "B", "recipe": ["tomato salad", "onion salad"], "told_to": "planner", "max_game_steps": 40}


@pytest.mark.parametrize(
    ("name", "settings", "planner", "seed"),
    [
        ("overcooked_text", HIDDEN_ORDER, "scripted", 3),
        ("frozen_lake", {"slip": 0.6, "horizon": 40}, "scripted", 3),
        ("minirts", {"numbers": [1, 2, 3, 4, 5, 6], "observe": ["text"], "max_tick": 1000}, "random", 2),
    ],
)
def test_both_ways_back_give_the_same_episode(name, settings, planner, seed):
    env, episodes = make_env(f"rllib_llm_comm/{name}-v0", **settings), []
    for recover in ("snapshot", "replay"):
        player = planning_game(env).player()
        play = ReflectivePlay(env, player, make_planner(planner), patience=3, recover=recover)
        episodes.append(play.play(seed=seed))
    assert json.dumps(episodes[0].to_json()) == json.dumps(episodes[1].to_json())
    # Some rounds were put back that did not begin with the game.
    assert any(len(attempts) > 1 for attempts in episodes[0].rounds[1:])


def lazy_bob(agent, subgoal, asked):
    return agent == "bob" and "onion from the right" in subgoal


@pytest.mark.parametrize("recover", ["snapshot", "replay"])
def test_a_failure_is_put_back_and_planned_anew(recover):
    env = kitchen_env(horizon=60)
    played = ReflectivePlay(env, Obedient(env, lazy_bob), ScriptedPlanner(), patience=12, recover=recover).play(seed=1)
    first, second = played.rounds[0][:2]
    assert first.failed and not first.kept and [o.how for o in first.outcomes if o.agent == "bob"] == [STUCK]
    assert first.start == second.start == 0 and first.plan.by_agent() != second.plan.by_agent()
    for attempts in played.rounds:
        plans = [json.dumps(attempt.plan.by_agent()) for attempt in attempts]
        assert len(set(plans)) == len(plans) <= 4 and [a.kept for a in attempts] == [False] * (len(plans) - 1) + [True]
        assert all(attempt.reflection is not None for attempt in attempts[:-1])
    assert played.steps == 60 == sum(attempts[-1].end - attempts[-1].start for attempts in played.rounds)
    assert played.reflections == sum(len(attempts) - 1 for attempts in played.rounds) > 0
    assert played.returns["alice"] == played.metrics["score"]
    assert json.loads(json.dumps(played.to_json()))["rounds"][0][0]["kept"] is False


@pytest.mark.parametrize("trials", [0, 2])
def test_there_are_so_many_trials_and_the_last_one_stands(trials):
    env = kitchen_env(horizon=30)
    player = Obedient(env, lambda agent, subgoal, asked: agent == "bob" and not subgoal.startswith("go"))

    class Stubborn(ScriptedPlanner):
        """Plans only what this player does not do."""

        def plan(self, request: PlanRequest) -> Plan:
            failed = len(request.failed)
            useful = [s for s in request.game.possible(request.state, "bob") if not s.startswith("go")]
            plan = super().plan(request)
            plan.subgoals[1].subgoal = useful[failed % len(useful)]
            return plan

    played = ReflectivePlay(env, player, Stubborn(), trials=trials, patience=10).play()
    assert len(played.rounds[0]) == trials + 1 and played.rounds[0][-1].failed and played.rounds[0][-1].kept


def lazy_bobs_game(model, **settings):
    """An episode in which a chat model plans and bob does nothing, and what the model was asked."""
    env = kitchen_env(horizon=25)
    player = Obedient(env, lambda agent, subgoal, asked: agent == "bob")
    with ChatServer(model) as server:
        chat = ChatPlanner(client(server, max_tokens=2000), ChatPlanSettings(objects=False))
        return ReflectivePlay(env, player, chat, patience=8, **settings).play(), prompts(server)


def test_a_chat_model_thinks_failures_over():
    played, asked = lazy_bobs_game(planner, trials=1)
    reflection = played.rounds[0][0].reflection
    assert (reflection.phase, reflection.why) == ("decomposition", "bob was in the way")
    blamed = next(number for number, prompt in enumerate(asked) if "Which phase made the mistake" in prompt)
    assert played.rounds[0][0].plan.of("bob") in asked[blamed] and "could not get this done" in asked[blamed]
    assert "The mistake was in the decomposition: bob was in the way" in asked[blamed + 1]
    assert "Split this goal" in asked[blamed + 1]  # the goal is kept
    assert played.cost.requests == len(asked)


@pytest.mark.parametrize("recover", ["snapshot", "replay"])
def test_a_failure_stands_where_the_model_has_no_other_plan(recover):
    """The goal is blamed, and the model names the same one again, twice."""

    def blames_the_goal(prompt: str) -> str:
        answer = planner(prompt)
        return answer.replace('"decomposition"', '"goal"') if "Which phase made the mistake" in prompt else answer

    played, _ = lazy_bobs_game(blames_the_goal, trials=2, recover=recover)
    assert played.steps == 25 and played.reflections == 0 and len(played.rounds) >= 3
    for (attempt,) in played.rounds[:3]:
        assert attempt.failed and attempt.kept and attempt.reflection.phase == "goal"
        assert "has failed from here already" in attempt.to_json()["unplanned"]
    ends = [(attempt.start, attempt.end) for (attempt,) in played.rounds]
    assert [start for start, _ in ends[1:]] == [end for _, end in ends[:-1]] and ends[-1][1] == 25


def test_games_that_go_elsewhere_are_told():
    class Fickle(OvercookedAI):
        def reset(self, seed=None, options=None):
            seen = super().reset(None, options)
            self.kitchen.state[1:3] = [(1, 2), (2, 2)][self.resets % 2]
            self.resets += 1
            return seen

        resets = 0

    env = Fickle(observe=["entities"], action_level="goal_cell", horizon=30)
    play = ReflectivePlay(env, Obedient(env, lambda *_: True), ScriptedPlanner(), patience=5, recover="replay")
    with pytest.raises(UserError, match="elsewhere"):
        play.play()


@pytest.mark.parametrize(("name", "value"), [("recover", "hope"), ("trials", -1)])
def test_bad_settings_are_told(name, value):
    env = kitchen_env()
    with refused(name, None):
        ReflectivePlay(env, Obedient(env), ScriptedPlanner(), **{name: value})
