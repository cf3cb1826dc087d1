"""The chat client against a server on this machine."""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import os
import pickle
import socket
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import quote

import pytest
from chat_server import ChatServer, Half, client, completion
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from rllib_llm_comm.chat import client as chat_client
from rllib_llm_comm.chat.answers import AnswerError, UnknownFormError, ask_for, strict_form
from rllib_llm_comm.chat.chat_model import TOKENS, ChatDownError, ChatError, asking_for, count_scope, cut_at
from rllib_llm_comm.chat.client import ChatClient
from rllib_llm_comm.chat.endpoint import shown
from rllib_llm_comm.chat.message_server import MessageServer
from rllib_llm_comm.core.errors import UserError
from tests.refusal import refused

pytestmark = pytest.mark.usefixtures("chat_client_at_home")


KEY = "sk-very-secret-0123456789"


def test_an_answer_comes_with_its_cost():
    with ChatServer("hello") as server:
        more = {"extra_body": {"reasoning_effort": "low", "seed": 3}, "max_tokens": 7}
        asked = client(server, price_per_million_input=10.0, price_per_million_output=100.0, **more)
        assert asked.complete("hi", system="be brief") == "hello"
        counters = asked.counters
        assert (counters.requests, counters.input_tokens, counters.output_tokens) == (1, 100, 20)
        assert counters.cost == pytest.approx(0.003)
        assert pickle.loads(pickle.dumps(asked)).complete("ho") == "hello"
    sent = server.requests[0]
    assert sent["model"] == "tiny" and sent["max_tokens"] == 7 and sent["temperature"] == 0.0
    assert sent["reasoning_effort"] == "low" and sent["seed"] == 3
    assert [m["role"] for m in sent["messages"]] == ["system", "user"]


def test_retry_after_is_waited_for():
    with ChatServer((429, {"retry-after": "0.4"}), "hello") as server:
        client(server).complete("hi")
    assert server.times[1] - server.times[0] >= 0.4


@pytest.mark.parametrize("status", [400, 401])
def test_refused_requests_are_not_repeated_and_cost_nothing(status, tmp_path):
    with ChatServer(status) as server:
        asked = client(server, budget=1.0, cache_dir=tmp_path, **PRICES)
        with pytest.raises(ChatError, match=f"HTTP {status}"):
            asked.complete("hi")
    assert len(server.requests) == 1 and asked._ledger.spent == 0


def with_message(message):
    return json.dumps({"choices": [{"message": message}]}).encode()


@pytest.mark.parametrize(
    "body",
    [b'{"choices": []}', b"null", b"[" * 5000, b"\xff\xfe\x00", *map(with_message, [{}, {"content": 5}, "hello"])],
)
def test_what_is_no_completion_is_asked_for_again(body):
    with ChatServer(body, "hello") as server:
        assert client(server).complete("hi") == "hello" and len(server.requests) == 2


THOUGHT = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}


@pytest.mark.parametrize(
    ("message", "answer"),
    [
        ({"content": [THOUGHT, {"type": "text", "text": "hello"}]}, "hello"),
        ({"content": [{"type": "output_text", "text": "hel"}, {"type": "output_text", "text": "lo"}]}, "hello"),
        ({"content": [{"type": "reasoning", "text": "hm"}, {"type": "redacted_thinking"}, "hello"]}, "hello"),
        ({"content": [{"text": "hm", "thought": True}, {"text": "hello"}]}, "hello"),
        ({"content": [{"type": "text", "text": {"value": "hello", "annotations": []}}]}, "hello"),
        ({"content": {"type": "text", "text": "hello"}}, "hello"),
        ({"content": [{"type": "refusal", "refusal": "I'm sorry."}]}, "I'm sorry."),
        ({"content": None, "refusal": "I'm sorry."}, "I'm sorry."),
        ({"content": "hello", "reasoning_content": "hm", "refusal": None}, "hello"),
        ({"content": None, "reasoning_content": "hm"}, ""),
        ({"reasoning": "hm"}, ""),
        ({"content": None, "tool_calls": [{"function": {"name": "plan", "arguments": '{"goal": 1}'}}]}, '{"goal": 1}'),
        ({"content": "", "tool_calls": [{"function": {"name": "plan", "arguments": {"goal": 1}}}]}, '{"goal": 1}'),
        ({"content": "hello", "tool_calls": [{"function": {"name": "plan", "arguments": "{}"}}]}, "hello"),
        ({"content": None, "tool_calls": [{"function": {"arguments": "{}"}}] * 2}, ""),
        ({"content": None, "tool_calls": [{"function": 5}]}, ""),
        ({"content": None, "tool_calls": "plan"}, ""),
        ({"content": []}, ""),
    ],
)
def test_an_answer_in_parts_is_read_without_its_thoughts(message, answer, caplog):
    with ChatServer(with_message(message)) as server:
        assert client(server).complete("hi") == answer and len(server.requests) == 1
    assert bool(caplog.records) == (answer == "" or bool(message.get("refusal")))


