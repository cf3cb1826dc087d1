"""Several questions at once: within one rate and one budget, none asked twice, and games that wait for each other's.

And the books: what episodes and runs cost.
"""

import json
import os
import pickle
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from chat_server import ChatServer, Late, client
from planner_model import Answers

from rllib_llm_comm.chat import client as chat_client
from rllib_llm_comm.chat.cassettes import Cassette, open_chat
from rllib_llm_comm.chat.chat_model import (
    PLAN,
    ChatAccounts,
    OtherGameFailedError,
    Turns,
    asking_for,
    begun_at_once,
    concurrent_questions,
    count_scope,
    side_by_side,
)
from rllib_llm_comm.chat.client import ChatClient, SharedRate
from rllib_llm_comm.core.errors import UserError

pytestmark = pytest.mark.usefixtures("chat_client_at_home")


def echo(prompt):
    return f"re: {prompt}"


def ask_all(model, questions, threads=8):
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(model.complete, questions))


@pytest.mark.parametrize("most", [1, 4])
def test_at_most_so_many_are_under_way_and_each_gets_its_own_answer(most):
    model, questions = Late(echo, together=most), [f"q{number}" for number in range(12)]
    with ChatServer(model) as server:
        asked = client(server, max_concurrent=most)
        assert ask_all(asked, questions) == [f"re: {question}" for question in questions]
    assert model.most == most
    assert (asked.counters.requests, asked.counters.input_tokens) == (12, 1200)


def test_all_keep_to_one_budget():
    price = {"price_per_million_output": 1e6, "max_tokens": 20}  # 20 of money is booked per question, and each costs it
    with ChatServer(Late(echo)) as server:
        asked = client(server, max_concurrent=8, budget=70, **price)
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
    with ChatServer(Late(echo)) as server:
        path = tmp_path / "tape.jsonl"
        settings = server.settings(max_concurrent=4)
        tape = open_chat({**settings, "cassette": str(path)})
        assert concurrent_questions(tape) == 4
        assert ask_all(tape, ["same"] * 6 + ["other"]) == ["re: same"] * 6 + ["re: other"]
        assert len(server.requests) == 2 and len(path.read_text().splitlines()) == 3
        kept = client(server, max_concurrent=4, cache_dir=tmp_path / "cache")
        ask_all(kept, ["again"] * 6)
        assert len(server.requests) == 3 and kept.counters.cached == 5
    assert concurrent_questions(Cassette(path)) == 1 and len(pickle.loads(pickle.dumps(Cassette(path)))) == 2


def test_a_form_that_the_server_refuses_is_dropped_for_all_at_once():
    refusals = []

    class Picky(ChatServer):
        def reply(self, path, headers, body):
            if "response_format" in body:
                time.sleep(0.05)
                refusals.append(body)
                return 400, {}, b'{"error": {"message": "response_format is not supported"}}'
            return super().reply(path, headers, body)

    with Picky("fine") as server:
        asked = client(server, max_concurrent=4)

        def ask(question):
            with asking_for(PLAN, {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}):
                return asked.complete(question)

        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(ask, "abcdefgh")) == ["fine"] * 8
    assert 1 <= len(refusals) <= 4


def test_only_one_game_goes_on_while_others_wait_for_answers():
    model, running, most = Late(echo, together=2), [], []
    with ChatServer(model) as server:
        asked, turns = client(server, max_concurrent=4), Turns()

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
    with ChatServer("hello") as server:
        asked, turns = client(server, max_concurrent=2), Turns()
        turns.stop()
        with pytest.raises(OtherGameFailedError), turns.take():
            asked.complete("x")
        assert not server.requests


# ---- work side by side: results in order, one piece at a time, and an end to all when one fails ------------------


def test_results_come_in_order_and_scopes_hold_in_all_threads():
    def late(prompt):
        time.sleep(0.1 if prompt == "0" else 0.01)
        return f"re: {prompt}"

    with ChatServer(late) as server:
        model = client(server, max_concurrent=3)
        with count_scope() as asked:
            answers = side_by_side(lambda number: model.complete(str(number)), range(6), 4)
    assert answers == [f"re: {number}" for number in range(6)]
    assert asked.requests == 6 and asked.seconds > 0.1


