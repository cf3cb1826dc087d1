"""Work side by side: results in order, one piece at a time, and an end to all when one fails."""

from __future__ import annotations

import time

import pytest
from chat_server import ChatServer

from rllib_llm_comm.chat.chat_model import ChatCounters, begun_at_once, count_scope, side_by_side
from rllib_llm_comm.chat.client import ChatClient
from rllib_llm_comm.core.errors import UserError

pytestmark = pytest.mark.usefixtures("chat_client_at_home")


def client(server, **settings):
    return ChatClient("tiny", server.url, requests_per_minute=1e6, **settings)


def test_results_come_in_order_and_scopes_hold_in_all_threads():
    def late(prompt):
        time.sleep(0.1 if prompt == "0" else 0.01)
        return f"re: {prompt}"

    with ChatServer(late) as server:
        model = client(server, max_concurrent=3)
        with count_scope() as asked:
            assert side_by_side(lambda number: model.complete(str(number)), range(6), 4) == [
                f"re: {number}" for number in range(6)
            ]
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


@pytest.mark.parametrize("value", [-1, 65, 1.5, True])
def test_ask_ahead_that_cannot_be_gets_one_sentence(value):
    with pytest.raises(UserError, match="`ask_ahead` is"):
        ChatClient("tiny", ask_ahead=value)


def test_who_answers_at_once_needs_nothing_ahead():
    assert begun_at_once(None) == 1
    assert begun_at_once(type("Recording", (), {"counters": ChatCounters()})()) == 1
    assert begun_at_once(ChatClient("tiny", max_concurrent=4, ask_ahead=0)) == 4