@pytest.mark.parametrize(
    ("choice", "told"),
    [
        ({"message": {"content": None, "refusal": "I cannot help."}}, "a refusal: 'I cannot help.'"),
        ({"message": {"content": None}, "finish_reason": "content_filter"}, "the server's filter"),
        ({"message": {"content": None, "tool_calls": [{"function": {"arguments": "{}"}}] * 2}}, "several tool calls"),
        ({"message": {"content": None, "reasoning_content": "hm"}}, "no content beside thoughts"),
    ],
)
def test_what_stands_in_place_of_an_answer_is_named_once(choice, told, caplog):
    with ChatServer(*[json.dumps({"choices": [choice]}).encode()] * 2) as server:
        asked = client(server)
        asked.complete("hi")
        asked.complete("ho")
    assert [record.getMessage().count(told) for record in caplog.records] == [1]


def test_parts_that_hold_no_text_are_named_once_and_not_asked_again(caplog):
    picture = {"type": "image_url", "image_url": {"url": "data:,"}}
    replies = [with_message({"content": parts}) for parts in ([picture], [picture, "hello"], [picture, "ho"])]
    with ChatServer(*replies) as server:
        asked = client(server)
        with pytest.raises(ChatError, match="'image_url'"):
            asked.complete("hi")
        assert asked.complete("hi") == "hello" and asked.complete("hi") == "ho" and len(server.requests) == 3
    assert len(caplog.records) == 1 and asked.counters.failures == 1


def test_a_stream_is_not_asked_for_again():
    piece = json.dumps({"choices": [{"delta": {"content": "hello"}}]})
    with ChatServer(f"data: {piece}\n\ndata: [DONE]\n\n".encode()) as server:
        with pytest.raises(ChatError, match="turn streaming off"):
            client(server).complete("hi")
        assert len(server.requests) == 1


def test_answers_are_bounded():
    with ChatServer("x" * 100_000, completion("y" * 2_000_000)) as server:
        asked = client(server, max_tokens=10)
        assert len(asked.complete("hi")) == 160
        with pytest.raises(ChatError, match="larger than 1 MiB"):
            asked.complete("ho")
        assert len(server.requests) == 2  # another one would be as large, and is paid for


def test_the_second_time_is_free(tmp_path):
    with ChatServer("hello", "other") as server:
        assert client(server, cache_dir=tmp_path).complete("hi") == "hello"
        again = client(server, cache_dir=tmp_path)
        assert again.complete("hi") == "hello"
        assert len(server.requests) == 1 and again.counters.cached == 1 and again.counters.requests == 0
        assert client(server, cache_dir=tmp_path, temperature=0.5).complete("hi") == "other"
        assert client(server, cache_dir=tmp_path).complete("hi", system="s") == "other"
    assert not list(tmp_path.rglob("*.tmp"))


@pytest.mark.parametrize("content", ["{", "[]", '{"answer": "of another request"}'])
def test_damaged_entries_are_asked_again(tmp_path, content):
    with ChatServer("hello") as server:
        client(server, cache_dir=tmp_path).complete("hi")
        (entry,) = (tmp_path / "answers").glob("*.json")
        entry.write_text(content)
        assert client(server, cache_dir=tmp_path).complete("hi") == "hello"
        assert len(server.requests) == 2 and json.loads(entry.read_text())["answer"] == "hello"