def test_one_piece_goes_on_while_the_question_of_another_is_under_way():
    under_way, seen = [], []

    def late(prompt):
        under_way.append(prompt)
        time.sleep(0.3)
        under_way.remove(prompt)
        return "fine"

    def work(number):
        until = time.monotonic() + 2
        while number == 1 and not under_way and time.monotonic() < until:
            time.sleep(0.01)
        seen.append((number, list(under_way)))
        model.complete(str(number))

    with ChatServer(late) as server:
        model = client(server)  # one question at a time
        assert begun_at_once(model) == 2
        side_by_side(work, range(2), begun_at_once(model))
    assert seen == [(0, []), (1, ["0"])]


def test_a_failure_ends_the_others_and_is_told():
    done = []

    def work(number):
        if number == 1:
            raise UserError("no")
        model.complete(str(number))
        model.complete(f"{number} again")
        done.append(number)

    with ChatServer("fine") as server:
        model = client(server, max_concurrent=2)
        with pytest.raises(UserError, match="no"):
            side_by_side(work, range(20), 3)
        assert len(server.requests) < 6 and len(done) < 3


def test_one_at_once_and_work_inside_other_work_is_done_in_order():
    seen = []

    def outer(number):
        return side_by_side(lambda inner: seen.append((number, inner)) or inner, range(3), 3)

    assert side_by_side(outer, range(2), 2) == [[0, 1, 2]] * 2
    assert sorted(seen) == seen
    with pytest.raises(ZeroDivisionError):
        side_by_side(lambda number: 1 // number, [1, 0], 1)


def test_who_answers_at_once_needs_nothing_ahead():
    assert begun_at_once(None) == 1
    assert begun_at_once(Answers("fine")) == 1
    assert begun_at_once(ChatClient("tiny", max_concurrent=4, ask_ahead=0)) == 4


# ---- one rate and one budget for several clients of the same account, in one process and in several --------------


ASKS = """
import json, os, sys
from rllib_llm_comm.chat.client import ChatClient
from rllib_llm_comm.core.errors import UserError
for line in sys.stdin:
    state, settings, questions = json.loads(line)
    os.environ["XDG_STATE_HOME"] = state
    client, refused = ChatClient("tiny", **settings), 0
    for question in questions:
        try:
            assert client.complete(question) == f"re: {question}"
        except UserError:
            refused += 1
    print(json.dumps({"refused": refused, **client.counters.to_json()}), flush=True)
"""


@pytest.fixture(scope="module")
def two_processes():
    """Two processes, which wait for questions; who ends one has it for the last time."""
    command = [sys.executable, "-c", ASKS]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as one, subprocess.Popen(command, text=True, **pipes) as other:
        yield one, other
        for process in (one, other):
            process.kill()


def begin(process, server, settings, questions):
    """Lets a process ask a server."""
    told = {"base_url": server.url, "max_tokens": 30, **settings}
    print(json.dumps([os.environ["XDG_STATE_HOME"], told, questions]), file=process.stdin, flush=True)


def counted(processes, server, settings, *questions):
    """What each process counts, to which a list of questions is told at the same moment."""
    for process, asked in zip(processes, questions, strict=True):
        begin(process, server, settings, asked)
    return [json.loads(process.stdout.readline()) for process in processes]


def slowly(prompt):
    time.sleep(0.2)
    return echo(prompt)


@pytest.fixture
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "rllib_llm_comm" / "rates"


def test_several_processes_keep_to_one_rate_together(state, two_processes):
    with ChatServer(echo) as server:
        questions = [[f"p{one} {number}" for number in range(3)] for one in range(2)]
        told = counted(two_processes, server, {"requests_per_minute": 300}, *questions)
    assert [one["requests"] for one in told] == [3, 3]
    # 0.2 s lie between the starts of two requests of all; that of each alone would be over after 0.4 s. On a busy
    # machine the first may come in late by itself, and a late one just before the next.
    since_first = [later - min(server.times) for later in sorted(server.times)]
    assert len(since_first) == 6 and all(since > number * 0.2 - 0.3 for number, since in enumerate(since_first))
    assert len(list(state.iterdir())) == 2  # the start of the latest request, and its lock


def test_clients_of_one_process_keep_to_one_rate_and_others_have_their_own(state):
    with ChatServer("fine") as server:
        clients = [ChatClient("tiny", server.url, requests_per_minute=600) for _ in range(3)]
        begun = time.monotonic()
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(lambda one: [one.complete(f"{id(one)} {number}") for number in range(2)], clients))
        assert len(server.requests) == 6 and time.monotonic() - begun > 5 * 0.1
        begun = time.monotonic()
        ChatClient("another", server.url, requests_per_minute=0.01).complete("x")
        assert time.monotonic() - begun < 5  # the limit of another model


