"""Collecting labels: rows, repetition, kills, and a teacher that fails."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest
from chat_server import ChatServer

from rllib_llm_comm.errors import UserError
from rllib_llm_comm.teachers.collect import CollectionReport, collect_labels
from rllib_llm_comm.teachers.label_store import COLUMNS

ENV = "rllib_llm_comm/overcooked_text-v0"
SETTINGS: dict[str, Any] = {
    "env_config": {"map_name": "A", "recipe": "tomato salad", "max_game_steps": 25},
    "policy": "random",
    "teacher": "scripted",
    "num_envs": 2,
    "target_labels": 120,
    "max_labels_per_prompt": 2,
}


def collect(folder: Path, **other: Any) -> CollectionReport:
    return collect_labels(ENV, folder, **{**SETTINGS, **other})


def rows(folder: Path) -> list[dict[str, Any]]:
    return [row for part in sorted(folder.glob("part-*.parquet")) for row in parquet.read_table(part).to_pylist()]


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("labels") / "whole"
    collect(folder)
    return folder


def test_rows(whole):
    found = rows(whole)
    assert len(found) >= 120 and set(found[0]) == set(COLUMNS)
    for row in found:
        assert row["teacher"] == "scripted" and row["agent"] in ("alice", "bob")
        assert json.loads(row["env"]) == {"id": ENV, "settings": SETTINGS["env_config"]}
        assert 1 <= len(row["message"].split()) <= 10 and row["prompt"] and row["game_step"] >= 0
    assert len({row["episode"] for row in found}) > 1


def test_no_row_twice(whole):
    found = rows(whole)
    assert len({(row["prompt"], row["message"]) for row in found}) == len(found)
    assert max(Counter(row["prompt"] for row in found).values()) == 2


def test_the_seed_decides(whole, tmp_path):
    report = collect(tmp_path / "same")
    assert report.complete and report.labels == len(rows(whole))
    assert rows(tmp_path / "same") == rows(whole)
    collect(tmp_path / "other", seed=1)
    assert rows(tmp_path / "other") != rows(whole)


_SLOW = """
import json, sys, time
from rllib_llm_comm.teachers.collect import collect_labels
env, folder, settings = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
collect_labels(env, folder, **settings, progress=lambda done, target: time.sleep(0.05))
"""


def test_a_killed_collection_goes_on(whole, tmp_path):
    folder = tmp_path / "killed"
    child = subprocess.Popen([sys.executable, "-c", _SLOW, ENV, str(folder), json.dumps(SETTINGS)])
    try:
        end = time.monotonic() + 120
        while not list(folder.glob("part-*.parquet")) and time.monotonic() < end and child.poll() is None:
            time.sleep(0.02)
        time.sleep(0.1)  # into the next round
    finally:
        child.send_signal(signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL
    assert 0 < len(rows(folder)) < len(rows(whole))
    (folder / "part-00099.parquet").write_bytes(b"half a part")
    assert collect(folder).complete
    assert rows(folder) == rows(whole)


def test_a_finished_folder_is_left_alone(whole):
    before = {path.name: path.stat().st_mtime_ns for path in whole.glob("part-*")}
    again = collect(whole)
    assert again.complete and again.labels == len(rows(whole))
    assert {path.name: path.stat().st_mtime_ns for path in whole.glob("part-*")} == before


@pytest.mark.parametrize("other", [{"seed": 5}, {"num_envs": 3}, {"env_config": {"map_name": "B"}}])
def test_other_settings_are_refused(whole, other):
    with pytest.raises(UserError, match="other settings"):
        collect(whole, **other)


@pytest.mark.parametrize("bad", [{"target_labels": 0}, {"policy": "best"}, {"random_share": 1.5}, {"teacher": "owl"}])
def test_bad_settings(tmp_path, bad):
    with pytest.raises(UserError):
        collect(tmp_path / "bad", **bad)


def test_a_chat_teacher_that_fails_does_not_stop_it(tmp_path, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    good = "1. **Alice**: please bring the tomato\n2. **Bob**: i chop the tomato now, and then more and more words"
    troubles = ["", "???", b"<html>", 400, "I'm sorry, I cannot assist with that.", "alice: ...", '{"alice": 3}']
    with ChatServer(*troubles, good) as server:
        teacher = {
            "name": "chat", "model": "tiny", "base_url": server.url, "requests_per_minute": 1e6,
            "cache_dir": str(tmp_path / "cache"),
        }  # fmt: skip
        report = collect(tmp_path / "labels", teacher=teacher, target_labels=10, max_decisions=300, teacher_share=0.0)
        assert report.complete and len(server.requests) > len(troubles)
        found = rows(tmp_path / "labels")
        asked = len(server.requests)
        collect(tmp_path / "again", teacher=teacher, target_labels=1, max_decisions=1, teacher_share=0.0)
    assert {row["message"] for row in found} <= {
        "please bring the tomato",
        "i chop the tomato now, and then more and more",
    }
    assert {row["teacher"] for row in found} == {"chat"}
    assert len(server.requests) <= asked + 4  # only the failed moments are asked again


def test_a_spent_budget_keeps_what_was_paid_for_and_more_budget_goes_on(tmp_path, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    answer = "alice: please bring the tomato\nbob: i chop the tomato now"
    settings: dict[str, Any] = {"target_labels": 60, "teacher_share": 0.0, "num_envs": 2}
    with ChatServer(answer) as server:
        teacher = {
            "name": "chat", "model": "tiny", "base_url": server.url, "requests_per_minute": 1e6, "budget": 0.003,
            "price_per_million_input": 1.0, "price_per_million_output": 1.0, "cache_dir": str(tmp_path / "cache"),
        }  # fmt: skip
        with pytest.raises(UserError, match="budget"):
            collect(tmp_path / "labels", teacher=teacher, **settings)
        paid = len(server.requests)
        kept = rows(tmp_path / "labels")
        assert paid > 0 and len(kept) > 0
        richer = {**teacher, "budget": 5.0, "timeout": 7.0}
        assert collect(tmp_path / "labels", teacher=richer, **settings).complete
        assert rows(tmp_path / "labels")[: len(kept)] == kept
        asked = [json.dumps(request) for request in server.requests]
        assert len(set(asked)) == len(asked)  # nothing was paid for twice
        collect(tmp_path / "whole", teacher=richer, **settings)
    assert rows(tmp_path / "labels") == rows(tmp_path / "whole")
    with pytest.raises(UserError, match="other settings"):
        collect(tmp_path / "labels", teacher={**richer, "temperature": 1.0}, **settings)