def test_the_budget_holds_across_clients(tmp_path):
    # 100 tokens in and 20 out cost 1.2; "hi" has 18 bytes, so a request may cost 0.18 + 0.3.
    costs = {"price_per_million_input": 1e4, "price_per_million_output": 1e4, "max_tokens": 30, "cache_dir": tmp_path}
    with ChatServer("hello") as server:
        first = client(server, budget=2.0, **costs)
        assert first.complete("hi") == "hello"
        second = client(server, budget=2.0, **costs)
        assert second.complete("ho") == "hello"
        with pytest.raises(UserError, match=r"`budget` is 2 but 2\.4 is spent"):
            client(server, budget=2.0, **costs).complete("hu")
        assert client(server, budget=2.0, **costs).complete("hi") == "hello"
        assert len(server.requests) == 2
        assert client(server, budget=3.0, **costs).complete("hu") == "hello"
    next((tmp_path / "spending").glob("*.json")).write_text("?")
    with refused("cache_dir"):
        client(server, budget=9.0, **costs).complete("new")


def test_the_key_stays_secret(tmp_path, monkeypatch, caplog, capfd):
    monkeypatch.setenv("MY_KEY", KEY)
    caplog.set_level(logging.DEBUG)
    shown = []
    with ChatServer(500, f"your key is {KEY}", 400, b"?" + KEY.encode()) as server:
        asked = client(server, api_key_env="MY_KEY", cache_dir=tmp_path, max_retries=1)
        shown.append(asked.complete("hi"))
        for prompt in "ab":
            try:
                asked.complete(prompt)
            except ChatError as error:
                shown.append("".join(traceback.format_exception(error)))
                assert error.__context__ is None or KEY not in repr(vars(error.__context__))
        assert server.headers[0]["authorization"] == f"Bearer {KEY}"
    assert len(shown) == 3 and "HTTP 400: echo {" in shown[1]
    assert "no chat completion: ?[key]" in shown[2]
    shown += [repr(asked), str(asked.counters), caplog.text, *capfd.readouterr(), str(pickle.dumps(asked))]
    shown += [path.read_text() for path in Path(tmp_path).rglob("*") if path.is_file()]
    assert all(KEY not in text for text in shown)


def test_a_missing_key_is_named(monkeypatch):
    for url in (None, "https://example.org/v1"):
        with pytest.raises(UserError, match="`api_key_env` is 'NO_SUCH_KEY' .* not set"):
            ChatClient("gpt", url, api_key_env="NO_SUCH_KEY").complete("hi")
    monkeypatch.setenv("ODD_KEY", "sk-1\n2")
    with pytest.raises(UserError, match="no key has") as caught:
        ChatClient("gpt", api_key_env="ODD_KEY").complete("hi")
    assert "sk-1" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model", ""), ("timeout", float("nan")), ("budget", 5.0), ("max_tokens", {"plan": 0}),
        ("max_tokens", {"plans": 100}), ("extra_body", {"max_completion_tokens": 10**6}), ("extra_body", {"n": 5}),
        ("cache_dir", True), ("max_concurrent", 65),
    ],
)  # fmt: skip
def test_bad_settings(name, value):
    with pytest.raises(UserError, match=f"`{name}"):
        ChatClient(**{"model": "gpt", name: value})


def test_the_package_is_imported_late():
    code = "import sys, rllib_llm_comm.chat.client; sys.exit('openai' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env={**os.environ}).returncode == 0


def test_the_servers_words_are_shown_bounded_and_without_keys():
    told = shown(f"bad\x1b[31m header\nAuthorization: Bearer {KEY} and sk-proj-abcdef***wxyz " + "x" * 9999, KEY)
    assert told.startswith("bad [31m header Authorization: [key] and [key] xxx") and len(told) < 310
    assert KEY not in shown("x" * 290 + KEY, KEY) and "sk-v" not in shown("x" * 290 + KEY, KEY)


