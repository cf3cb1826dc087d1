"""The books: what episodes and runs cost."""

import threading

import pytest
from chat_server import ChatServer, client

from rllib_llm_comm.chat.chat_model import ChatAccounts, ChatError, count_scope

pytestmark = pytest.mark.usefixtures("chat_client_at_home")


PRICES = {"price_per_million_input": 1e4, "price_per_million_output": 1e4}


def test_episodes_and_runs_have_their_own_books(tmp_path):
    books = ChatAccounts()
    with ChatServer("hello") as server:
        asked = client(server, cache_dir=tmp_path, **PRICES)
        asked.complete("outside")
        with books.other():
            asked.complete("manual")
        for name in ("0", "1"):
            with books.episode(name):
                asked.complete(f"plan {name}")
                asked.complete("manual")
        with books.episode("0"):
            asked.complete("plan again")
    assert asked.counters.requests == 5
    assert (books.run.requests, books.run.cached, books.run.cost) == (4, 2, pytest.approx(4.8))
    assert (books.episodes["0"].requests, books.episodes["1"].requests) == (2, 1)
    told = books.to_json()
    assert told["per_episode"]["requests"] == 1.5 and told["per_episode"]["cost"] == pytest.approx(1.8)
    assert told["run"]["input_tokens"] == 400 and told["episodes"]["1"]["output_tokens"] == 20


def test_failures_and_retries_are_booked():
    with ChatServer(500, "hello", 400) as server, count_scope() as counted:
        asked = client(server)
        asked.complete("hi")
        with pytest.raises(ChatError):
            asked.complete("ho")
    assert (counted.requests, counted.retries, counted.failures) == (3, 1, 1)
    assert counted == asked.counters


def test_a_scope_is_its_threads_own():
    with ChatServer("hello") as server:
        asked = client(server)
        with count_scope() as mine:
            other = threading.Thread(target=asked.complete, args=("of another thread",))
            other.start()
            other.join()
            asked.complete("mine")
    assert mine.requests == 1 and asked.counters.requests == 2


def test_no_episodes_no_costs():
    assert set(ChatAccounts().mean().values()) == {0}
