"""Several questions in one request."""

from __future__ import annotations

import re

import pytest
from chat_server import ChatServer, client
from hypothesis import given
from hypothesis import strategies as st

from rllib_llm_comm.chat.answers import ask_batch, batch_prompt, parse_batch, single_prompt
from rllib_llm_comm.chat.chat_model import ChatError
from rllib_llm_comm.core.errors import UserError

pytestmark = pytest.mark.usefixtures("chat_client_at_home")


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
        "[1] one\n[1] two\n[3] three",
        "[1] one\n[3] three",
        "[1] one\n[2] two\n[3] three\n[4] four",
        "[1] one\n[2]\n[3] three",
        "[0] one\n[1] two\n[2] three",
        "",
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
        server.replies = [obedient, 400]
        with pytest.raises(ChatError, match="HTTP 400"):
            ask_batch(asked, ["a", "b", "c", "d"], size=2)
        server.replies = [obedient]
        assert ask_batch(asked, ["a", "b", "c", "d"], size=2) == ["re: a", "re: b", "re: c", "re: d"]
        assert len(server.requests) == 3


def test_thoughts_are_no_answers():
    assert parse_batch("<think>[1] hm\n[2] so</think>[1] one\n[2] two", 2) == ["one", "two"]
    with ChatServer("<think>hm") as server:
        assert ask_batch(client(server), ["a"]) == [""]


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


def test_prompt_tells_the_form_and_keeps_braces():
    prompt = batch_prompt(["what is {count}?", "b"], "{manual}")
    assert prompt.startswith("{manual}\n\n") and "Question 1: what is {count}?" in prompt and "[1] to [2]" in prompt


@pytest.mark.parametrize("size", [0, 1.5, True])
def test_bad_sizes_get_one_sentence(size):
    with ChatServer("x") as server, pytest.raises(UserError, match="`size`"):
        ask_batch(client(server), ["a"], size=size)