def base64_of(key: str) -> str:
    return base64.b64encode(key.encode()).decode()


DISGUISES = {
    "plain": str, "capitals": str.upper, "spaced": " ".join, "reversed": lambda key: key[::-1],
    "a part": lambda key: key[4:15], "base64": base64_of,
    "base64 for addresses": lambda key: base64.urlsafe_b64encode(key.encode()).decode(),
    "user and key": lambda key: base64_of(f"user:{key}"), "another user": lambda key: base64_of(f"ann:{key}"),
    "base64 of the reversed": lambda key: base64_of(key[::-1]), "base64 reversed": lambda key: base64_of(key)[::-1],
    "hex": lambda key: key.encode().hex(), "hex in capitals": lambda key: key.encode().hex(":").upper(),
    "percent": lambda key: quote(key, safe=""), "all percent": lambda key: "".join(f"%{ord(mark):02X}" for mark in key),
    "wide": lambda key: "".join(chr(ord(mark) + 0xFEE0) for mark in key),
    "marks between": lambda key: "\u0301".join(key),
}  # fmt: skip
LETTERS = "".join(map(chr, range(33, 127)))


@pytest.mark.parametrize("name", DISGUISES)
def test_a_key_in_disguise_is_not_shown(name, monkeypatch):
    key = "sk-very/secret+0123456789~Xyz"
    monkeypatch.setenv("MY_KEY", key)
    echo = f"bad key {DISGUISES[name](key)} for you"
    replies = [
        (400, {"error": {"message": echo}}), (500, {"error": echo}), (422, {"detail": [echo]}), (200, {"oh": echo}),
    ]  # fmt: skip

    class Echo(ChatServer):
        def reply(self, path, headers, body):
            status, document = replies.pop(0)
            return status, {}, json.dumps(document, ensure_ascii=False).encode()

    with Echo("") as server:
        asked = client(server, api_key_env="MY_KEY", max_retries=0)
        for status, _ in list(replies):
            with pytest.raises(ChatError) as caught:
                asked.complete("hi")
            told = str(caught.value)
            assert DISGUISES[name](key)[:12] not in told and (status == 200 or f"HTTP {status}" in told)
            assert ("bad key [key] for you" in told) == (name == "plain")
    with ChatServer(echo) as server:
        asked = client(server, api_key_env="MY_KEY")
        if name == "plain":
            assert asked.complete("hi") == "bad key [key] for you"
        else:
            with pytest.raises(ChatError, match="in disguise"):
                asked.complete("hi")


@given(st.text(LETTERS, min_size=5, max_size=60), st.sampled_from(sorted(DISGUISES)), st.text(LETTERS, max_size=9))
def test_no_key_is_shown_in_disguise(key, name, beside):
    disguised = DISGUISES[name](key)
    told = shown(f"{beside} {disguised} {beside}", key)
    assert key not in told
    assert "left out" in told or disguised == key or name == "a part"


@given(st.text(LETTERS, min_size=20, max_size=60).filter(lambda key: sum(map(str.isalnum, key)) >= 16))
def test_words_without_the_key_are_shown(key):
    words = "The model `meta/Llama-3.1-70B` does not exist; max_tokens must be at most 4096 (request 8f3a)."
    assert shown(words, key) == words


@pytest.mark.parametrize("status", [302, 307])
def test_requests_are_not_sent_on_to_elsewhere(status):
    with ChatServer("from elsewhere") as elsewhere:
        reply = (status, {"location": f"{elsewhere.url}/chat/completions"})
        with ChatServer(reply) as server, pytest.raises(ChatError, match=f"HTTP {status}: it sends requests on to"):
            client(server).complete("hi")
        assert len(server.requests) == 1 and not elsewhere.requests


def test_a_count_beyond_all_bounds_is_none():
    body = json.loads(completion("hello"))
    body["usage"] = {"prompt_tokens": 10**400, "completion_tokens": 10**400}
    with ChatServer(json.dumps(body).encode()) as server:
        asked = client(server, price_per_million_input=10.0, price_per_million_output=10.0, budget=1.0)
        assert asked.complete("hi") == "hello" and 0 < asked.counters.cost < 1


