"""Collecting labels: rows, repetition, kills, and a teacher that fails."""

from __future__ import annotations

import json
import re
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas
import pyarrow.parquet as parquet
import pytest
from chat_server import ChatServer, Late

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.verco.teachers import collect_labels as collect_module
from rllib_llm_comm.verco.teachers.collect_labels import CollectionReport, collect_labels
from rllib_llm_comm.verco.teachers.label_store import COLUMNS
from tests import forked
from tests.refusal import refused

pytestmark = pytest.mark.usefixtures("chat_client_at_home")

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


def test_rows_tell_all_and_none_is_there_twice(whole):
    found = rows(whole)
    assert len(found) >= 120 and set(found[0]) == set(COLUMNS)
    for row in found:
        assert row["teacher"] == "scripted" and row["agent"] in ("alice", "bob")
        assert json.loads(row["env"]) == {"id": ENV, "settings": SETTINGS["env_config"]}
        assert 1 <= len(row["message"].split()) <= 10 and row["prompt"] and row["game_step"] >= 0
    assert len({row["episode"] for row in found}) > 1
    assert len({(row["prompt"], row["message"]) for row in found}) == len(found)
    assert max(Counter(row["prompt"] for row in found).values()) == 2
    assert pandas.read_parquet(whole).to_dict("records") == found, "other tools read the folder as it is"


def test_another_seed_gives_other_labels(whole, tmp_path):
    collect(tmp_path / "other", seed=1, target_labels=40)
    assert rows(tmp_path / "other")[:40] != rows(whole)[:40]


GOOD = "alice: please bring the tomato\nbob: i chop the tomato now"
CHAT: dict[str, Any] = {"target_labels": 60, "teacher_share": 0.0, "num_envs": 2}


def chat(server: ChatServer, **more: Any) -> dict[str, Any]:
    return {"name": "chat", **server.settings(max_retries=0), **more}


def collect_slowly(folder: Path, settings: dict[str, Any]) -> None:
    collect_labels(ENV, folder, **settings, progress=lambda done, target: time.sleep(0.05))


def collect_until(reached: Callable[[], Any], folder: Path, settings: dict[str, Any]) -> None:
    """Collects in a process that is killed a moment after something is true."""
    child = forked.begin(collect_slowly, folder, settings)
    try:
        end = time.monotonic() + 120
        while not reached() and time.monotonic() < end and child.is_alive():
            time.sleep(0.005)
        time.sleep(0.1)  # into the next round
    finally:
        child.kill()
        child.join()
    assert child.exitcode == -signal.SIGKILL


def test_a_killed_collection_goes_on(whole, tmp_path):
    folder = tmp_path / "killed"
    collect_until(lambda: list(folder.glob("part-*.parquet")), folder, SETTINGS)
    assert 0 < len(rows(folder)) < len(rows(whole))
    (folder / "part-00099.parquet").write_bytes(b"half a part")
    assert collect(folder).complete
    assert rows(folder) == rows(whole)


@pytest.mark.parametrize("other", [{"seed": 5}, {"num_envs": 3}, {"env_config": {"map_name": "B"}}])
def test_other_settings_are_refused(whole, other):
    with pytest.raises(UserError, match="other settings"):
        collect(whole, **other)


@pytest.mark.parametrize(
    ("setting", "value"),
    [("target_labels", 0), ("policy", "best"), ("random_share", 1.5), ("teacher", "owl"), ("seed", -1)],
)
def test_bad_settings(tmp_path, setting, value):
    with refused(setting, None):
        collect(tmp_path / "bad", **{setting: value})


def _cut(folder: Path) -> None:
    part = folder / "part-00000.parquet"
    part.write_bytes(part.read_bytes()[:200])


def _fewer_than_no_parts(folder: Path) -> None:
    (folder / "_collection.json").write_text(json.dumps({**state(folder), "parts": -1}))


def _folder_as_state(folder: Path) -> None:
    (folder / "_collection.json").unlink()
    (folder / "_collection.json").mkdir()


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (_cut, "'part-00000.parquet' is damaged"),
        (lambda folder: (folder / "part-00000.parquet").unlink(), "'part-00000.parquet' is missing"),
        (lambda folder: (folder / "_collection.json").write_bytes(b"\xff\xfe"), "'_collection.json' is damaged"),
        (_fewer_than_no_parts, "'_collection.json' is damaged"),
        (_folder_as_state, "'_collection.json' cannot be read"),
        (lambda folder: (folder / "_collection.json").unlink(), "'_collection.json' is missing"),
    ],
)
def test_a_damaged_collection_is_told_and_left_as_it_is(whole, tmp_path, damage, words):
    folder = shutil.copytree(whole, tmp_path / "labels")
    (folder / "part-00001.parquet").write_bytes((folder / "part-00000.parquet").read_bytes())
    damage(folder)
    before = sorted(path.name for path in folder.iterdir())
    with pytest.raises(UserError, match=words) as caught:
        collect(folder)
    assert "remove everything in this folder but '_chat_cache'" in str(caught.value) and "\n" not in str(caught.value)
    assert sorted(path.name for path in folder.iterdir()) == before  # nothing is deleted by a call that refuses


