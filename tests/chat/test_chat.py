"""The chat client against a server on this machine."""

from __future__ import annotations

import base64
import json
import logging
import os
import pickle
import time
import traceback
from pathlib import Path
from urllib.parse import quote

import pytest
from chat_server import ChatServer, client, completion
from hypothesis import given
from hypothesis import strategies as st

from rllib_llm_comm.chat.chat_model import ChatError
from rllib_llm_comm.chat.client import ChatClient
from rllib_llm_comm.chat.endpoint import is_local, shown
from rllib_llm_comm.core.errors import UserError

KEY = "sk-very-secret-0123456789"


pytestmark = pytest.mark.usefixtures("chat_client_at_home")


def test_an_answer_comes_with_its_cost():
    with ChatServer("hello") as server:
        asked = client(server, price_per_million_input=10.0, price_per_million_output=100.0, max_tokens=7)
        assert asked.complete("hi", system="be brief") == "hello"
    sent = server.requests[0]
    assert sent["model"] == "tiny" and sent["max_tokens"] == 7 and sent["temperature"] == 0.0
    assert [m["role"] for m in sent["messages"]] == ["system", "user"]
    counters = asked.counters
    assert (counters.requests, counters.input_tokens, counters.output_tokens) == (1, 100, 20)
    assert counters.cost == pytest.approx(0.003)


@pytest.mark.parametrize("trouble", [429, 500, 503, 408, (429, {"retry-after": "0"})])
def test_passing_troubles_are_tried_again(trouble):
    with ChatServer(trouble, trouble, "hello") as server:
        asked = client(server)
        assert asked.complete("hi") == "hello"
    assert asked.counters.requests == 3 and asked.counters.retries == 2 and asked.counters.failures == 0


def test_retry_after_is_waited_for():
    with ChatServer((429, {"retry-after": "0.4"}), "hello") as server:
        client(server).complete("hi")
    assert server.times[1] - server.times[0] >= 0.4


def test_lasting_troubles_end():
    with ChatServer(500) as server:
        asked = client(server, max_retries=2)
        with pytest.raises(ChatError, match="after 3 requests"):
            asked.complete("hi")
    assert len(server.requests) == 3 and asked.counters.failures == 1


@pytest.mark.parametrize("status", [400, 401, 403, 404])
def test_refused_requests_are_not_repeated(status):
    with ChatServer(status) as server, pytest.raises(ChatError, match=f"HTTP {status}"):
        client(server).complete("hi")
    assert len(server.requests) == 1


def test_a_slow_server_counts_as_lost():
    with ChatServer(6.0, "hello") as server:
        begun = time.monotonic()
        asked = client(server, timeout=1.0)
        assert asked.complete("hi") == "hello"
        assert time.monotonic() - begun < 6.0
    # A busy machine may lose an answer that was sent at once, too.
    assert asked.counters.retries >= 1


def test_no_server():
    with ChatServer("x") as server:
        pass
    with pytest.raises(ChatError, match="no connection"):
        client(server, max_retries=1).complete("hi")


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[1]", b'{"choices": []}', b'{"choices": "x"}', b"null", b"[" * 5000, b"\xff\xfe\x00"]
)
def test_garbage_is_a_failure(body, tmp_path):
    with ChatServer(body) as server:
        asked = client(server, cache_dir=tmp_path)
        with pytest.raises(ChatError):
            asked.complete("hi")
    assert asked.counters.failures == 1 and not list(tmp_path.rglob("answers/*"))


@pytest.mark.parametrize("body", [b"<html>busy</html>", completion("hello")[:-30], b""])
def test_a_page_or_half_a_document_is_asked_again(body):
    with ChatServer(body, body, "hello") as server:
        asked = client(server)
        assert asked.complete("hi") == "hello" and len(server.requests) == 3
    assert asked.counters.retries == 2 and asked.counters.failures == 0


def test_an_answer_without_text_is_empty():
    with ChatServer(completion(None)) as server:
        assert client(server).complete("hi") == ""


THOUGHT = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}