def test_an_answer_can_be_written_to_a_file(tmp_path):
    with ChatServer(b'{"choices": [{"message": {"content": "a \\ud800 b"}}]}') as server:
        answer = client(server).complete("hi")
    (tmp_path / "answer").write_text(answer, encoding="utf-8")
    assert answer == "a ? b"


# ---- servers that want other parameters, answers that are cut off, and what is asked for -------------------------


class Part(BaseModel):
    what: str = Field(min_length=1)
    reason: str = ""


class Plan(BaseModel):
    goal: str
    parts: list[Part] = Field(max_length=3)


PLAN = '{"goal": "soup", "parts": [{"what": "onion"}]}'


class Picky(ChatServer):
    """Refuses a parameter with OpenAI's words, or without a word."""

    def __init__(self, refused, words, *replies):
        super().__init__(*replies)
        self.refused, self.words = refused, words

    def reply(self, path, headers, body):
        if self.refused not in body:
            return super().reply(path, headers, body)
        error = {"error": {"message": self.words, "code": "unsupported_parameter", "param": self.refused}}
        return 400, {}, json.dumps(error).encode() if self.words else b""


def test_the_new_name_of_max_tokens_is_found_out_once():
    words = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
    with Picky("max_tokens", words, "hello") as server:
        asked = client(server, max_tokens=70, price_per_million_output=1.0)
        assert asked.complete("hi") == asked.complete("ho") == "hello"
    assert [body.get("max_completion_tokens") for body in server.requests] == [None, 70, 70]
    assert asked.counters.failures == 0 and asked.counters.cost == pytest.approx(40e-6)


def test_a_temperature_that_is_not_taken_is_left_out():
    words = "Unsupported value: 'temperature' does not support 0 with this model. Only the default (1) value is."
    with Picky("temperature", words, "hello") as server:
        assert client(server).complete("hi") == "hello"
    assert [("temperature" in body) for body in server.requests] == [True, False]


def test_a_form_is_sent_as_a_strict_schema():
    with ChatServer(PLAN) as server:
        assert ask_for(client(server), "What next?", Plan).goal == "soup"
        client(server).complete("free text")
        ask_for(client(server, forms=False), "And then?", Plan)
    form = server.requests[0]["response_format"]["json_schema"]
    assert form["name"] == "Plan" and form["strict"]
    assert form["schema"]["required"] == ["goal", "parts"] and form["schema"]["additionalProperties"] is False
    part = form["schema"]["$defs"]["Part"]
    assert part["required"] == ["what", "reason"] and part["properties"]["what"] == {"type": "string"}
    assert form["schema"]["properties"]["parts"]["maxItems"] == 3
    assert not any("response_format" in body for body in server.requests[1:])


@pytest.mark.parametrize("words", ["response_format is not supported", ""])
def test_a_server_without_forms_is_asked_without(words, caplog):
    with Picky("response_format", words, PLAN) as server:
        asked = client(server)
        assert ask_for(asked, "What next?", Plan).goal == ask_for(asked, "And then?", Plan).goal == "soup"
    assert [("response_format" in body) for body in server.requests] == [True, False, False]
    assert caplog.text.count("It refuses `response_format`") == 1


def test_a_refusal_for_another_reason_does_not_cost_the_form():
    with ChatServer(400, 400, PLAN) as server:
        asked = client(server)
        with pytest.raises(ChatError, match="HTTP 400"):
            ask_for(asked, "Too long?", Plan)
        ask_for(asked, "What next?", Plan)
    assert [("response_format" in body) for body in server.requests] == [True, False, True]


def test_forms_that_servers_cannot_write():
    with pytest.raises(UnknownFormError):
        strict_form({"type": "object", "additionalProperties": {"type": "string"}})


