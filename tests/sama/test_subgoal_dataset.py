"""Data sets of subgoals: different states, nothing twice, going on where it was stopped, no keys in the file."""

from __future__ import annotations

import json

import pytest
from chat_server import ChatServer
from kitchens import kitchen
from planner_model import planner

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.overcooked_ai.layouts import LAYOUT_NAMES, get_layout
from rllib_llm_comm.envs.overcooked_ai.subgoals import read_subgoal_file
from rllib_llm_comm.sama.data_set import SubgoalDataset, diverse_states
from rllib_llm_comm.sama.planners import PLANNERS, register_planner
from rllib_llm_comm.sama.plans import AssignedSubgoal, Plan, Planner

pytestmark = pytest.mark.usefixtures("chat_client_at_home")

TINY = ["XXPXX", "O1X2O", "XDXSX"]
SCRIPT = [
    ("Deliver a soup!", {"alice": "Go to floor 1,1.", "bob": "go to floor 2,1"}),
    ("deliver a  soup", {"alice": "go to floor 2,1", "bob": "wash the dishes"}),
    ("fill the pot", {"alice": "go to floor 1,1", "bob": "go to floor 1,1"}),
]


class Said(Planner):
    """Says `SCRIPT`, one plan after the other."""

    name, slow = "said", True

    def __init__(self, api_key=""):
        self._plans = iter(SCRIPT)

    def plan(self, request):
        goal, subgoals = next(self._plans)
        return Plan(goal=goal, subgoals=[AssignedSubgoal(agent=a, subgoal=s) for a, s in subgoals.items()])


def nothing(text):
    pass


def data_set(layout, *args, **settings):
    return SubgoalDataset(kitchen(layout), *args, **settings)


def test_states_differ_in_words_and_more_of_them_begin_with_the_same():
    game = kitchen("cramped_room")
    few, many = diverse_states(game, 20, seed=4), diverse_states(game, 60, seed=4)
    assert list(many)[:20] == list(few) and len(many) == 60
    words = {game.situation(s) + game.situation_of(s, "alice") + game.situation_of(s, "bob") for s in many.values()}
    assert len(words) == 60
    assert list(diverse_states(game, 20, seed=5)) != list(few)


def test_a_kitchen_with_few_states_gives_those_that_there_are(monkeypatch):
    monkeypatch.setattr("rllib_llm_comm.sama.data_set._DRAWS_IN_VAIN", 3)
    data = data_set(TINY)
    there = data.ask(100_000, nothing)
    assert 0 < there == data.summary()["states"] < 100_000


@pytest.mark.parametrize("layout", LAYOUT_NAMES)
def test_the_scripted_planners_subgoals_are_what_the_game_can_draw_from(layout, tmp_path):
    data, kept = data_set(layout), []
    data.ask(50, kept.append)
    assert len(kept) == 1  # a planner by rules is not kept after each plan
    (tmp_path / "d.json").write_text(kept[-1])
    subgoals, found = data.subgoals(), data.summary()
    assert len(read_subgoal_file(tmp_path / "d.json", get_layout(layout))) == len(subgoals) == found["subgoals"]
    assert sum(one["given"] for one in subgoals) == 100 and found["states"] == 50 and found["refused"] == 0
    assert all(one["states"] <= one["given"] == sum(one["agents"].values()) for one in subgoals)
    assert 0.1 < found["share"] == round(len(subgoals) / found["library"], 4) < 1
    assert sum(one["given"] for one in data.goals()) == 50


def test_duplicates_are_counted_and_what_is_no_subgoal_is_refused(monkeypatch):
    monkeypatch.setattr(PLANNERS, "_entries", dict(PLANNERS._entries))
    register_planner("said", Said)
    data, kept = data_set("cramped_room", {"name": "said", "api_key": "sk-secret"}), []
    data.ask(3, kept.append)
    assert len(kept) == 4  # after each plan, and at the end
    assert data.subgoals() == [
        {"subgoal": "go to floor 1,1", "given": 3, "states": 2, "agents": {"alice": 2, "bob": 1}},
        {"subgoal": "go to floor 2,1", "given": 2, "states": 2, "agents": {"bob": 1, "alice": 1}},
    ]
    assert data.goals() == [{"goal": "Deliver a soup!", "given": 2}, {"goal": "fill the pot", "given": 1}]
    (refused,) = data.refused()
    assert refused["subgoal"] == "wash the dishes" and refused["given"] == data.summary()["refused"] == 1
    assert "secret" not in kept[-1] and json.loads(kept[-1])["made_with"]["planner"] == {"name": "said"}


def test_a_stopped_data_set_goes_on_without_asking_twice():
    with ChatServer(planner) as server:
        costs = {"budget": 1.0, "price_per_million_input": 1.0}
        chat = server.settings(max_tokens=2000, max_concurrent=1, ask_ahead=0, **costs)
        how = {"name": "chat", "chat": chat}
        data, kept = data_set("cramped_room", how), []

        def stop(done, total):
            if done == 2:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            data.ask(5, kept.append, stop)
        asked = len(server.requests)
        # A larger budget, or more questions at once, is no other planner.
        again = data_set("cramped_room", {**how, "chat": {**chat, "budget": 9.0, "max_concurrent": 2}})
        again.take_over(kept[-1])
        assert again.plans == data.plans and len(again.plans) == 2
        again.ask(5, kept.append)
        assert 0 < len(server.requests) - asked <= 3 * 3 + 1  # three questions per plan, and the things that matter
        assert len(again.plans) == 5 and again.summary()["failed"] == 0
        asked = len(server.requests)
        again.ask(4, kept.append)
        assert len(server.requests) == asked and len(json.loads(kept[-1])["plans"]) == 5


def test_states_without_a_usable_answer_are_told():
    with ChatServer("I do not know.") as server:
        data = data_set("cramped_room", {"name": "chat", "objects": False, "chat": server.settings()})
        data.ask(2, nothing)
    assert data.summary()["failed"] == 2 and data.summary()["subgoals"] == 0
    assert all(plan["failed"] and "subgoals" not in plan for plan in data.plans)


def test_planners_that_draw_give_the_same_when_they_go_on():
    whole, first, rest = (data_set("cramped_room", "random", seed=2) for _ in range(3))
    whole.ask(10, nothing)
    first.ask(4, nothing)
    rest.take_over(first.to_json())
    rest.ask(10, nothing)
    assert rest.to_json() == whole.to_json()


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("{", "continued"), ("[]", "continued"), (data_set("cramped_room", seed=1).to_json(), "--seed"),
        (data_set("cramped_room", "random").to_json(), "--seed"), (data_set("coordination_ring").to_json(), "--seed"),
    ],
)  # fmt: skip
def test_files_of_something_else_are_refused(text, match):
    with pytest.raises(UserError, match=match):
        data_set("cramped_room").take_over(text)


def test_states_that_are_drawn_otherwise_are_refused():
    data = data_set("cramped_room", plans=[{"state": "0", "goal": "", "subgoals": {}, "refused": []}])
    with pytest.raises(UserError, match="drawn otherwise now"):
        data.ask(1, nothing)
