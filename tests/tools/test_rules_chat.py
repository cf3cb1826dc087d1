"""The model by rules: it answers what planners ask, from the prompt alone, and cooks."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rllib_llm_comm.chat.cassettes import open_chat
from rllib_llm_comm.chat.chat_model import ChatError
from rllib_llm_comm.envs.games import make_env
from rllib_llm_comm.envs.overcooked_ai.layouts import LAYOUT_NAMES
from rllib_llm_comm.sama.planners import make_planner, prompts_of
from rllib_llm_comm.sama.planning_game import planning_game
from rllib_llm_comm.sama.plans import FailedAttempt, PlanRequest
from tests.refusal import refused
from tools.record_cassettes import PlanRecording, played_plans, random_kitchen
from tools.rules_chat import RulesChat


@settings(max_examples=12)
@given(
    st.sampled_from(LAYOUT_NAMES),
    st.integers(0, 10_000),
    st.sampled_from([0, 1, 3]),
    st.booleans(),
    st.sampled_from(["possible", "library"]),
    st.sampled_from(["chat", "deps"]),
)
def test_its_plans_are_possible_at_once(layout, seed, examples, objects, menu, name):
    game = planning_game(random_kitchen(layout, seed))
    asked = {"name": name, "chat": {"local": "rules"}, "examples": examples, "objects": objects, "menu": menu}
    request = PlanRequest(game, game.state())
    plan = make_planner(asked).plan(request)
    assert menu == "library" or not plan.refused
    for agent, subgoal in plan.by_agent().items():
        assert not game.refusal(game.state(), agent, subgoal)


def test_what_failed_is_not_said_again():
    game = planning_game(random_kitchen("counter_circuit", 3))
    planner = make_planner({"name": "chat", "chat": {"local": "rules"}})
    plan = planner.plan(PlanRequest(game, game.state()))
    failed: tuple[FailedAttempt, ...] = ()
    ways = [plan.by_agent()]
    for phase in ("decomposition", "goal", "decomposition"):
        failed = (*failed, FailedAttempt(plan, phase, "too late", ("bob",)))
        plan = planner.plan(PlanRequest(game, game.state(), failed=failed))
        assert plan.by_agent() not in ways
        ways.append(plan.by_agent())


@pytest.mark.parametrize("layout", LAYOUT_NAMES)
def test_cooks_that_obey_it_deliver_a_soup(layout):
    plans = played_plans(RulesChat(), PlanRecording(layout), 60)
    assert any("deliver the soup" in " ".join(plan.by_agent().values()) for plan in plans)


@pytest.mark.parametrize(
    ("layout", "looks_ahead"),
    [
        ("cramped_room", True),
        ("forced_coordination", True),  # over the shared counters
        (["XXXPX", "D1X2O", "X X X", "XXXSX"], False),  # who reaches no pot reaches no onions
        (["XXXXXXX", "O1XX2PX", "D XX OX", "XXXXDSX"], False),  # nothing can be handed over
    ],
)
def test_one_question_plans_several_parts_where_these_rules_can_look_ahead(layout, looks_ahead):
    env = make_env("rllib_llm_comm/overcooked_ai-v0", layout=layout)
    env.reset(seed=0)
    chat = RulesChat()
    asked = {"name": "sama", "menu": "possible", "examples": 0, "ahead": 4}
    prompt = prompts_of(asked, planning_game(env))[-1]
    work = json.loads(chat.complete(prompt))["agents"]
    assert {len(one["subgoals"]) for one in work} == {4 if looks_ahead else 1}


def test_other_questions_and_settings_are_refused():
    with pytest.raises(ChatError, match="no answer"):
        RulesChat().complete("What is the capital of France?")
    with refused("chat.seed", "unknown"):
        open_chat({"local": "rules", "seed": 1})
    assert "no language model" in RulesChat().model