@pytest.mark.parametrize(
    ("given", "plan", "label"),
    [(None, TOKENS["plan"], TOKENS["label"]), (70, 70, 70), ({"plan": 3000}, 3000, TOKENS["label"])],
)
def test_each_purpose_has_its_own_bound(given, plan, label):
    assert TOKENS["plan"] >= 1500
    with ChatServer(PLAN) as server:
        asked = client(server, max_tokens=given)
        ask_for(asked, "What next?", Plan)
        with asking_for("label"):
            asked.complete("hi")
    assert [body["max_tokens"] for body in server.requests] == [plan, label]


def test_a_cut_answer_is_named_and_asked_again_where_there_is_more_room(tmp_path, caplog):
    with ChatServer(completion("to be or", "length"), completion("or not", "length"), "to be") as server:
        asked = client(server, max_tokens={"other": 5}, cache_dir=tmp_path)
        answer = asked.complete("hi")
        assert answer == "to be or" and cut_at(answer) == 5 and cut_at(asked.complete("hi")) == 5
        asked.complete("ho")
        assert asked.counters.truncated == 2 and len(server.requests) == 2
        assert caplog.text.count("was cut off after 5 tokens; raise `max_tokens`") == 1
        more = client(server, max_tokens={"other": 50}, cache_dir=tmp_path)
        assert more.complete("hi") == "to be" and cut_at(more.complete("hi")) == 0


def test_a_plan_that_is_cut_off_says_so_also_within_its_thoughts():
    with ChatServer(completion('{"goal": "so', "length"), completion(None, "length")) as server:
        asked = client(server, max_tokens=12)
        with pytest.raises(AnswerError, match=r"it was cut off after 12 tokens \(raise `max_tokens`\)"):
            ask_for(asked, "What next?", Plan)
        assert "it was cut off, since it became too long" in server.requests[1]["messages"][-1]["content"]
        assert asked.complete("hi") == "" and asked.counters.truncated == 3


# ---- servers that answer late, wrongly, by halves or not at all --------------------------------------------------


TROUBLES = {
    "late": 0.6, "too slow": 408, "too many": 429, "too many for a moment": (429, {"retry-after": "0"}), "broken": 500,
    "not there": 503, "half a body": Half(completion("hello")), "half a document": completion("hello")[:-30],
    "a page": b"<html>busy</html>", "nothing": b"", "hangs up": None,
}  # fmt: skip


PRICES = {"price_per_million_input": 1e4, "price_per_million_output": 1e4, "max_tokens": 30}
MOST = 0.18 + 0.3  # "hi" has 18 bytes with its frame
# Lost on the way or cut, a request may be paid for all the same; only a server that refuses one surely takes nothing.
COSTS = {**dict.fromkeys(TROUBLES, MOST), **dict.fromkeys(("too many", "too many for a moment", "not there"), 0.0)}


@pytest.mark.parametrize("name", TROUBLES)
def test_what_passes_is_survived_and_kept_and_what_lasts_is_one_error_and_stays_booked(name, tmp_path):
    trouble = TROUBLES[name]
    with ChatServer(trouble, trouble, "hello", trouble) as server, count_scope() as counted:
        asked = client(server, timeout=0.3, cache_dir=tmp_path, max_retries=2, **PRICES)
        assert asked.complete("hi") == "hello" and asked.complete("hi") == "hello" and len(server.requests) == 3
        assert asked.counters.cost == pytest.approx(1.2 + 2 * COSTS[name]) and asked.counters.retries == 2
        with pytest.raises(ChatError, match="after 3 requests"):
            asked.complete("ho")
        assert len(server.requests) == 6 and asked.recall("ho") is None
    assert asked.counters.failures == counted.failures == 1 and asked.counters.retries == counted.retries
    assert asked.counters.cost == pytest.approx(1.2 + 5 * COSTS[name]) == asked._ledger.spent


@pytest.mark.parametrize("trouble", [completion("y" * 2_000_000), None], ids=["too large", "hangs up"])
def test_the_budget_bounds_what_a_broken_server_is_paid(trouble, tmp_path):
    """Each request may be paid for, so 12 are not sent where 4 spend the budget."""
    with ChatServer(trouble) as server:
        asked = client(server, timeout=0.3, cache_dir=tmp_path, max_retries=3, budget=4 * MOST + 0.1, **PRICES)
        for _ in range(3):
            with pytest.raises((ChatError, UserError)):
                asked.complete("hi")
        with pytest.raises(UserError):
            asked.complete("ho")
        paid = len(server.requests)
    assert paid <= 4 and asked._ledger.spent == pytest.approx(paid * MOST)


