"""Stages that ask a real local server record its answers, which can be played in its place."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
import yaml
from chat_server import ChatServer

from rllib_llm_comm.chat.cassettes import Cassette
from rllib_llm_comm.sama.recordings import recording
from tests.experiments import staged

pytestmark = pytest.mark.usefixtures("chat_client_at_home")

SAMA = Path(__file__).parents[2] / "tuned_examples" / "sama.yaml"


run = functools.partial(staged.run, name="sama")
record = functools.partial(staged.record, name="sama")


def test_answers_of_the_manual_stage_are_recorded_counted_and_can_be_played(tmp_path):
    tape = Cassette(recording("sama"))
    manual = {"manual": yaml.safe_load(SAMA.read_text())["manual"]}
    with ChatServer(tape.complete) as server:
        chat = server.settings()
        manual["manual"]["config"]["chat"] = chat
        run(manual, tmp_path / "asked")
        assert record(tmp_path / "asked", "manual")["summary"]["requests"] == len(server.requests) > 0
    own = tmp_path / "asked/sama/manual"
    manual["manual"]["config"]["chat"] = {"cassette": str(own / "answers.jsonl")}
    run(manual, tmp_path / "played")
    told = record(tmp_path / "played", "manual")["summary"]
    assert told["requests"] == 0 and told["kept_answers"] > 0 and set(told["answers"]) == {"tiny"}
    text, same = ((place / "manual.md").read_text() for place in (own, tmp_path / "played/sama/manual"))
    assert text.partition("-->")[2] == same.partition("-->")[2]
