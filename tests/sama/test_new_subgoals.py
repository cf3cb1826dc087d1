"""New subgoals for a data set: asked in states that differ from all before, with code where code judges."""

from __future__ import annotations

import json

import numpy as np
import pytest
from chat_server import ChatServer
from kitchens import prompts
from planner_model import planner

from rllib_llm_comm.chat.cassettes import Cassette, MissingAnswerError
from rllib_llm_comm.envs.overcooked_ai import ENV_ID
from rllib_llm_comm.envs.overcooked_ai.layouts import get_layout
from rllib_llm_comm.envs.overcooked_ai.rules import SoupKitchen
from rllib_llm_comm.envs.overcooked_ai.subgoal_env import random_snapshot
from rllib_llm_comm.envs.overcooked_ai.subgoals import kitchen_record
from rllib_llm_comm.sama.emma.new_subgoals import KitchenSubgoals, NewSubgoalSettings
from rllib_llm_comm.sama.recordings import recording
from tests.refusal import refused

pytestmark = pytest.mark.usefixtures("chat_client_at_home")

LAYOUT = "cramped_room"
KITCHEN = (ENV_ID, {"layout": LAYOUT})


@pytest.fixture
def data_set(tmp_path):
    path = tmp_path / "subgoals.json"
    record = {"kitchen": kitchen_record(get_layout(LAYOUT)), "subgoals": [{"subgoal": "go to floor 1,1"}]}
    path.write_text(json.dumps(record))
    return str(path)


def settings(chat, **more):
    return NewSubgoalSettings(**{"every": 1, "planner": {"name": "chat", "chat": chat}, **more})


def snapshots(count, seed=0):
    rng, kitchen = np.random.default_rng(seed), SoupKitchen(LAYOUT)
    return [random_snapshot(kitchen.layout, "old", rng) for _ in range(count)]


def test_encountered_states_are_asked_once_and_bring_new_subgoals(data_set):
    with ChatServer(planner) as server:
        new = KitchenSubgoals(settings(server.settings(), states=3), *KITCHEN, data_set)
        games = snapshots(4)
        added = new.ask([games[0], games[0], *games])
        assert new.figures()["states"] == 3 and added == new.subgoals and len(set(added)) == len(added) > 0
        assert "go to floor 1,1" not in added
        asked = len(server.requests)
        new.ask(games[:3])  # all of them known
        assert len(server.requests) == asked and new.figures()["states"] == 3
        new.ask(games)
        assert new.figures()["states"] == 4


def test_states_too_near_to_those_of_before_are_left_out(data_set):
    with ChatServer(planner) as server:
        for how, states in (({"apart": 2.0}, 1), ({}, 10)):
            new = KitchenSubgoals(settings(server.settings(), **how), *KITCHEN, data_set)
            new.ask(snapshots(5))
            new.ask(snapshots(5, seed=1))
            assert new.figures()["states"] == states


def test_the_model_proposes_states_and_is_told_those_that_are_there(data_set):
    def proposes(prompt):
        if "You prepare the training of a team" not in prompt:
            return planner(prompt)
        onions = prompt.partition("propose others:")[2].count("\n- ")
        players = [{"player": name, "holds": "nothing"} for name in ("alice", "bob")]
        return json.dumps({"states": [{"players": players, "pots": [{"pot": "pot", "onions": onions}]}]})

    with ChatServer(proposes) as server:
        new = KitchenSubgoals(settings(server.settings(), states=1, states_by="model"), *KITCHEN, data_set)
        for number in (1, 2, 3):
            new.ask([])
            assert new.figures()["states"] == number
        asked = [prompt for prompt in prompts(server) if "You prepare" in prompt]
    assert [prompt.count("propose others:") for prompt in asked] == [0, 1, 1]


def test_subgoals_without_code_that_agrees_are_left_out(data_set):
    tape = Cassette(recording("claude_reward_code"))
    wrong = "```python\ndef reward(state):\n    return 1 if state['before'] != state['after'] else 0\n```"

    def writes(prompt):
        if "Write a function `reward(state)`" not in prompt:
            return planner(prompt)
        return wrong if "subgoal:\nfetch an onion from the left onion crate" in prompt else tape.complete(prompt)

    with ChatServer(writes) as server:
        new = KitchenSubgoals(settings(server.settings(), states=8, steps=60), *KITCHEN, data_set, with_code=True)
        new.ask(snapshots(8))
    assert new.subgoals and set(new.sources) == set(new.subgoals)
    assert new.left_out == ["fetch an onion from the left onion crate"] and not set(new.left_out) & set(new.subgoals)
    assert all("def reward" in source for source in new.sources.values())


def test_a_failed_request_adds_nothing_and_a_missing_answer_ends_the_run(data_set, tmp_path):
    with ChatServer(400) as server:
        new = KitchenSubgoals(settings(server.settings() | {"max_retries": 0}), *KITCHEN, data_set)
        assert new.ask(snapshots(2)) == [] and new.figures()["failed"] == 1
        server.replies = [planner]
        assert new.ask(snapshots(2)) and new.figures()["states"] == 2
    empty = tmp_path / "empty.jsonl"
    empty.write_text(json.dumps({"cassette": 1, "made": "x", "model": "m", "note": ""}) + "\n")
    offline = KitchenSubgoals(settings({"cassette": str(empty)}), *KITCHEN, data_set)
    with pytest.raises(MissingAnswerError, match="has no answer to the question"):
        offline.ask(snapshots(1))


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        (3, ("new_subgoals", "type")), ({"every": 1}, ("new_subgoals.planner", "missing")),
        ({"every": 1, "planner": {"name": "scripted"}}, ("new_subgoals.planner", "invalid", "planner` is .*chat")),
        ({"every": 1, "planner": {"name": "sama", "chat": {"cassette": "sma"}}},
         ("new_subgoals.cassette", "invalid", "Did you mean 'sama'")),
    ],
)  # fmt: skip
def test_wrong_settings_are_told(given, wrong):
    with refused(*wrong):
        NewSubgoalSettings.checked("new_subgoals", given)
