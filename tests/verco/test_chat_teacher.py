"""The chat teacher: its parser, and what it makes of a server's answers."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest
from chat_server import ChatServer, completion
from hypothesis import given
from hypothesis import strategies as st

from rllib_llm_comm.chat.chat_model import ChatDownError, ChatError
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.verco.teachers.base import TeacherRequest, make_teacher, portable_teacher, teacher_identity
from rllib_llm_comm.verco.teachers.chat_teacher import ChatTeacher, is_garbage, is_refusal, parse_messages
from tests.refusal import refused

AGENTS = ("alice", "bob")
REQUEST = TeacherRequest(
    agents=AGENTS,
    observations={"alice": "You see a {tomato}.", "bob": "You see\na plate."},
    task="Make a salad.",
    brief="Two cooks share a kitchen.",
    state=object(),
)
GOOD = {"alice": "please bring the plate", "bob": "i bring the plate"}


pytestmark = pytest.mark.usefixtures("chat_client_at_home")


def ask(server: ChatServer, **settings) -> tuple[ChatTeacher, dict[str, str]]:
    teacher = make_teacher({"name": "chat", **server.settings(**settings)})
    assert isinstance(teacher, ChatTeacher)
    return teacher, teacher.messages(REQUEST, rng=np.random.default_rng(0))


@pytest.mark.parametrize(
    "answer",
    [
        "alice: please bring the plate\nbob: i bring the plate",
        "Sure! Here they are:\n\n1. **Alice**: please bring the plate.\n2. **Bob**: i bring the plate.\n\nGood luck!",
        "- ALICE: \"please bring the plate\"\n* BOB: 'i bring the plate'",
        "• **alice:** please bring the plate\r\n• **bob:** “i bring the plate”",
        '```json\n{"Alice": "please bring the plate", "bob": "i bring the plate"}\n```',
        '{"messages": {"alice": "please bring the plate", "bob": "i bring the plate"}}',
        "<think>alice: no\nbob: no</think>\nalice: please bring the plate\nbob: i bring the plate",
        "### Alice\nalice:\n  please bring the plate\n\n**bob**:\n> i bring the plate",
        "alice - please bring the plate\nbob (cook) -> i bring the plate",
        "`alice`: *please bring the plate*\n2) `bob`: i bring the plate 🍽",
        "alice： please bring the plate\nbob: i bring the plate\nalice: something else",
    ],
)
def test_answers_in_many_dresses(answer):
    assert parse_messages(answer, AGENTS) == GOOD


def test_names_inside_words_or_with_marks():
    assert parse_messages("bobby: hello there\nab: hi", ("bob", "a")) == {}
    assert parse_messages("agent_1: go left\nagent_10: go right", ("agent_10", "agent_1")) == {
        "agent_10": "go right",
        "agent_1": "go left",
    }
    assert parse_messages("a.*(: hi you", ("a.*(",)) == {"a.*(": "hi you"}


def test_long_messages_are_bounded_and_left_to_who_asks():
    found = parse_messages("alice: " + "word " * 50 + "\nbob: " + "x" * 5000, AGENTS)
    assert found["alice"] == " ".join(["word"] * 50) and len(found["bob"]) <= 500 and is_garbage(found["bob"])


def check(found: dict[str, str], agents) -> None:
    assert set(found) <= set(agents)
    for message in found.values():
        assert message and len(message) <= 500
        assert message.isprintable() and len(message.splitlines()) == 1 and message == message.strip()
        is_refusal(message), is_garbage(message)


ANYTHING = st.text(st.characters(), max_size=200)
PIECES = st.sampled_from(["alice", "Bob", ":", "\n", " ", "**", "1.", "- ", '"', "{", "}", "(", "`", "hi", "<think>"])


@given(st.one_of(ANYTHING, st.lists(st.one_of(PIECES, ANYTHING), max_size=30).map("".join)))
def test_the_parser_survives_anything(answer):
    check(parse_messages(answer, AGENTS), AGENTS)
    is_refusal(answer), is_garbage(answer)


@given(st.dictionaries(st.sampled_from(["alice", "BOB", "x"]), st.one_of(st.none(), st.integers(), ANYTHING)))
def test_the_parser_survives_any_object(values):
    check(parse_messages(json.dumps(values), AGENTS), AGENTS)


@given(st.lists(st.text(st.characters(), min_size=1, max_size=8), min_size=1, max_size=3, unique=True), ANYTHING)
def test_the_parser_survives_any_name(names, message):
    check(parse_messages("\n".join(f"{name}: {message}" for name in names), names), names)


def test_hostile_lengths_are_quick():
    begun = time.perf_counter()
    for hostile in ("{" * 10**5, "alice" + "(" * 10**5, "\n" * 10**5, "*" * 10**5, "alice:\n" * 10**4, "- " * 10**5):
        check(parse_messages(hostile, AGENTS), AGENTS)
    assert time.perf_counter() - begun < 5.0


@pytest.mark.parametrize(
    ("texts", "refused", "garbage"),
    [
        (["I'm sorry, but I can't assist with that.", "Sorry, I cannot help with that request", "i can’t comply",
          "As an AI language model I have no plate", "We cannot provide messages"], True, None),
        (["i cannot reach the plate", "i can not help, i chop", "please bring the tomato", "bob, can you answer",
          "i will not chop the lettuce", "i stay in B2"], False, False),
        (["...", "<message>", "message", "N/A", "12 34", "http://x.yz go", "a{b}c dd", "%%ok%%%"], None, True),
    ],
)  # fmt: skip
def test_refusals_and_garbage_are_told_from_sentences_of_agents(texts, refused, garbage):
    for text in texts:
        assert refused in (None, is_refusal(text)) and garbage in (None, is_garbage(text)), text


def test_a_good_answer():
    with ChatServer("alice: please bring the plate\nbob: i bring the plate") as server:
        teacher, messages = ask(server)
    assert messages == GOOD
    assert teacher.counts == {"requests": 1, "labels": 2}
    prompt = server.requests[0]["messages"][-1]["content"]
    for part in ("Two cooks share", "Make a salad.", "alice sees: You see a {tomato}.", "bob sees: You see a plate.",
                 "alice: message\nbob: message", "at most ten words"):  # fmt: skip
        assert part in prompt
    assert "object at" not in prompt


def test_its_prompts_are_a_setting(tmp_path):
    with ChatServer("alice: please bring the plate\nbob: i bring the plate") as server:
        assert ask(server, prompts="verco")[1] == GOOD
        (tmp_path / "observation.txt").write_text("{agent}, who looks at {text}")
        assert ask(server, prompts=str(tmp_path))[1] == GOOD
        (tmp_path / "teacher.txt").write_text("{observations}")
        with pytest.raises(UserError, match=r"`teacher.prompts` .*`teacher` .*\{form\}"):
            ask(server, prompts=str(tmp_path))
    papers, own = (request["messages"][-1]["content"] for request in server.requests)
    assert papers.startswith("You help 2 agents") and "Two cooks share a kitchen." in papers and "a salad" in papers
    assert "What agent alice observes: You see a {tomato}.\nWhat agent bob observes: You see a plate." in papers
    assert "alice, who looks at You see a {tomato}.\nbob, who" in own and not own.startswith("You help")


def test_its_prompts_are_known_by_their_texts(tmp_path):
    """A collection of labels does not go on under other prompts, and a checkpoint needs no folder."""
    plain, folder = {"name": "chat", "model": "m"}, tmp_path / "mine"
    given = {**plain, "prompts": str(folder)}
    folder.mkdir()
    (folder / "observation.txt").write_text("{agent}: {text}\n")
    before, kept = teacher_identity(given), portable_teacher(given)
    assert before == kept and kept["prompts"]["observation"] == "{agent}: {text}"
    assert make_teacher(kept).prompt(REQUEST) == make_teacher(given).prompt(REQUEST)
    (folder / "observation.txt").write_text("{agent} - {text}\n")
    assert teacher_identity(given) != before
    assert teacher_identity({**plain, "prompts": "default"}) == teacher_identity(plain)
    assert teacher_identity(make_teacher(given))["prompts"] == teacher_identity(given)["prompts"]
    assert portable_teacher("scripted") == "scripted"


@pytest.mark.parametrize(
    "answer, counts",
    [
        ("I'm sorry, but I cannot assist with that.", {"refusals": 2}),
        ("alice: i am sorry, i cannot comply\nbob: i chop the lettuce", {"refusals": 1, "labels": 1}),
        ("alice: ???\nbob: <message>", {"garbage": 2}), ("alice: i chop", {"labels": 1, "missing": 1}),
        ("what a fine day", {"missing": 2}), ("", {"missing": 2}), (b"<html>", {"failures": 2}), (400, {"failures": 2}),
        (completion("alice: i chop\nbob", "length"), {"labels": 1, "missing": 1, "truncated": 1}),
        ("bob: i chop" + "\n x" * 100_000, {"labels": 1, "missing": 1}),
    ],
)  # fmt: skip
def test_poor_answers_are_counted(answer, counts):
    with ChatServer(answer) as server:
        teacher, messages = ask(server, max_retries=1)
    assert teacher.counts == {"requests": 1, **counts} and len(messages) == counts.get("labels", 0)


def test_a_revoked_key_is_no_single_failure_and_failures_can_be_asked_for():
    with ChatServer(401) as server, pytest.raises(ChatDownError):
        ask(server)
    with ChatServer(500) as server, pytest.raises(ChatError):
        ask(server, max_retries=0, on_error="raise")


def test_what_a_user_must_mend_raises():
    with ChatServer("alice: hi you") as server, refused("budget"):
        ask(server, budget=1e-9, price_per_million_input=1.0)
    with pytest.raises(UserError, match="NO_SUCH_KEY"):
        ChatTeacher(model="gpt", api_key_env="NO_SUCH_KEY").messages(REQUEST, rng=np.random.default_rng(0))


@pytest.mark.parametrize(("setting", "value"), [("model", None), ("on_error", "cry"), ("modle", 1), ("forms", 1)])
def test_bad_settings(setting, value):
    settings = {"name": "chat", "model": "x", setting: value}
    for use in (make_teacher, portable_teacher):
        with refused(f"teacher.{setting}", None):
            use(settings)