def test_foreign_labels_are_not_mixed_with_collected_ones(whole, tmp_path):
    folder = shutil.copytree(whole, tmp_path / "labels")
    mine = folder / "part-1.parquet"
    mine.write_bytes(b"mine")
    with pytest.raises(UserError, match="'part-1.parquet', which no collection wrote"):
        collect(folder)
    mine.unlink()
    assert collect(folder).complete and rows(folder) == rows(whole)


def test_an_output_that_is_no_folder_is_told(tmp_path):
    (tmp_path / "file").write_text("x")
    for output in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(UserError, match="`output` .*/file.* cannot be made"):
            collect(output)
    assert (tmp_path / "file").read_text() == "x"


def test_parts_and_state_are_on_the_disk_before_they_get_their_names(tmp_path, synced):
    folder = tmp_path / "labels"
    collect(folder, target_labels=10)
    for name in ("part-00000.parquet", "_collection.json"):
        assert any(re.fullmatch(rf"\.{re.escape(name)}\.\w+\.tmp", path.name) for path in synced), synced
    assert folder in synced


def test_what_a_kill_left_half_written_is_cleared_up_and_answers_that_were_paid_for_stay(whole, tmp_path):
    """As where everything but the answers was removed, which is the remedy for a damaged collection."""
    folder = tmp_path / "labels"
    paid = folder / collect_module.ANSWERS / "answers" / "paid.json"
    paid.parent.mkdir(parents=True)
    paid.write_text("{}")
    (folder / "part-00000.parquet").write_bytes(b"the state of this part was never written")
    (folder / ".part-00000.parquet.12345678.tmp").write_bytes(b"half")
    report = collect(folder)
    assert report.complete and report.labels == len(rows(whole))
    assert rows(folder) == rows(whole) and not list(folder.glob(".*")) and paid.exists()


def test_a_chat_teacher_that_fails_does_not_stop_it(tmp_path):
    good = "1. **Alice**: please bring the tomato\n2. **Bob**: i chop the tomato now, and then more and more words"
    troubles = ["", "???", b"<html>", 400, "I'm sorry, I cannot assist with that.", "alice: ...", '{"alice": 3}']
    with ChatServer(*troubles, good) as server:
        teacher = chat(server, cache_dir=str(tmp_path / "cache"))
        report = collect(tmp_path / "labels", teacher=teacher, target_labels=10, max_decisions=300, teacher_share=0.0)
        assert report.complete and len(server.requests) > len(troubles)
        found = rows(tmp_path / "labels")
        asked = len(server.requests)
        collect(tmp_path / "again", teacher=teacher, target_labels=1, max_decisions=1, teacher_share=0.0)
    cut = "i chop the tomato now, and then more and more"
    assert {row["message"] for row in found} <= {"please bring the tomato", cut}
    assert {row["teacher"] for row in found} == {"chat"}
    assert len(server.requests) <= asked + 4  # only the failed moments are asked again


def test_a_spent_budget_keeps_what_was_paid_for_and_more_budget_goes_on(tmp_path):
    prices = {"price_per_million_input": 1.0, "price_per_million_output": 1.0}
    with ChatServer(GOOD) as server:
        teacher = chat(server, budget=0.003, cache_dir=str(tmp_path / "cache"), **prices)
        with refused("budget"):
            collect(tmp_path / "labels", teacher=teacher, **CHAT)
        paid = len(server.requests)
        kept = rows(tmp_path / "labels")
        assert paid > 0 and len(kept) > 0
        richer = {**teacher, "budget": 5.0, "timeout": 7.0}
        assert collect(tmp_path / "labels", teacher=richer, **CHAT).complete
        assert rows(tmp_path / "labels")[: len(kept)] == kept
        asked = [json.dumps(request) for request in server.requests]
        assert len(set(asked)) == len(asked)  # nothing was paid for twice
        collect(tmp_path / "whole", teacher=richer, **CHAT)
    assert rows(tmp_path / "labels") == rows(tmp_path / "whole")
    with pytest.raises(UserError, match="other settings"):
        collect(tmp_path / "labels", teacher={**richer, "temperature": 1.0}, **CHAT)


def test_a_teacher_is_asked_about_several_games_at_once_and_the_rows_are_the_same(tmp_path):
    found, seen = {}, {}
    for at_once in (1, 4):
        late = Late(lambda prompt: f"alice: please bring the tomato\nbob: i see {len(prompt)} things", together=at_once)
        with ChatServer(late) as server:
            teacher = chat(server, max_concurrent=at_once)
            collect(tmp_path / str(at_once), teacher=teacher, target_labels=12, teacher_share=0.0, num_envs=4)
            found[at_once], seen[at_once] = rows(tmp_path / str(at_once)), sorted(prompts(server))
        assert late.most == at_once
    assert found[1] == found[4] and len(found[1]) >= 12
    assert set(seen[1]) <= set(seen[4])  # at most the rest of the last moment is asked beyond


def prompts(server: ChatServer) -> list[str]:
    return [body["messages"][-1]["content"] for body in server.requests]


