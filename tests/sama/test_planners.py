"""Planners: what they plan is possible, what a model proposes is checked, and only the chat needs a network."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from chat_server import ChatServer, client
from hypothesis import given
from hypothesis import strategies as st
from planner_model import menu, planner, said

from rllib_llm_comm.chat.answers import AnswerError
from rllib_llm_comm.chat.cassettes import Cassette
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.overcooked_ai.env import parallel_env
from rllib_llm_comm.envs.overcooked_ai.layouts import LAYOUT_NAMES
from rllib_llm_comm.envs.overcooked_ai.subgoal_env import random_snapshot
from rllib_llm_comm.language.prompts import template
from rllib_llm_comm.sama.planners import make_planner
from rllib_llm_comm.sama.planners.chat import ChatPlanner, ChatPlanSettings, DepsPlanner
from rllib_llm_comm.sama.planners.matching import NearestByEmbedding
from rllib_llm_comm.sama.planning_game import BETWEEN_EXAMPLES, PHASES, planning_game
from rllib_llm_comm.sama.plans import DONE, LOST, FailedAttempt, Outcome, Plan, PlanRequest
from rllib_llm_comm.sama.skill_graph import Skill, search

pytestmark = pytest.mark.usefixtures("chat_client_at_home")


def kitchen(layout="cramped_room", seed=None):
    env = parallel_env(layout=layout, observe=["entities"], action_level="goal_cell")
    env.reset(seed=0)
    if seed is not None:
        env.kitchen.restore(random_snapshot(env.kitchen.layout, "old", np.random.default_rng(seed)))
    return planning_game(env)


def prompts(server: ChatServer) -> list[str]:
    return [body["messages"][-1]["content"] for body in server.requests]


# ---- without language models -------------------------------------------------------------------------------


@given(st.sampled_from(LAYOUT_NAMES), st.integers(0, 10_000), st.sampled_from(["scripted", "plan4mc"]))
def test_plans_by_rules_are_possible(layout, seed, name):
    game = kitchen(layout, seed)
    plan = make_planner(name).plan(PlanRequest(game, game.state()))
    assert list(plan.by_agent()) == ["alice", "bob"] and plan.planner == name and plan.goal
    for agent, subgoal in plan.by_agent().items():
        assert not game.refusal(game.state(), agent, subgoal)


def test_the_search_goes_backwards_and_takes_the_cheaper_way():
    skills = [
        Skill("buy", {"coin": 1}, {"bread": 1}, cost=1),
        Skill("bake", {"flour": 2}, {"bread": 1}, cost=1),
        Skill("mill", {"corn": 1}, {"flour": 1}, cost=1),
        Skill("work", {"bread": 1}, {"coin": 1}, cost=1),
    ]
    assert [s.name for s in search(skills, {"corn": 3}, "bread")] == ["mill", "mill", "bake"]
    assert [s.name for s in search(skills, {"corn": 3, "coin": 1}, "bread")] == ["buy"]
    assert [s.name for s in search(skills, {"flour": 1, "corn": 1}, "bread")] == ["mill", "bake"]
    assert search(skills, {"corn": 1}, "bread") is None  # not even by working for what buys it


def test_what_failed_from_here_is_not_planned_again():
    game = kitchen("forced_coordination")
    request = PlanRequest(game, game.state())
    scripted = make_planner("scripted")
    first = scripted.plan(request)
    failed = (FailedAttempt(first, "assignment", "no", ("bob",)),)
    second = scripted.plan(PlanRequest(game, game.state(), failed=failed))
    assert second.by_agent() != first.by_agent() and second.of("alice") == first.of("alice") and second.refused
    third = scripted.plan(
        PlanRequest(game, game.state(), failed=(*failed, FailedAttempt(second, "goal", "", ("bob",))))
    )
    assert third.by_agent() not in (first.by_agent(), second.by_agent())


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ("nobody", "`planner`"),
        ({"name": "scripted", "examples": 1}, "no setting of the planner"),
        ({"name": "chat", "model": "m"}, "`model` is no setting of the planner 'chat'"),
        (
            {"name": "chat", "chat": {"model": "m"}, "exampels": 1},
            "Did you mean 'examples'",
        ),
        ({"name": "chat"}, "`chat` is not set"),
        ({"name": "cassette"}, "`cassette` is not set"),
        (5, "`planner` is 5"),
        (["scripted"], r"`planner` is \['scripted'\]"),
        ({"name": "disturbed", "planner": 5}, "`planner` is 5"),
        ({"name": "chat", "chat": "gpt-4o"}, "`chat` is 'gpt-4o'"),
        ({"name": "deps", "chat": ["gpt-4o"]}, "`chat` is"),
        ({"name": "chat", "chat": {"cassette": 5}}, "`cassette` is 5"),
        ({"name": "cassette", "cassette": 5}, "`cassette` is 5"),
        ({"name": "chat", "chat": {"model": "m"}, "examples": 2}, "`examples`"),
        ({"name": "chat", "chat": {"model": "m"}, "nearest": "luck"}, "`nearest`"),
        ({"name": "chat", "chat": {"model": "m"}, "manual": 3}, "`manual` is 3"),
        ({"name": "chat", "chat": {"model": "m"}, "manual": "none.md"}, "'none.md', which cannot be read"),
    ],
)
def test_wrong_settings_are_told(settings, match):
    with pytest.raises(UserError, match=match):
        make_planner(settings)


def test_kitchens_that_cannot_be_planned_are_told():
    with pytest.raises(UserError, match="dynamics"):
        planning_game(parallel_env(dynamics="new"))
    with pytest.raises(UserError, match="swap_roles"):
        planning_game(parallel_env(swap_roles=True, observe=["entities"]))


# ---- with a chat model -------------------------------------------------------------------------------------


@pytest.mark.parametrize("examples", [0, 1, 3])
def test_a_chat_model_is_asked_for_goal_subgoals_and_who(examples):
    game = kitchen()
    with ChatServer(planner) as server:
        asked = ChatPlanner(client(server), ChatPlanSettings(examples=examples))
        plan = asked.plan(PlanRequest(game, game.state(), outcomes=(Outcome("bob", "go to floor 1,1", LOST),)))
        asked.plan(PlanRequest(game, game.state()))
        objects, goal, decomposition, assignment, *again = prompts(server)
    assert plan.goal == "fill the pot" and not plan.refused and plan.subgoals[0].reason == "a"
    assert game.parse(plan.of("alice")) == plan.of("alice")
    assert game.manual() in objects and len(again) == 3  # the objects are asked for once
    for prompt in (goal, decomposition, assignment):
        assert prompt.count("An example.") == examples and "onion, pot, dish" in prompt
        assert "could not do this any more" in prompt and game.manual() in prompt
    assert "made of the things that matter" in goal and "{" not in goal.split("Answer")[0]
    assert set(menu(decomposition)) == {s for agent in game.agents for s in game.possible(game.state(), agent)}


def test_without_objects_nobody_asks_for_them():
    game = kitchen()
    with ChatServer(planner) as server:
        ChatPlanner(client(server), ChatPlanSettings(objects=False)).plan(PlanRequest(game, game.state()))
        assert len(server.requests) == 3 and "Things that matter" not in "".join(prompts(server))


def test_a_manual_from_a_file_is_read_in_place_of_the_games_own(tmp_path):
    path = tmp_path / "manual.md"
    path.write_text("<!--\nMade by somebody.\n-->\n\nSoups are {good}.\n")
    game = kitchen()
    with ChatServer(planner) as server:
        ChatPlanner(client(server), ChatPlanSettings(manual=str(path))).plan(PlanRequest(game, game.state()))
        asked = prompts(server)
    for prompt in asked:
        assert f"Soups are {{good}}.\n{game.scenario()}" in prompt
        assert "somebody" not in prompt and game.manual() not in prompt
    assert game.manual().endswith(game.scenario()) and "Both cooks can reach the pot" in game.scenario()
    path.write_text("<!-- nothing -->")
    with pytest.raises(UserError, match="has 0 characters"):
        ChatPlanSettings(manual=str(path)) and ChatPlanner(None, ChatPlanSettings(manual=str(path)))


def test_names_that_stand_behind_a_subgoal_may_be_copied_too():
    def copying(prompt: str) -> str:
        answer = planner(prompt)
        if "Split this goal" in prompt:
            found = json.loads(answer)
            for one in found["subgoals"]:
                one["subgoal"] += f" ({' or '.join(menu(prompt)[one['subgoal']])})"
            return json.dumps(found)
        return answer

    game = kitchen()
    with ChatServer(copying) as server:
        plan = ChatPlanner(client(server), ChatPlanSettings()).plan(PlanRequest(game, game.state()))
    assert not plan.refused and game.parse(plan.of("alice")) == plan.of("alice")


def wrong_first(wrong: str, repeat: bool):
    """A model that proposes a wrong subgoal for alice, and again when told if `repeat`."""

    def model(prompt: str) -> str:
        answer = planner(prompt)
        if "Split this goal" in prompt and (repeat or "cannot be used" not in prompt and wrong not in prompt):
            found = json.loads(answer)
            found["subgoals"][0]["subgoal"] = wrong
            return json.dumps(found)
        return answer

    return model


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ("deliver the soup at the serving counter", "alice must hold the soup but holds nothing"),
        ("fetch a tomato from the fridge", "none of the subgoals"),
    ],
)
def test_what_is_impossible_is_asked_again_and_then_replaced(wrong, why):
    game = kitchen()
    with ChatServer(wrong_first(wrong, repeat=False)) as server:
        plan = ChatPlanner(client(server)).plan(PlanRequest(game, game.state()))
        assert why in prompts(server)[3] and wrong not in plan.by_agent().values()
    assert [(r.phase, r.subgoal, r.instead) for r in plan.refused] == [("decomposition", wrong, "")]
    with ChatServer(wrong_first(wrong, repeat=True)) as server:
        plan = ChatPlanner(client(server)).plan(PlanRequest(game, game.state()))
    assert [r.instead for r in plan.refused][:1] == [""] and plan.refused[1].instead in plan.by_agent().values()
    assert all(not game.refusal(game.state(), agent, subgoal) for agent, subgoal in plan.by_agent().items())


def test_the_nearest_subgoal_is_the_most_alike():
    nearest = NearestByEmbedding()
    options = ["go to floor 1,1", "fetch an onion from the left onion crate", "deliver the soup at the serving counter"]
    for option in options:
        assert nearest(option, options) == option
    assert nearest("get an onion out of the onion crate", options) == options[1]


def test_the_nearest_subgoal_can_be_asked_for():
    game = kitchen()

    def model(prompt: str) -> str:
        return '{"number": 2}' if "can be done" in prompt else wrong_first("bake", repeat=True)(prompt)

    with ChatServer(model) as server:
        plan = ChatPlanner(client(server), ChatPlanSettings(nearest="model")).plan(PlanRequest(game, game.state()))
        asked = next(prompt for prompt in prompts(server) if "can be done:" in prompt)
    assert f"2. {plan.refused[1].instead}" in asked


def test_who_cannot_do_its_subgoal_gets_the_other_one():
    game = kitchen("forced_coordination")

    def model(prompt: str) -> str:
        return said({"alice": 2, "bob": 1}) if "Give each of these" in prompt else planner(prompt)

    with ChatServer(model) as server:
        plan = ChatPlanner(client(server)).plan(PlanRequest(game, game.state()))
        assert len(server.requests) == 5  # objects, goal, subgoals, who, and who once more
    assert {r.phase for r in plan.refused} == {"assignment"}
    assert all(not game.refusal(game.state(), agent, subgoal) for agent, subgoal in plan.by_agent().items())


def test_no_usable_goal_is_no_plan():
    game = kitchen()
    with ChatServer("I would rather not.") as server, pytest.raises(AnswerError):
        ChatPlanner(client(server)).plan(PlanRequest(game, game.state()))


def test_only_the_guilty_phase_and_those_after_it_are_asked_again():
    game = kitchen()
    with ChatServer(planner) as server:
        asked = ChatPlanner(client(server), ChatPlanSettings(objects=False))
        plan = asked.plan(PlanRequest(game, game.state()))
        for phase, questions in (("assignment", 1), ("decomposition", 2)):
            before = len(server.requests)
            failed = (FailedAttempt(plan, phase, "too far", ("bob",)),)
            other = asked.plan(PlanRequest(game, game.state(), failed=failed))
            assert other.by_agent() != plan.by_agent() and other.goal == plan.goal
            assert "too far" in prompts(server)[before]
            # This model says the same again, so each question whose answer failed is asked twice.
            assert questions <= len(server.requests) - before <= 2 * questions
        with pytest.raises(AnswerError, match="failed from here"):
            asked.plan(PlanRequest(game, game.state(), failed=(FailedAttempt(plan, "goal", "", ()),)))


def test_a_recording_plans_without_network(tmp_path):
    game, path = kitchen(), tmp_path / "plans.jsonl"
    with ChatServer(planner) as server:
        recorded = ChatPlanner(Cassette(path, client(server))).plan(PlanRequest(game, game.state()))
    played = make_planner({"name": "cassette", "cassette": str(path)})
    again = played.plan(PlanRequest(game, game.state()))
    assert not played.slow and again.planner == "cassette"
    assert set(again.answered_by.model_dump().values()) == {"cassette"}
    assert (again.goal, again.by_agent()) == (recorded.goal, recorded.by_agent())
    assert set(recorded.answered_by.model_dump().values()) == {"model"}


def test_deps_plans_everything_and_anew_after_a_failure():
    game = kitchen()
    with ChatServer(planner) as server:
        deps = DepsPlanner(client(server), ChatPlanSettings(objects=False))
        first = deps.plan(PlanRequest(game, game.state()))
        done = tuple(Outcome(agent, subgoal, DONE) for agent, subgoal in first.by_agent().items())
        second = deps.plan(PlanRequest(game, game.state(), outcomes=done))
        assert (first.goal, second.goal, deps.replans) == ("get onions", "fill the pot", 0)
        before = len(server.requests)
        lost = (*done, Outcome("bob", second.of("bob"), LOST))
        third = deps.plan(PlanRequest(game, game.state(), outcomes=lost))
        explained, anew = prompts(server)[before : before + 2]
        assert third.goal == "get onions" and deps.replans == 1
        assert "Why not?" in explained and second.of("bob") in explained and "Nobody was there." in anew
        deps.begin()
        assert deps.plan(PlanRequest(game, game.state())).goal == "get onions" and deps.replans == 0


def test_a_planner_of_ones_own_has_a_name(monkeypatch):
    from rllib_llm_comm.sama.planners import PLANNERS, ScriptedPlanner, register_planner

    monkeypatch.setattr(PLANNERS, "_entries", dict(PLANNERS._entries))

    class Lazy(ScriptedPlanner):
        name = "lazy"

        def plan(self, request: PlanRequest) -> Plan:
            return super().plan(request).model_copy(update={"goal": "rest"})

    register_planner("lazy", Lazy)
    game = kitchen()
    assert make_planner("lazy").plan(PlanRequest(game, game.state())).goal == "rest"
    with pytest.raises(UserError, match="`speed` is no setting of the planner 'lazy'; its settings are name"):
        make_planner({"name": "lazy", "speed": 1})


@pytest.mark.parametrize(("examples", "irrelevant"), [(0, 0), (1, 0), (0, 1), (3, 1), (1, 3)])
def test_examples_of_something_else_come_after_those_of_the_game(examples, irrelevant):
    game = kitchen()
    with ChatServer(planner) as server:
        how = ChatPlanSettings(examples=examples, irrelevant_examples=irrelevant, objects=False)
        ChatPlanner(client(server), how).plan(PlanRequest(game, game.state()))
        asked = prompts(server)
    assert len(asked) == 3
    for prompt, phase in zip(asked, PHASES, strict=True):
        own = [prompt.count(example) for example in game.examples(phase)]
        assert own == [1] * examples + [0] * (3 - examples)
        assert prompt.count("An example.") == examples + irrelevant
        places = [prompt.find(f"In a {place}.") for place in ("library", "theatre")]
        assert [place >= 0 for place in places] == [irrelevant > 0, irrelevant == 3]
        if examples and irrelevant:
            assert prompt.rfind("In another kitchen") < places[0]


def test_the_examples_of_something_else_know_nothing_of_kitchens():
    for phase in PHASES:
        text = template("rllib_llm_comm.sama.planners", f"example_irrelevant_{phase}")
        assert len(text.split(BETWEEN_EXAMPLES)) == 3
        assert not re.search(r"\b(kitchen|cook|onion|pot|dish|soup|counter|alice|bob)", text, re.IGNORECASE)
    with pytest.raises(UserError, match="`irrelevant_examples` is 2"):
        ChatPlanSettings(irrelevant_examples=2)
