"""Recorded sessions: made once with a server, played back without."""

from __future__ import annotations

import gzip
import json
import lzma
import pickle
import socket

import pytest
from chat_server import ChatServer, completion

from rllib_llm_comm.chat.answers import ask_batch
from rllib_llm_comm.chat.cassettes import Cassette, MissingAnswerError, describe_recording, open_chat, put_in_order
from rllib_llm_comm.chat.chat_model import ChatError, cut_at
from rllib_llm_comm.chat.client import ChatClient
from rllib_llm_comm.core.errors import UserError
from tests.refusal import refused

pytestmark = pytest.mark.usefixtures("chat_client_at_home")


def settings(server: ChatServer, path, **more) -> dict:
    return server.settings(cassette=str(path), **more)


@pytest.fixture
def no_network(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", refuse)


@pytest.fixture
def tape(tmp_path):
    path = tmp_path / "tapes" / "session.jsonl"
    with ChatServer(lambda prompt: f"re: {prompt}") as server:
        recorder = open_chat(settings(server, path, note="by the tests' server"))
        assert recorder.complete("hi") == "re: hi" and recorder.complete("hi") == "re: hi"
        assert recorder.complete("hi", system="s") == "re: hi"
        assert len(server.requests) == 2 and recorder.counters.requests == 2 and recorder.counters.cached == 1
    return path


def test_a_session_plays_back_without_network(tape, no_network):
    player = Cassette(tape)
    assert len(player) == 2 and player.complete("hi") == "re: hi" and player.complete("hi", "s") == "re: hi"
    assert (player.counters.requests, player.counters.cached, player.counters.cost) == (0, 2, 0)
    assert pickle.loads(pickle.dumps(player)).complete("hi") == "re: hi"


@pytest.mark.parametrize(("ending", "packer"), [("xz", lzma), ("gz", gzip)])
def test_a_packed_session_plays_back_and_cannot_grow(tape, ending, packer):
    packed = tape.with_suffix(f".jsonl.{ending}")
    packed.write_bytes(packer.compress(tape.read_bytes()))
    assert Cassette(packed).complete("hi", "s") == "re: hi"
    assert describe_recording(packed).startswith(f"recording {packed.name} (tiny, ")
    with pytest.raises(UserError, match="is packed and cannot grow"):
        Cassette(packed, ChatClient("tiny"))
    whole = packed.read_bytes()
    for broken in (whole[:40], whole[:40] + bytes(20) + whole[60:]):
        packed.write_bytes(broken)
        with pytest.raises(UserError, match="is no cassette"):
            Cassette(packed)


def test_the_file_tells_how_it_was_made(tape):
    header, *lines = [json.loads(line) for line in tape.read_text().splitlines()]
    assert header["cassette"] == 1 and header["model"] == "tiny" and header["note"] == "by the tests' server"
    told = [(line["system"], line["prompt"], line["answer"]) for line in lines]
    assert told == [("", "hi", "re: hi"), ("s", "hi", "re: hi")]


def test_a_missing_question_is_one_clear_error(tape, no_network):
    player = Cassette(tape)
    with pytest.raises(MissingAnswerError, match="'ho'.*settings") as caught:
        player.complete("ho")
    assert isinstance(caught.value, UserError) and player.recall("ho") is None
    with pytest.raises(MissingAnswerError, match=r"\.\.\. x{80}'"):
        player.complete("x" * 5000)


def test_failures_are_not_recorded(tape):
    with ChatServer(400) as server, pytest.raises(ChatError):
        open_chat(settings(server, tape)).complete("ho")
    assert len(Cassette(tape)) == 2


def test_batches_play_back_in_any_size(tmp_path):
    path = tmp_path / "batch.jsonl"
    with ChatServer("[1] one\n[2] two\n[3] three") as server:
        ask_batch(open_chat(settings(server, path)), ["a", "b", "c"], context="C", size=3)
        assert len(server.requests) == 1
    assert ask_batch(Cassette(path), ["c", "a"], context="C", size=1) == ["three", "one"]


def test_two_recorders_share_a_cassette(tmp_path):
    path = tmp_path / "shared.jsonl"
    with ChatServer(lambda prompt: "x" * 20_000 + prompt) as server:
        one, two = (open_chat(settings(server, path, max_tokens=4000)) for _ in range(2))
        for number in range(5):
            one.complete(f"one {number}")
            two.complete(f"two {number}")
    assert len(Cassette(path)) == 10 and path.read_text().count('"cassette"') == 1


@pytest.mark.parametrize(
    "content",
    [
        "", "{}\n", "[1]\n", '{"cassette": 2}\n', '{"cassette": 1}\nhalf\n', '{"cassette": 1}\n{"prompt": "a"}\n',
        '{"cassette": 1, "with": ["broken.jsonl"]}\n', '{"cassette": 1}\n{"system": "", "prompt": "a", "answer": 3}\n',
    ],
)  # fmt: skip
def test_what_is_no_cassette_is_told(tmp_path, content):
    path = tmp_path / "broken.jsonl"
    path.write_text(content)
    with pytest.raises(UserError, match="is no cassette") as caught:
        Cassette(path)
    assert str(caught.value).count("is no cassette") == 1


@pytest.mark.parametrize("torn", ["{", '{"model": "tiny", "prompt": "\xc3'])
def test_a_torn_last_line_loses_that_line_only(tape, torn):
    """As a process leaves it that was killed while it wrote."""
    with tape.open("ab") as file:
        file.write(torn.encode("latin-1"))
    assert Cassette(tape).complete("hi") == "re: hi" and len(Cassette(tape)) == 2
    with ChatServer("new") as server:
        recorder = open_chat(settings(server, tape))
        assert [recorder.complete(q) for q in ("hi", "ho")] == ["re: hi", "new"] and len(server.requests) == 1
    assert len(Cassette(tape)) == 3 and Cassette(tape).complete("ho") == "new"
    assert all(json.loads(line) for line in tape.read_text().splitlines())


def test_a_last_line_without_its_end_is_kept_if_it_is_whole(tape):
    tape.write_bytes(tape.read_bytes().rstrip(b"\n"))
    with ChatServer("new") as server:
        open_chat(settings(server, tape)).complete("ho")
    assert len(Cassette(tape)) == 3


@pytest.mark.parametrize("head", ["", "{", '{"cassette": 1, "mod'])
def test_a_recorder_that_was_killed_at_once_begins_anew(tmp_path, head):
    path = tmp_path / "new.jsonl"
    path.write_text(head)
    with ChatServer("hello") as server:
        open_chat(settings(server, path)).complete("hi")
    assert Cassette(path).complete("hi") == "hello" and Cassette(path).header["model"] == "tiny"


def test_a_cut_answer_is_recorded_as_such_and_asked_again_where_there_is_more_room(tmp_path):
    path = tmp_path / "cut.jsonl"
    with ChatServer(completion("to be or", "length"), "to be or not to be") as server:
        answer = open_chat(settings(server, path, max_tokens=5)).complete("hi")
        assert answer == "to be or" and cut_at(answer) == 5
        assert cut_at(Cassette(path).complete("hi")) == 5
        assert open_chat(settings(server, path, max_tokens=5)).complete("hi") == "to be or"
        assert len(server.requests) == 1
        assert open_chat(settings(server, path, max_tokens=50)).complete("hi") == "to be or not to be"
    assert Cassette(path).complete("hi") == "to be or not to be"


def test_settings_are_checked(tmp_path):
    none = str(tmp_path / "none.jsonl")
    for given, wrong in (
        ({"cassette": none}, ("", "invalid", "does not exist")), ({"cassette": 5}, ("chat.cassette", "type")),
        ({"cassette": ""}, ("chat.cassette", "range")), ({"model": "tiny", "cassette": 5}, ("chat.cassette", "type")),
        ({}, ("chat.model", "missing")), ({5: "tiny"}, ("chat", "type", "has the key 5")),
        ({"modle": 3, "cassette": none}, ("chat.modle", "unknown", "'model'")),
        ("gpt-4o", ("chat", "type")), ({"model": "tiny", "dtype": "float32"}, ("chat.dtype", "unknown")),
    ):  # fmt: skip
        with refused(*wrong):
            open_chat(given)
    assert isinstance(open_chat({"model": "tiny"}), ChatClient)


def test_a_recording_that_has_ended_does_not_tell_in_which_order_answers_came(tmp_path):
    head = {"cassette": 1, "model": "tiny", "made": "2026-01-01", "note": ""}
    lines = [{"model": "tiny", "system": "", "prompt": one, "answer": one.upper()} for one in ("b", "c", "a")]
    again = {**lines[0], "answer": "later"}
    files = []
    for order in ([*lines, again], [lines[2], lines[0], lines[1], again]):
        files.append(tmp_path / f"{len(files)}.jsonl")
        files[-1].write_text("\n".join(json.dumps(one) for one in (head, *order)) + '\n{"model": "ti')
        put_in_order(files[-1])
    assert files[0].read_bytes() == files[1].read_bytes()
    tape = Cassette(files[0])
    assert [tape.complete(one) for one in "abc"] == ["A", "later", "C"] and tape.header == head
    put_in_order(tmp_path / "none.jsonl")
    assert not (tmp_path / "none.jsonl").exists()


def test_a_recording_may_say_which_parts_of_questions_decide_nothing(tmp_path):
    path = tmp_path / "by_hand.jsonl"
    asked = "The pot is empty.\n{}{}\nWhat now?"
    example = "\nAn example.\nThe pot is full.\nGoal: serve\n"
    earlier = "\nThis was tried earlier in this game and failed; do not answer the same again:\n- goal: a; b. Why: c\n"
    head = {"cassette": 1, "model": "by hand", "made": "2026-01-01", "note": "", "without": ["examples", "earlier"]}
    line = {"model": "by hand", "system": "", "prompt": asked.format("", ""), "answer": "fill it"}
    path.write_text("\n".join(json.dumps(one) for one in (head, line)) + "\n")
    tape = Cassette(path)
    for parts in (("", ""), (example, ""), (example * 2, earlier), ("", earlier)):
        assert tape.complete(asked.format(*parts)) == "fill it"
    assert tape.played == {"by hand": 4} and tape.counters.cached == 4
    here = "\nThis was tried from here and failed; do not answer the same again:\n- goal: a; b. Why: c\n"
    with pytest.raises(MissingAnswerError):  # a failure from here decides
        tape.complete(asked.format(here, ""))
    path.write_text("\n".join(json.dumps(one) for one in ({**head, "without": ["all"]}, line)) + "\n")
    with pytest.raises(UserError, match="'all' is no part of a question"):
        Cassette(path)