@pytest.mark.parametrize(
    ("message", "answer"),
    [
        ({"content": [THOUGHT, {"type": "text", "text": "hello"}]}, "hello"),
        ({"content": [{"type": "output_text", "text": "hel"}, {"type": "output_text", "text": "lo"}]}, "hello"),
        (
            {"content": [{"type": "reasoning", "text": "hm"}, {"type": "redacted_thinking", "data": "x"}, "hello"]},
            "hello",
        ),
        ({"content": [{"text": "hm", "thought": True}, {"text": "hello"}]}, "hello"),
        ({"content": [{"type": "text", "text": {"value": "hello", "annotations": []}}]}, "hello"),
        ({"content": {"type": "text", "text": "hello"}}, "hello"),
        ({"content": [{"type": "refusal", "refusal": "I'm sorry."}]}, "I'm sorry."),
        ({"content": None, "refusal": "I'm sorry."}, "I'm sorry."),
        ({"content": "hello", "reasoning_content": "hm", "refusal": None}, "hello"),
        ({"content": None, "reasoning_content": "hm"}, ""),
        ({"reasoning": "hm"}, ""),
        ({"content": [THOUGHT]}, ""),
        ({"content": []}, ""),
    ],
)
def test_an_answer_in_parts_is_read_without_its_thoughts(message, answer, caplog):
    with ChatServer(json.dumps({"choices": [{"message": message}]}).encode()) as server:
        assert client(server).complete("hi") == answer and len(server.requests) == 1
    assert bool(caplog.records) == (answer == "")


@pytest.mark.parametrize(
    "message", [{}, {"content": 5}, {"content": [5]}, {"content": True}, "hello", [{"content": "hi"}]]
)
def test_a_message_of_no_known_form_is_no_completion(message):
    with ChatServer(json.dumps({"choices": [{"message": message}]}).encode(), "hello") as server:
        assert client(server).complete("hi") == "hello" and len(server.requests) == 2


def test_parts_that_hold_no_text_are_named_once_and_not_asked_again(caplog):
    picture = {"type": "image_url", "image_url": {"url": "data:,"}}
    replies = ([{"message": {"content": parts}}] for parts in ([picture], [picture, "hello"], [picture, "ho"]))
    with ChatServer(*(json.dumps({"choices": choices}).encode() for choices in replies)) as server:
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


@pytest.mark.parametrize("content", ["", "{", "[]", '{"answer": 3}', '{"answer": "of another request"}', "\x00"])
def test_damaged_entries_are_asked_again(tmp_path, content):
    with ChatServer("hello") as server:
        client(server, cache_dir=tmp_path).complete("hi")
        (entry,) = (tmp_path / "answers").glob("*.json")
        entry.write_text(content)
        assert client(server, cache_dir=tmp_path).complete("hi") == "hello"
        assert len(server.requests) == 2 and json.loads(entry.read_text())["answer"] == "hello"


def test_requests_are_spread():
    with ChatServer("hello") as server:
        asked = client(server, requests_per_minute=300)
        begun = time.monotonic()
        for number in range(3):
            asked.complete(str(number))
        assert time.monotonic() - begun >= 0.4


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
    with pytest.raises(UserError, match="unreadable record"):
        client(server, budget=9.0, **costs).complete("new")


def test_failed_requests_cost_nothing(tmp_path):
    with ChatServer(400) as server:
        asked = client(
            server, budget=1.0, price_per_million_input=1.0, price_per_million_output=1.0, cache_dir=tmp_path
        )
        with pytest.raises(ChatError):
            asked.complete("hi")
    assert asked._ledger.spent == 0


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


def test_a_copy_in_another_process_works():
    with ChatServer("hello") as server:
        asked = client(server)
        asked.complete("hi")
        assert pickle.loads(pickle.dumps(asked)).complete("ho") == "hello"


def test_a_missing_key_is_named(monkeypatch):
    with pytest.raises(UserError, match="'NO_SUCH_KEY' but this environment variable is not set"):
        ChatClient("gpt", api_key_env="NO_SUCH_KEY").complete("hi")
    with pytest.raises(UserError, match="NO_SUCH_KEY"):
        ChatClient("gpt", "https://example.org/v1", api_key_env="NO_SUCH_KEY").complete("hi")
    monkeypatch.setenv("ODD_KEY", "sk-1\n2")
    with pytest.raises(UserError, match="no key has") as caught:
        ChatClient("gpt", api_key_env="ODD_KEY").complete("hi")
    assert "sk-1" not in str(caught.value)