def test_a_server_that_was_never_reached_costs_nothing(tmp_path):
    with ChatServer("x") as server:
        pass
    asked = client(server, timeout=0.3, cache_dir=tmp_path, max_retries=1, **PRICES)
    with pytest.raises(ChatError, match="no connection"):
        asked.complete("hi")
    assert asked._ledger.spent == 0


@pytest.mark.parametrize(("trouble", "questions"), [(None, 3), (401, 1), (404, 1)])
def test_a_dead_server_is_left_alone(trouble, questions, monkeypatch):
    with ChatServer(trouble) as server:
        asked = client(server, timeout=0.3, max_retries=1)
        for number in range(questions):
            last = number + 1 == questions
            error, told = (ChatDownError, "left alone") if last else (ChatError, "after 2 requests")
            with pytest.raises(error, match=told):
                asked.complete("hi")
        sent = len(server.requests)
        with pytest.raises(ChatDownError):
            asked.complete("hi")
        assert len(server.requests) == sent == (1 if questions == 1 else 6)
        later = {"monotonic": lambda: time.monotonic() + chat_client.PAUSE + 1}
        monkeypatch.setattr(chat_client, "time", SimpleNamespace(**{**vars(time), **later}))
        server.replies = ["hello"]
        assert asked.complete("hi") == "hello" and asked.complete("ho") == "hello"


def test_an_empty_account_is_not_asked_again_and_again():
    class Empty(ChatServer):
        def reply(self, path, headers, body):
            return 429, {}, json.dumps({"error": {"message": "quota", "code": "insufficient_quota"}}).encode()

    with Empty("") as server:
        with pytest.raises(ChatDownError, match="HTTP 429: quota"):
            client(server, timeout=0.3).complete("hi")
        assert len(server.requests) == 1


def test_refusals_of_single_questions_do_not_stop_the_others():
    with ChatServer(400, 400, 400, 400, "hello") as server:
        asked = client(server, timeout=0.3)
        for prompt in "abcd":
            with pytest.raises(ChatError, match="HTTP 400"):
                asked.complete(prompt)
        assert asked.complete("e") == "hello"


# ---- a server that sends a byte now and then: no single read takes long, and yet the time-out holds --------------


HEAD = b"HTTP/1.1 200 OK\r\n"
BODY = HEAD + b"Content-Type: application/json\r\nContent-Length: 100000\r\n\r\n"


@contextlib.contextmanager
def trickling(begin, drop):
    """A server that sends `begin` and then `drop` every tenth of a second."""
    ended = threading.Event()
    listening = socket.create_server(("127.0.0.1", 0))

    def answer(connection):
        with contextlib.suppress(OSError), connection:
            connection.recv(65536)
            connection.sendall(begin)
            while not ended.wait(0.1):
                connection.sendall(drop)

    def accept():
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=answer, args=(listening.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
    finally:
        ended.set()
        listening.close()


@pytest.mark.parametrize(("begin", "drop"), [(HEAD, b"X-More: b\r\n"), (BODY, b" ")], ids=["headers", "body"])
def test_the_time_out_holds(begin, drop, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    with trickling(begin, drop) as url:
        client = ChatClient("m", url, timeout=0.5, max_retries=0)
        before = time.monotonic()
        with pytest.raises(ChatError, match="time-out"):
            client.complete("hi")
        assert time.monotonic() - before < 6.0


def test_a_message_server_that_trickles_counts_as_lost():
    with trickling(BODY, b" ") as url:
        begun = time.monotonic()
        with pytest.raises(UserError, match="`message_server` at"):
            MessageServer(url, timeout=0.5, max_retries=0).write(["abc"])
    assert time.monotonic() - begun < 5
