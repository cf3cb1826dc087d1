"""One rate and one budget for several clients of the same account, in one process and in several."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from chat_server import ChatServer

from rllib_llm_comm.chat import client
from rllib_llm_comm.chat.client import ChatClient, SharedRate

pytestmark = pytest.mark.usefixtures("chat_client_at_home")

ASKS = """
import json, sys
from rllib_llm_comm.chat.client import ChatClient
from rllib_llm_comm.core.errors import UserError
settings = json.loads(sys.argv[1])
name, client, done = sys.argv[2], ChatClient("tiny", **settings), 0
print("ready", flush=True)
sys.stdin.readline()
for number in range(3):
    try:
        client.complete(f"{name} {number}")
        done += 1
    except UserError as error:
        print(error, file=sys.stderr)
print(done, flush=True)
"""


@pytest.fixture
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "rllib_llm_comm" / "rates"


def asked_by_processes(server, number, **settings):
    """Numbers of answers that processes get who ask three questions each, all begun at the same moment."""
    import json

    told = json.dumps({"base_url": server.url, **settings})
    command = [sys.executable, "-c", ASKS, told]
    runs = [
        subprocess.Popen([*command, f"p{one}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for one in range(number)
    ]
    for run in runs:
        assert run.stdout.readline() == "ready\n"
    for run in runs:
        run.stdin.write("\n")
        run.stdin.flush()
    return [int(run.communicate(timeout=60)[0]) for run in runs]


def test_several_processes_keep_to_one_rate_together(state):
    with ChatServer("fine") as server:
        assert asked_by_processes(server, 3, requests_per_minute=300) == [3, 3, 3]
    # 0.2 s lie between the starts of two requests of all; that of each alone would be over after 0.4 s. On a busy
    # machine the first may come in late by itself, and a late one just before the next.
    since_first = [later - min(server.times) for later in sorted(server.times)]
    assert len(since_first) == 9 and all(since > number * 0.2 - 0.3 for number, since in enumerate(since_first))
    assert len(list(state.iterdir())) == 2  # the start of the latest request, and its lock


def test_several_processes_keep_to_one_budget_together(state, tmp_path):
    price = {"price_per_million_output": 1e6, "max_tokens": 20}  # 20 of money is booked per question, and each costs it
    with ChatServer("fine") as server:
        done = asked_by_processes(
            server, 3, requests_per_minute=1e6, budget=90, cache_dir=str(tmp_path / "cache"), **price
        )
        assert sum(done) == len(server.requests) == 4


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
    SharedRate(client._BEYOND + 1, ("server", "model")).wait()
    assert not state.exists()