@pytest.mark.parametrize("url", ["http://localhost:1/v1", "http://127.0.0.1/v1", "http://[::1]/v1", "http://10.0.0.3"])
def test_local_addresses(url):
    assert is_local(url)
    assert not is_local("https://api.openai.com/v1") and not is_local("http://127.0.0.1.example.org")


@pytest.mark.parametrize(
    "settings",
    [
        {"model": ""},
        {"base_url": "ftp://x"},
        {"base_url": "http://me:pass@host/v1"},
        {"timeout": 0},
        {"max_retries": -1},
        {"max_retries": 1.5},
        {"requests_per_minute": 0},
        {"budget": 0, "price_per_million_input": 1.0},
        {"budget": 5.0},
        {"temperature": 3},
        {"max_tokens": 0},
        {"timeout": float("nan")},
        {"price_per_million_input": -1},
        {"max_tokens": {"plan": 0}},
        {"max_tokens": {"plans": 100}},
        {"extra_body": {"max_completion_tokens": 10**6}},
        {"extra_body": {"n": 5}},
        {"extra_body": ["seed"]},
        {"cache_dir": True},
        {"forms": "yes"},
    ],
)
def test_bad_settings(settings):
    with pytest.raises(UserError) as caught:
        ChatClient(**{"model": "gpt", **settings})
    assert "pass@" not in str(caught.value) and f"`{next(iter(settings))}" in str(caught.value)


def test_the_package_is_imported_late():
    import subprocess
    import sys

    code = "import sys, rllib_llm_comm.chat.client; sys.exit('openai' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env={**os.environ}).returncode == 0


def test_the_servers_words_are_shown_bounded_and_without_keys():
    told = shown(f"bad\x1b[31m header\nAuthorization: Bearer {KEY} and sk-proj-abcdef***wxyz " + "x" * 9999, KEY)
    assert told.startswith("bad [31m header Authorization: [key] and [key] xxx") and len(told) < 310
    assert KEY not in shown("x" * 290 + KEY, KEY) and "sk-v" not in shown("x" * 290 + KEY, KEY)


def spaced(key: str) -> str:
    return " ".join(key)


def base64_of(key: str) -> str:
    return base64.b64encode(key.encode()).decode()


DISGUISES = {
    "plain": str,
    "capitals": str.upper,
    "spaced": spaced,
    "reversed": lambda key: key[::-1],
    "spaced and reversed": lambda key: spaced(key[::-1]),
    "lines": lambda key: "\n".join(key[start : start + 3] for start in range(0, len(key), 3)),
    "dashes": "-".join,
    "a part": lambda key: key[4:15],
    "base64": base64_of,
    "base64 in lines": lambda key: f"{base64_of(key)[:9]}\r\n{base64_of(key)[9:]}",
    "base64 without padding": lambda key: base64_of(key).rstrip("="),
    "base64 for addresses": lambda key: base64.urlsafe_b64encode(key.encode()).decode(),
    "user and key": lambda key: base64_of(f"user:{key}"),
    "another user": lambda key: base64_of(f"ann:{key}"),
    "a third": lambda key: base64_of(f"me:{key}"),
    "base64 of the reversed": lambda key: base64_of(key[::-1]),
    "base64 reversed": lambda key: base64_of(key)[::-1],
    "hex": lambda key: key.encode().hex(),
    "hex in capitals": lambda key: key.encode().hex(":").upper(),
    "percent": lambda key: quote(key, safe=""),
    "all percent": lambda key: "".join(f"%{ord(mark):02X}" for mark in key),
    "wide": lambda key: "".join(chr(ord(mark) + 0xFEE0) for mark in key),
    "marks between": lambda key: "\u0301".join(key),
}
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
        for status, _ in list(replies):
            asked = client(server, api_key_env="MY_KEY", max_retries=0)
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


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_requests_are_not_sent_on_to_elsewhere(status):
    with ChatServer("from elsewhere") as elsewhere:
        reply = (status, {"location": f"{elsewhere.url}/chat/completions"})
        with (
            ChatServer(reply) as server,
            pytest.raises(ChatError, match=f"HTTP {status}: it sends requests on to http"),
        ):
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