def test_a_damaged_file_and_a_clock_that_was_set_back_hold_nobody_up(state, monkeypatch):
    first = SharedRate(600, ("server", "model"))
    first.wait()
    (file,) = (path for path in state.iterdir() if path.suffix != ".lock")
    file.write_text("half a num")
    begun = time.monotonic()
    SharedRate(600, ("server", "model")).wait()
    assert time.monotonic() - begun < 0.09
    file.write_text(repr(time.time() + 1e6))
    SharedRate(600, ("server", "model")).wait()
    assert 0.09 < time.monotonic() - begun < 5


def test_where_nothing_can_be_written_each_client_keeps_its_own_rate(tmp_path, monkeypatch, caplog):
    (tmp_path / "state").write_text("a file")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    line, begun = SharedRate(600, ("server", "model")), time.monotonic()
    line.wait()
    line.wait()
    assert time.monotonic() - begun > 0.09 and "not counted in one rate" in caplog.text


def test_clients_without_a_limit_in_mind_keep_no_common_line(state):
    SharedRate(chat_client._BEYOND + 1, ("server", "model")).wait()
    assert not state.exists()


UNHURRIED = {"requests_per_minute": 1e6}
PRICES = {"price_per_million_input": 1e4, "price_per_million_output": 1e4}


def test_two_processes_never_pay_for_the_same_answer(tmp_path, two_processes):
    questions = ["a", "b", "c"]
    with ChatServer(slowly) as server:
        one, two = counted(two_processes, server, {**UNHURRIED, "cache_dir": str(tmp_path)}, questions, questions)
        assert sorted(body["messages"][-1]["content"] for body in server.requests) == questions
    assert one["requests"] + two["requests"] == 3 and one["cached"] + two["cached"] == 3


def test_two_processes_never_spend_more_than_the_budget(tmp_path, two_processes):
    """An answer costs 1.2 and is booked at 0.47 before it is sent, so at most the two last ones overrun together."""
    with ChatServer(slowly) as server:
        settings = {**UNHURRIED, **PRICES, "cache_dir": str(tmp_path), "budget": 5.0}
        one, two = counted(two_processes, server, settings, list("abcd"), list("efgh"))
        sent = len(server.requests)
    assert one["refused"] + two["refused"] == 8 - sent and one["failures"] == two["failures"] == 0
    spent = one["cost"] + two["cost"]
    assert spent == pytest.approx(1.2 * sent) and spent <= 5.0 + 2 * (1.2 - 0.47)
    kept = [json.loads(path.read_text())["cost"] for path in (tmp_path / "spending").glob("*.json")]
    assert sum(kept) == pytest.approx(spent)


def test_a_killed_process_holds_nobody_up(tmp_path, two_processes):
    """The last one that needs both."""
    process, _ = two_processes
    with ChatServer(20.0, "hello") as server:
        begin(process, server, {**UNHURRIED, "cache_dir": str(tmp_path)}, ["a"])
        while not server.requests:
            time.sleep(0.01)
        process.kill()
        process.wait()
        begun = time.monotonic()
        assert client(server, cache_dir=tmp_path, max_tokens=30).complete("a") == "hello"
        assert time.monotonic() - begun < 10 and len(server.requests) == 2


# ---- the books ----------------------------------------------------------------------------------------------------


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
