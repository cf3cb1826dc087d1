"""Answers with a form, and the one repair round."""

from __future__ import annotations

import json

import pytest
from chat_server import ChatServer, client
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from rllib_llm_comm.chat.answers import AnswerError, UnusableError, ask_for, read_answer, read_yes_no
from rllib_llm_comm.chat.chat_model import count_scope
from rllib_llm_comm.core.errors import UserError

pytestmark = pytest.mark.usefixtures("chat_client_at_home")


class Plan(BaseModel):
    goal: str = Field(min_length=1)
    subgoals: list[str] = Field(min_length=2, max_length=2)


GOOD = {"goal": "a soup", "subgoals": ["fetch", "wait"]}
ONE_SHORT = json.dumps({"goal": "a soup", "subgoals": ["fetch"]})


@pytest.mark.parametrize(
    "reply",
    [
        json.dumps(GOOD),
        f"```json\n{json.dumps(GOOD, indent=2)}\n```",
        f"Sure! {json.dumps(GOOD)} I hope {{this}} helps.",
        f'<think>maybe {{"goal": "x"}}</think>{json.dumps(GOOD)}',
        f"The schema was {{}} and so {ONE_SHORT} or rather {json.dumps(GOOD)}",
    ],
)
def test_objects_are_found_in_whatever_stands_around(reply):
    with ChatServer(reply) as server:
        asked = client(server)
        assert ask_for(asked, "Plan!", Plan).model_dump() == GOOD
        assert len(server.requests) == 1 and "maxItems" in server.requests[0]["messages"][-1]["content"]


def test_what_does_not_fit_is_repaired_once_and_told_why():
    with ChatServer(ONE_SHORT, json.dumps(GOOD)) as server:
        assert ask_for(client(server), "Plan!", Plan, system="You plan.").model_dump() == GOOD
        first, second = server.requests
    told = second["messages"][-1]["content"]
    assert (
        told.startswith(first["messages"][-1]["content"]) and ONE_SHORT in told and "subgoals: List should have" in told
    )
    assert second["messages"][0] == {"role": "system", "content": "You plan."}


@pytest.mark.parametrize(
    ("reply", "why"),
    [("no", "no JSON object"), ("[1, 2]", "no JSON object"), ('{"goal": ""}', "goal: String"), ("{" * 9000, "no JSON")],
)
def test_after_two_tries_there_is_one_error(reply, why):
    with ChatServer(reply) as server:
        with pytest.raises(AnswerError, match="no usable Plan in two tries") as caught:
            ask_for(client(server, max_tokens=4000), "Plan!", Plan)
        assert len(server.requests) == 2
    assert why in str(caught.value) and caught.value.answer == reply


def test_the_games_own_check_counts_and_speaks():
    def check(plan: Plan) -> None:
        if "fly" in plan.subgoals:
            raise UserError("nobody can fly here; choose another subgoal.")

    wrong = json.dumps({**GOOD, "subgoals": ["fly", "wait"]})
    with ChatServer(wrong, json.dumps(GOOD)) as server:
        assert ask_for(client(server), "Plan!", Plan, check=check).subgoals == ["fetch", "wait"]
        assert "- nobody can fly here; choose another subgoal." in server.requests[1]["messages"][-1]["content"]
    with ChatServer(wrong) as server, pytest.raises(AnswerError, match="nobody can fly"):
        ask_for(client(server), "Plan!", Plan, check=check)


def test_the_repaired_answer_is_free_the_second_time(tmp_path):
    with ChatServer(ONE_SHORT, json.dumps(GOOD)) as server:
        asked = client(server, cache_dir=tmp_path)
        with count_scope() as first:
            ask_for(asked, "Plan!", Plan)
        with count_scope() as second:
            assert ask_for(asked, "Plan!", Plan).model_dump() == GOOD
        assert len(server.requests) == 2
    assert (first.requests, first.cached, second.requests, second.cached) == (2, 0, 0, 2)


@given(st.text())
def test_any_text_is_survived(text):
    with pytest.raises(UnusableError):
        read_answer(text, Plan)
    read_yes_no(text)


@given(st.text(st.characters(blacklist_characters="{}<")), st.text(st.characters(blacklist_characters="{}<")))
def test_an_object_is_found_wherever_it_stands(before, after):
    assert read_answer(f"{before}{json.dumps(GOOD)}{after}", Plan) == Plan(**GOOD)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Yes.", True), ("no", False), ("**No**, not yes", False), ("I think the answer is yes.", True),
        ("<think>yes?</think> No", False), ("maybe", None), ("It is not known; nothing else.", None), ("", None),
        ("Either yes or no", None), ("Yes, no doubt", True),
    ],
)  # fmt: skip
def test_yes_and_no(text, said):
    assert read_yes_no(text) is said
