"""Servers that answer late, wrongly, by halves or not at all; and several processes with one cache and one budget."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from chat_server import ChatServer, Half, client, completion

from rllib_llm_comm.chat import client as chat_client
from rllib_llm_comm.chat.chat_model import ChatDownError, ChatError
from rllib_llm_comm.chat.client import ChatClient
from rllib_llm_comm.core.errors import UserError

pytestmark = pytest.mark.usefixtures("chat_client_at_home")

TROUBLES = {
    "late": 1.0,
    "too many": 429,
    "broken": 500,
    "half a body": Half(completion("hello")),
    "hangs up": None,
}


PRICES = {"price_per_million_input": 1e4, "price_per_million_output": 1e4, "max_tokens": 30}
MOST = 0.18 + 0.3  # "hi" has 18 bytes with its frame
# Lost on the way or cut, a request may be paid for all the same; only a server that refuses one surely takes nothing.
COSTS = {**dict.fromkeys(TROUBLES, MOST), "too many": 0.0}


@pytest.mark.parametrize("name", TROUBLES)
def test_what_passes_is_survived_and_kept(name, tmp_path):
    trouble = TROUBLES[name]
    with ChatServer(trouble, "hello", trouble) as server:
        asked = client(server, timeout=0.3, cache_dir=tmp_path, **PRICES)
        assert asked.complete("hi") == "hello" and asked.complete("hi") == "hello"
        assert len(server.requests) == 2
    assert asked.counters.cost == pytest.approx(1.2 + COSTS[name]) and asked.counters.retries == 1


@pytest.mark.parametrize("name", TROUBLES)
def test_what_lasts_is_one_error_and_stays_booked(name, tmp_path):
    with ChatServer(TROUBLES[name]) as server:
        asked = client(server, timeout=0.3, cache_dir=tmp_path, max_retries=1, **PRICES)
        with pytest.raises(ChatError, match="after 2 requests"):
            asked.complete("hi")
        assert len(server.requests) == 2
    assert asked.counters.failures == 1 and asked.recall("hi") is None
    assert asked.counters.cost == pytest.approx(2 * COSTS[name]) == asked._ledger.spent


BROKEN = [1.0, Half(completion("hello")), completion("y" * 2_000_000), b"<html>", None]


@pytest.mark.parametrize("trouble", BROKEN, ids=["late", "half a body", "too large", "a page", "hangs up"])
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


@pytest.mark.parametrize(("trouble", "questions"), [(500, 3), (None, 3), (b"<html>", 3), (401, 1), (404, 1)])
def test_a_dead_server_is_left_alone(trouble, questions, monkeypatch):
    with ChatServer(trouble) as server:
        asked = client(server, timeout=0.3, max_retries=1)
        for number in range(questions):
            last = number + 1 == questions
            with pytest.raises(
                ChatDownError if last else ChatError, match="left alone" if last else "after 2 requests"
            ):
                asked.complete("hi")
        sent = len(server.requests)
        with pytest.raises(ChatDownError):
            asked.complete("hi")
        assert len(server.requests) == sent == (1 if questions == 1 else 6)
        later = SimpleNamespace(
            monotonic=lambda: time.monotonic() + chat_client.PAUSE + 1, perf_counter=time.perf_counter
        )
        monkeypatch.setattr(chat_client, "time", later)
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


_ASK = """
import json, sys
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.chat.client import ChatClient
address, folder, budget, questions = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), sys.argv[4:]
client = ChatClient("tiny", address, requests_per_minute=1e6, cache_dir=folder, budget=budget, max_tokens=30,
                    price_per_million_input=1e4, price_per_million_output=1e4)
print("ready", flush=True)
sys.stdin.readline()  # all begin at once
refused = 0
for question in questions:
    try:
        assert client.complete(question) == f"answer to {question}"
    except UserError:
        refused += 1
print(json.dumps({"refused": refused, **client.counters.to_json()}))
"""


def started(server: ChatServer, folder, budget, *questions: list[str]) -> list[subprocess.Popen]:
    """Each list of questions in a process of its own, all at once."""
    env = {**os.environ, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    running = [
        subprocess.Popen(
            [sys.executable, "-c", _ASK, server.url, str(folder), json.dumps(budget), *asked],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env,
        )
        for asked in questions
    ]  # fmt: skip
    assert [process.stdout.readline() for process in running] == ["ready\n"] * len(running)
    for process in running:
        process.stdin.write("\n")
        process.stdin.flush()
    return running


def processes(server: ChatServer, folder, budget, *questions: list[str]) -> list[dict]:
    """As `started`, to their end; what they counted."""
    running = started(server, folder, budget, *questions)
    told = [process.communicate(timeout=60)[0] for process in running]
    assert all(process.returncode == 0 for process in running)
    return [json.loads(text) for text in told]


def slowly(prompt: str) -> str:
    time.sleep(0.2)
    return f"answer to {prompt}"


def test_two_processes_never_pay_for_the_same_answer(tmp_path):
    questions = ["a", "b", "c"]
    with ChatServer(slowly) as server:
        one, two = processes(server, tmp_path, None, questions, questions)
        assert sorted(body["messages"][-1]["content"] for body in server.requests) == questions
    assert one["requests"] + two["requests"] == 3 and one["cached"] + two["cached"] == 3


def test_a_killed_process_holds_nobody_up(tmp_path):
    with ChatServer(20.0, "hello") as server:
        (process,) = started(server, tmp_path, None, ["a"])
        while not server.requests:
            time.sleep(0.01)
        process.kill()
        process.communicate()
        begun = time.monotonic()
        assert ChatClient("tiny", server.url, cache_dir=tmp_path, max_tokens=30).complete("a") == "hello"
        assert time.monotonic() - begun < 10 and len(server.requests) == 2


def test_two_processes_never_spend_more_than_the_budget(tmp_path):
    """An answer costs 1.2 and is booked at 0.47 before it is sent, so at most the two last ones overrun together."""
    with ChatServer(slowly) as server:
        one, two = processes(server, tmp_path, 5.0, list("abcd"), list("efgh"))
        sent = len(server.requests)
    assert one["refused"] + two["refused"] == 8 - sent and one["failures"] == two["failures"] == 0
    spent = one["cost"] + two["cost"]
    assert spent == pytest.approx(1.2 * sent) and spent <= 5.0 + 2 * (1.2 - 0.47)
    kept = [json.loads(path.read_text())["cost"] for path in (tmp_path / "spending").glob("*.json")]
    assert sum(kept) == pytest.approx(spent)
