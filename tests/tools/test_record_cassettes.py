"""What was recorded is played back without network or model, and comes to what is told of it."""

import json
import re
import socket
from pathlib import Path

import pytest

from rllib_llm_comm.chat.cassettes import Cassette
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.sama.recordings import find_recording, recording, recordings
from tools.record_cassettes import RECORDINGS, items, outcome, plan_figures, read_results, recorded, summary
from tools.rules_chat import RulesChat

NAMES = sorted(path.stem for path in RECORDINGS.glob("*.json"))
IN_CLONES = sorted(path.name for path in RECORDINGS.glob("*.jsonl*"))


@pytest.fixture
def no_network(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.mark.parametrize("name", NAMES)
def test_recordings_come_to_what_is_told(name, no_network):
    results = read_results(name)
    for entry in results["items"]:
        tape = Cassette(recorded(f"{name}_{entry['item'][0]}"))
        assert outcome(tape, entry["item"]) == entry["outcome"], entry["item"]
        assert tape.counters.requests == 0 and tape.counters.cached > 0


@pytest.mark.parametrize("name", [*recordings(), *(name.partition(".")[0] for name in IN_CLONES)])
def test_cassettes_tell_who_answered(name):
    header = Cassette(recorded(name)).header
    by_hand = name.startswith("sama") or name == "manual_overcooked_text"
    assert header["made"] and ("written by hand" if by_hand else "Recorded by ") in header["note"]
    by = {"rules": "no language model", "manual": "claude"}
    assert ("written by hand" if by_hand else by.get(name.split("_")[0], name.split("_")[0])) in header["model"]
    assert recorded(name).stat().st_size < 1 << 20


def test_recordings_are_found_by_name_and_by_path(tmp_path):
    path = tmp_path / "own.jsonl"
    path.touch()
    assert find_recording(path) == path
    assert find_recording("sama_minirts") == recording("sama_minirts")
    with pytest.raises(UserError, match="Did you mean 'sama_minirts'"):
        find_recording("sama_minirt")
    with pytest.raises(UserError, match="must be a file"):
        find_recording("../cassettes/sama")


@pytest.mark.parametrize("file", IN_CLONES)
def test_recordings_that_left_the_package_are_looked_for_where_they_lie(file):
    name = file.partition(".")[0]
    with pytest.raises(UserError, match="lies in the repository alone: in a clone") as told:
        find_recording(name)
    path = re.search(r"give its path, (\S+)\.$", str(told.value)).group(1)
    assert (Path(__file__).parents[2] / path).samefile(recorded(name)) and name not in recordings()


def test_all_that_is_shipped_is_of_use_to_a_run():
    """What a tuned example or a command names, and what that includes."""
    files = (Path(__file__).parents[2] / "tuned_examples").glob("*.yaml")
    named = {name for file in files for name in re.findall(r"cassette: (\w+)", file.read_text())}
    needed = {"claude_reward_code", *named}  # of `rllib planning rewards`
    for name in sorted(needed):
        needed |= {file.partition(".")[0] for file in Cassette(recording(name)).header.get("with", [])}
    assert needed == set(recordings())


def test_all_that_is_recorded_can_be_asked_of_rules_where_they_know_an_answer():
    for item in items(plans=1, states=0, actions=0, rewards=0):
        found = outcome(RulesChat(), item)
        assert found["plans"] == found["made"] == 1 and found["replaced"] == 0 and json.dumps(found)


def test_figures_add_up():
    one = {"item": ["plans", "cramped_room", 1, True, 1], "outcome": {"plans": 1, "replaced": 2, "shown": []}}
    two = {"item": ["plans", "cramped_room", 1, True, 2], "outcome": {"plans": 2, "replaced": 3, "shown": []}}
    other = {"item": ["states", "cramped_room", 0], "outcome": {"usable": True, "true": 4}}
    assert summary({"items": [one, two, other]}) == {
        "plans": {"items": 1, "plans": 2, "replaced": 3},
        "states": {"items": 1, "usable": 1, "true": 4},
    }
    assert plan_figures([None])["made"] == 0
