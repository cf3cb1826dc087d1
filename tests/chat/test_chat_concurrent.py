"""Several questions at once: within one rate and one budget, none asked twice, and games that wait for each other's."""

from __future__ import annotations

import pickle
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from chat_server import ChatServer

from rllib_llm_comm.chat.cassettes import Cassette, open_chat
from rllib_llm_comm.chat.chat_model import StoppedError, Turns, concurrent_questions
from rllib_llm_comm.chat.client import ChatClient
from rllib_llm_comm.core.errors import UserError

pytestmark = pytest.mark.usefixtures("chat_client_at_home")


class Slow:
    """Answers late, and counts how many questions are under way."""

    def __init__(self, seconds=0.05):
        self.seconds, self.now, self.most, self._lock = seconds, 0, 0, threading.Lock()

    def __call__(self, prompt):
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)
        time.sleep(self.seconds)
        with self._lock:
            self.now -= 1
        return f"re: {prompt}"


def ask_all(model, questions, threads=8):
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(model.complete, questions))


@pytest.mark.parametrize("most", [1, 4])
def test_at_most_so_many_are_under_way_and_each_gets_its_own_answer(most):
    model, questions = Slow(), [f"q{number}" for number in range(12)]
    with ChatServer(model) as server:
        asked = ChatClient("tiny", server.url, requests_per_minute=1e6, max_concurrent=most)
        assert ask_all(asked, questions) == [f"re: {question}" for question in questions]
    assert model.most == most
    assert (asked.counters.requests, asked.counters.input_tokens) == (12, 1200)


def test_all_keep_to_one_rate():
    with ChatServer(Slow(0.3)) as server:
        asked = ChatClient("tiny", server.url, requests_per_minute=600, max_concurrent=6)
        ask_all(asked, [f"q{number}" for number in range(6)])
    gaps = [later - earlier for earlier, later in zip(sorted(server.times), sorted(server.times)[1:], strict=False)]
    assert min(gaps) > 0.05 and sum(gaps) > 0.4


def test_all_keep_to_one_budget():
    price = {"price_per_million_output": 1e6, "max_tokens": 20}  # 20 of money is booked per question, and each costs it
    with ChatServer(Slow()) as server:
        asked = ChatClient("tiny", server.url, requests_per_minute=1e6, max_concurrent=8, budget=70, **price)
        refused = []

        def ask(question):
            try:
                asked.complete(question)
            except UserError as error:
                refused.append(str(error))

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(ask, [f"q{number}" for number in range(8)]))
        assert len(server.requests) == 3 and asked.counters.cost == 60
    assert len(refused) == 5 and all("`budget` is 70" in one for one in refused)


def test_the_same_question_of_several_is_asked_once_and_recorded_once(tmp_path):
    with ChatServer(Slow()) as server:
        path = tmp_path / "tape.jsonl"
        settings = {"model": "tiny", "base_url": server.url, "requests_per_minute": 1e6, "max_concurrent": 4}
        tape = open_chat({**settings, "cassette": str(path)})
        assert concurrent_questions(tape) == 4
        assert ask_all(tape, ["same"] * 6 + ["other"]) == ["re: same"] * 6 + ["re: other"]
        assert len(server.requests) == 2 and len(path.read_text().splitlines()) == 3
        kept = ChatClient("tiny", server.url, requests_per_minute=1e6, max_concurrent=4, cache_dir=tmp_path / "cache")
        ask_all(kept, ["again"] * 6)
        assert len(server.requests) == 3 and kept.counters.cached == 5
    assert concurrent_questions(Cassette(path)) == 1 and len(pickle.loads(pickle.dumps(Cassette(path)))) == 2


def test_a_form_that_the_server_refuses_is_dropped_for_all_at_once():
    from rllib_llm_comm.chat.chat_model import PLAN, asking_for

    refusals = []

    class Picky(ChatServer):
        def reply(self, path, headers, body):
            if "response_format" in body:
                time.sleep(0.05)
                refusals.append(body)
                return 400, {}, b'{"error": {"message": "response_format is not supported"}}'
            return super().reply(path, headers, body)

    with Picky("fine") as server:
        asked = ChatClient("tiny", server.url, requests_per_minute=1e6, max_concurrent=4)

        def ask(question):
            with asking_for(PLAN, {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}):
                return asked.complete(question)

        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(ask, "abcdefgh")) == ["fine"] * 8
    assert 1 <= len(refusals) <= 4


def test_only_one_game_goes_on_while_others_wait_for_answers():
    model, running, most = Slow(), [], []
    with ChatServer(model) as server:
        asked, turns = ChatClient("tiny", server.url, requests_per_minute=1e6, max_concurrent=4), Turns()

        def game(number):
            with turns.take():
                for step in range(3):
                    running.append(number)
                    most.append(len(running))
                    running.remove(number)
                    asked.complete(f"game {number}, step {step}")

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(game, range(4)))
    assert set(most) == {1} and model.most > 1


def test_games_end_at_their_next_question_when_one_has_failed():
    with ChatServer(Slow()) as server:
        asked, turns = ChatClient("tiny", server.url, requests_per_minute=1e6, max_concurrent=2), Turns()
        turns.stop()
        with pytest.raises(StoppedError), turns.take():
            asked.complete("x")
        assert not server.requests


@pytest.mark.parametrize("value", [0, 65, 1.5, True, "two"])
def test_a_number_that_cannot_be_gets_one_sentence(value):
    with pytest.raises(UserError, match="`max_concurrent` is"):
        ChatClient("tiny", max_concurrent=value)