def state(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "_collection.json").read_text())


@pytest.mark.parametrize("trouble", [401, None])
def test_a_dead_server_leaves_the_collection_unfinished_and_it_goes_on_when_it_is_back(trouble, tmp_path):
    folder = tmp_path / "labels"
    with ChatServer(*[GOOD] * 5, trouble) as server:
        with pytest.raises(UserError, match="refuses to answer|3 questions in a row"):
            collect(folder, teacher=chat(server), **CHAT)
        answered = set(prompts(server)[:5])
        assert len(server.requests) <= 8
        assert rows(folder) and not state(folder)["complete"] and state(folder)["labels"] == len(rows(folder))
        server.requests.clear()
        server.replies = [GOOD]
        assert collect(folder, teacher=chat(server), **CHAT).complete and state(folder)["complete"]
        assert not answered & set(prompts(server))  # paid for already
        assert list((folder / collect_module.ANSWERS / "answers").glob("*.json"))
    assert len(rows(folder)) >= 60


@pytest.mark.parametrize("answer", ["???", 400])
def test_a_useless_teacher_is_given_up_early(answer, tmp_path):
    with ChatServer(answer) as server:
        with pytest.raises(UserError, match="`max_empty_moments`"):
            collect(tmp_path / "labels", teacher=chat(server), max_empty_moments=20, **CHAT)
        assert len(server.requests) <= 20
    assert not state(tmp_path / "labels")["complete"]


def test_a_collection_that_ended_early_goes_on_with_more_decisions_and_a_finished_one_is_left_alone(whole, tmp_path):
    folder = tmp_path / "more"
    first = collect(folder, max_decisions=20)
    assert not first.complete and not state(folder)["complete"]
    assert collect(folder).complete and rows(folder) == rows(whole)
    before = {path.name: path.stat().st_mtime_ns for path in folder.glob("part-*")}
    again = collect(folder)
    assert again.complete and again.labels == len(rows(whole))
    assert {path.name: path.stat().st_mtime_ns for path in folder.glob("part-*")} == before


def test_a_collection_ends_when_nothing_new_is_seen_any_more(tmp_path):
    settings = {"env_config": {**SETTINGS["env_config"], "max_game_steps": 1}, "target_labels": 4000}
    first = collect(tmp_path / "few", max_stale_decisions=40, **settings)
    assert first.exhausted and not first.complete and 0 < first.labels < 100 and 40 <= first.decisions < 400
    again = collect(tmp_path / "few", max_stale_decisions=8, **settings)  # begins to count anew
    assert again.exhausted and first.decisions + 8 <= again.decisions < first.decisions + 20
    limited = collect(tmp_path / "limit", max_decisions=first.decisions - 40, **settings)
    assert not limited.exhausted and limited.labels == first.labels


def test_labels_reach_the_disk_while_the_teacher_keeps_everybody_waiting(tmp_path, monkeypatch):
    monkeypatch.setattr(collect_module, "_SECONDS_PER_PART", 0.05)
    folder, seen = tmp_path / "labels", []

    def slow(prompt: str) -> str:
        if len(server.requests) == 4:
            time.sleep(0.5)
            seen.append(len(rows(folder)))
        return GOOD

    with ChatServer(slow) as server:
        collect(folder, teacher=chat(server), **CHAT)
    assert seen[0] >= 2


def test_killed_again_and_again_nothing_is_paid_twice(tmp_path):
    folder = tmp_path / "labels"
    with ChatServer(GOOD) as server:
        settings = {**SETTINGS, **CHAT, "teacher": chat(server), "num_envs": 4, "target_labels": 60}
        for kill in range(2):
            most = 15 * (kill + 1)
            collect_until(lambda most=most: len(server.requests) >= most, folder, settings)
        assert collect_labels(ENV, folder, **settings).complete
        # At most the request that was under way is sent again.
        assert len(server.requests) <= len(set(prompts(server))) + 2
        collect_labels(ENV, tmp_path / "whole", **settings)
    one, other = ({(row["prompt"], row["message"]) for row in rows(place)} for place in (folder, tmp_path / "whole"))
    assert one == other


def test_agents_that_come_and_go_are_labelled_while_they_choose(tmp_path):
    """Who has ended chooses no more, and who comes later is asked from its first observation on."""
    import odd_games

    from rllib_llm_comm.verco.teachers.base import Teacher, register_teacher

    class Clock(Teacher):
        name = "clock"

        def messages(self, request, *, rng):
            return {agent: request.observations[agent] for agent in request.agents}

    register_teacher("clock", Clock)
    odd_games.register()
    collect_labels(
        "odd/game-v0", tmp_path, env_config={"kind": "comes and goes"}, policy="random", teacher="clock", num_envs=1,
        target_labels=6, max_labels_per_prompt=9,
    )  # fmt: skip
    told = {(row["agent"], row["message"]) for row in rows(tmp_path)}
    moments = [("a", 0), ("a", 1), ("a", 2), ("b", 2), ("b", 3), ("b", 4)]
    assert told == {(who, f"i am {who}, it is {when}") for who, when in moments}
