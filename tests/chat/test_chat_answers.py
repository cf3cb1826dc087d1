"""Answers with a form, and the one repair round."""

from __future__ import annotations

import json
import re

import pytest
from chat_server import ChatServer, client
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from rllib_llm_comm.chat.answers import (
    AnswerError,
    UnusableError,
    ask_batch,
    ask_for,
    parse_batch,
    read_answer,
    read_yes_no,
    single_prompt,
)
from rllib_llm_comm.chat.chat_model import ChatError
from rllib_llm_comm.core.errors import UserError
from tests.refusal import refused

pytestmark = pytest.mark.usefixtures("chat_client_at_home")


class Plan(BaseModel):
    goal: str = Field(min_length=1)
    subgoals: list[str] = Field(min_length=2, max_length=2)


GOOD = {"goal": "a soup", "subgoals": ["fetch", "wait"]}
ONE_SHORT = json.dumps({"goal": "a soup", "subgoals": ["fetch"]})


@pytest.mark.parametrize(
    "reply",
    [
        f"```json\n{json.dumps(GOOD, indent=2)}\n```",
        f"The schema was {{}} and so {ONE_SHORT} or rather {json.dumps(GOOD)}. I hope {{this}} helps.",
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
    assert told.startswith(first["messages"][-1]["content"])
    assert ONE_SHORT in told and "subgoals: List should have" in told
    assert second["messages"][0] == {"role": "system", "content": "You plan."}


@pytest.mark.parametrize(("reply", "why"), [('{"goal": ""}', "goal: String"), ("{" * 9000, "no JSON")])
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


# ---- several questions in one request ----------------------------------------------------------------------------


def numbered(prompt: str) -> list[str]:
    return re.findall(r"^Question \d+: (.*)$", prompt, re.MULTILINE)


def obedient(prompt: str) -> str:
    asked = numbered(prompt)
    if not asked:
        return f"re: {prompt.splitlines()[-1]}"
    return "\n".join(f"[{number}] re: {question}" for number, question in enumerate(asked, 1))


def test_questions_go_together_and_answers_to_their_questions():
    questions = [f"what is {name}?" for name in "abcdefg"]
    with ChatServer(obedient) as server:
        asked = client(server)
        assert ask_batch(asked, questions, context="A manual.", size=3) == [f"re: {q}" for q in questions]
        prompts = [body["messages"][-1]["content"] for body in server.requests]
    assert [len(numbered(prompt)) for prompt in prompts] == [3, 3, 0]  # one is left, and needs no number
    assert all(prompt.startswith("A manual.\n\n") and prompt.count("A manual.") == 1 for prompt in prompts)


def test_equal_questions_are_asked_once():
    with ChatServer(obedient) as server:
        assert ask_batch(client(server), ["x?", "y?", "x?"]) == ["re: x?", "re: y?", "re: x?"]
        assert [numbered(body["messages"][-1]["content"]) for body in server.requests] == [["x?", "y?"]]


@pytest.mark.parametrize(
    "reply",
    [
        "no numbers at all",
        "[1] one [2] two [3] three",  # not on lines of their own: only one mark
        "[2] two\n[1] one\n[3] three",
        "[1] one\n[2] two\n[3] three\n[4] four",
        "[1] one\n[2]\n[3] three",
    ],
)
def test_any_mismatch_is_asked_one_by_one(reply):
    with ChatServer(lambda prompt: reply if numbered(prompt) else f"alone: {prompt}") as server:
        assert ask_batch(client(server), ["a", "b", "c"]) == ["alone: a", "alone: b", "alone: c"]
        assert len(server.requests) == 4


def test_a_reply_that_stops_early_loses_its_last_answer_only():
    with ChatServer(lambda prompt: "[1] one\n[2] tw" if numbered(prompt) else f"alone: {prompt}") as server:
        assert ask_batch(client(server), ["a", "b", "c"]) == ["one", "alone: b", "alone: c"]
        assert len(server.requests) == 3


def test_nothing_is_paid_twice_in_whatever_company(tmp_path):
    with ChatServer(obedient) as server:
        first = client(server, cache_dir=tmp_path)
        ask_batch(first, ["a", "b", "c"], context="C")
        again = client(server, cache_dir=tmp_path)
        assert ask_batch(again, ["c", "d", "a"], context="C") == ["re: c", "re: d", "re: a"]
        assert again.complete(single_prompt("b", "C")) == "re: b"
        assert len(server.requests) == 2 and again.counters.requests == 1 and again.counters.cached == 3
        assert numbered(server.requests[-1]["messages"][-1]["content"]) == []


def test_answers_before_a_failure_are_kept(tmp_path):
    with ChatServer(obedient, 400) as server:
        asked = client(server, cache_dir=tmp_path)
        with pytest.raises(ChatError, match="HTTP 400"):
            ask_batch(asked, ["a", "b", "c", "d"], size=2)
        server.replies = [obedient]
        assert ask_batch(asked, ["a", "b", "c", "d"], size=2) == ["re: a", "re: b", "re: c", "re: d"]
        assert len(server.requests) == 3


def test_thoughts_of_a_kept_answer_are_no_answers_either(tmp_path):
    with ChatServer("<think>hm</think>yes") as server:
        asked = client(server, cache_dir=tmp_path)
        assert ask_batch(asked, ["a"]) == ask_batch(asked, ["a"]) == ["yes"]
        assert len(server.requests) == 1


LINE = st.text(st.characters(blacklist_characters="\n\r[]", blacklist_categories=("Cs", "Cc", "Zl", "Zp")), min_size=1)
ANSWER = st.lists(LINE.filter(lambda text: text.strip("*_:. \t>#-") != ""), min_size=1, max_size=3).map("\n".join)


@given(
    st.lists(ANSWER, min_size=1, max_size=9), st.sampled_from(["[{}] ", "[{}]\n", "**[{}]** ", "  [{}]: ", "- [{}] "])
)
def test_what_is_numbered_rightly_is_read_rightly(answers, mark):
    reply = "\n".join(mark.format(number) + answer for number, answer in enumerate(answers, 1))
    found = parse_batch(reply, len(answers))
    assert len(found) == len(answers)
    for one, other in zip(found, answers, strict=True):
        assert one.split() == other.split() or one.strip("*_:. \t").split() == other.strip("*_:. \t").split()


@given(st.text(), st.integers(1, 5))
def test_any_reply_is_survived(reply, count):
    assert len(parse_batch(reply, count)) <= count


def test_a_bad_size_is_told():
    with ChatServer("x") as server, refused("size", "range"):
        ask_batch(client(server), ["a"], size=0)
