"""Collecting demonstrations: rows, players, messages, kills, and settings that cannot be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as parquet
import pytest
from chat_server import ChatServer

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.evaluation.collect_demonstrations import _row, collect_demonstrations
from rllib_llm_comm.verco.encoding import TextObservation
from rllib_llm_comm.verco.teachers.collect_labels import CollectionReport
from rllib_llm_comm.verco.teachers.label_store import DEMONSTRATIONS

pytestmark = pytest.mark.usefixtures("chat_client_at_home")

ENV = "rllib_llm_comm/overcooked_text-v0"
KITCHEN = {"map_name": "A", "recipe": "tomato salad", "max_game_steps": 25}
TOLD = {"map_name": "B", "recipe": ["tomato salad", "lettuce salad"], "told_to": ["alice"], "max_game_steps": 20}
SETTINGS: dict[str, Any] = {"env_config": KITCHEN, "num_envs": 2, "target_demonstrations": 100}


def collect(folder: Path, **other: Any) -> CollectionReport:
    return collect_demonstrations(ENV, folder, **{**SETTINGS, **other})


def rows(folder: Path) -> list[dict[str, Any]]:
    return [row for part in sorted(folder.glob("part-*.parquet")) for row in parquet.read_table(part).to_pylist()]


def last_of_all(env: Any, agent: str, rng: np.random.Generator) -> Any:
    """A player that takes the last action that is allowed."""
    return lambda seen: int(np.flatnonzero(seen["action_mask"])[-1])


def forbidden(env: Any, agent: str, rng: np.random.Generator) -> Any:
    return lambda seen: int(np.flatnonzero(seen["action_mask"] == 0)[0])


def breaks(env: Any, agent: str, rng: np.random.Generator) -> Any:
    def act(seen: Any) -> int:
        raise RuntimeError("no weights")

    return act


def takes_nothing() -> Any:
    raise AssertionError


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("demonstrations") / "whole"
    collect(folder)
    return folder


def test_rows(whole):
    found = rows(whole)
    assert len(found) >= 100 and tuple(found[0]) == DEMONSTRATIONS.columns
    for row in found:
        phrases = json.loads(row["candidates"])
        assert len(set(phrases)) == len(phrases) > 1 and 0 <= row["chosen"] < len(phrases)
        assert (row["player"], row["heard"], row["subgoal"]) == ("scripted", "{}", "") and row["text"]
        assert json.loads(row["env"]) == {"id": ENV, "settings": KITCHEN}
    learned = {tuple(row[name] for name in DEMONSTRATIONS.learned) for row in found}
    assert len(learned) == len(found)
    assert len({row["episode"] for row in found}) > 1 and {row["agent"] for row in found} == {"alice", "bob"}


def test_actions_of_one_phrase_are_one_choice():
    view = TextObservation("you are here.", ("go", "wait", "go", "leave"), (True, False, True, True), "")
    row = _row(view, {}, 2, "cook")
    assert row and (json.loads(row["candidates"]), row["chosen"]) == (["go", "leave"], 0)
    assert _row(TextObservation("you are here.", ("go", "go"), (True, True), ""), {}, 1, "cook") is None


def test_where_all_are_told_every_cook_reads_its_order_and_nobody_is_heard(tmp_path):
    """The control kitchen, in which a clone learns to cook and not to listen."""

    def seen_by(told_to):
        settings = {**TOLD, "told_to": told_to}
        collect(tmp_path / str(told_to), env_config=settings, messages="none", target_demonstrations=150)
        found = rows(tmp_path / str(told_to))
        assert {row["heard"] for row in found} == {"{}"}
        assert all(json.loads(row["env"])["settings"] == settings for row in found)
        orders = {agent: [row["text"].lower() for row in found if row["agent"] == agent] for agent in ("alice", "bob")}
        return {agent: [any(one in text for one in TOLD["recipe"]) for text in own] for agent, own in orders.items()}

    told = seen_by("all")
    assert all(told["alice"]) and all(told["bob"]) and told["bob"]
    assert not all(seen_by(["alice"])["bob"]), "bob alone does not know the order"


def test_random_moves_are_played_and_not_demonstrated(tmp_path):
    name = f"{__name__}:last_of_all"
    collect(tmp_path / "random", player=name, random_share=1.0, max_choices_per_state=1)
    found = rows(tmp_path / "random")
    assert all(row["chosen"] == len(json.loads(row["candidates"])) - 1 for row in found)
    report = collect(tmp_path / "own", player=name, random_share=0.0, max_decisions=200)
    states = [{row["text"] for row in one} for one in (found, rows(tmp_path / "own"))]
    assert not report.complete and len(states[1]) < len(states[0]), "random moves lead to other states"


def test_what_a_teacher_says_is_heard_and_written_down(tmp_path):
    collect(tmp_path / "told", env_config=TOLD, messages="teacher")
    heard = [(row["agent"], json.loads(row["heard"])) for row in rows(tmp_path / "told")]
    assert {speaker for _, one in heard for speaker in one} == {"alice", "bob"}
    assert all(agent not in one and all(one.values()) for agent, one in heard)
    assert any("tomato" in one.get("alice", "") for agent, one in heard if agent == "bob")


def test_a_checkpoint_demonstrates_with_its_own_messages(tmp_path):
    report = collect(tmp_path / "own", player="zoo:verco_salad", messages="own", target_demonstrations=20)
    found = rows(tmp_path / "own")
    assert report.complete and {row["player"] for row in found} == {"checkpoint"}
    assert sum(row["heard"] != "{}" for row in found) > len(found) / 2
    collect(tmp_path / "none", player="zoo:verco_salad", target_demonstrations=20)
    assert {row["heard"] for row in rows(tmp_path / "none")} == {"{}"}


def test_only_answers_of_a_chat_model_that_are_understood_are_demonstrations(tmp_path):
    with ChatServer("?", "2", "what a question", "2") as server:
        chat = server.settings()
        settings: dict[str, Any] = {"player": {"chat": chat}, "target_demonstrations": 5}
        collect(tmp_path / "chat", **settings)
        asked = len(server.requests)
        collect(tmp_path / "chat", **settings)
    found = rows(tmp_path / "chat")
    assert {row["player"] for row in found} == {"chat"} and {row["chosen"] for row in found} == {1}
    assert asked >= len(found) + 2 and len(server.requests) == asked
    assert list((tmp_path / "chat" / "_chat_cache").rglob("*.json")), "answers that were paid for are kept"


def test_another_seed_gives_others(whole, tmp_path):
    collect(tmp_path / "other", seed=1)
    assert rows(tmp_path / "other") != rows(whole)


def test_a_collection_that_is_stopped_in_a_round_goes_on(whole, tmp_path):
    """That a killed one loses nothing else is tested with labels, which are kept by the same store."""

    def stop(done: int, target: int) -> None:
        if done > 45:  # in a round that brings more
            raise KeyboardInterrupt

    folder = tmp_path / "stopped"
    with pytest.raises(KeyboardInterrupt):
        collect(folder, progress=stop)
    assert 45 < len(rows(folder)) < len(rows(whole))
    assert collect(folder).complete
    assert rows(folder) == rows(whole), "the seed decides"
    before = {path.name: path.stat().st_mtime_ns for path in folder.glob("part-*")}
    assert collect(folder).labels == len(rows(whole))
    assert {path.name: path.stat().st_mtime_ns for path in folder.glob("part-*")} == before


@pytest.mark.parametrize(
    ("other", "setting"),
    [
        ({"target_demonstrations": 0}, "target_demonstrations"), ({"player": "zoo:door"}, "`player` .*door-v0"),
        ({"messages": "own"}, "messages"), ({"messages": "teacher", "player": {"sessions": ["x"]}}, "messages"),
        ({"messages": "teacher", "teacher": "owl"}, "teacher"), ({"player": {"sessions": 3}}, "player.sessions"),
        ({"player": {"sessions": ""}}, "player.sessions"), ({"player": {"policy": "stay", "noise": 1}}, "random_share"),
        ({"player": {"chat": {}, "greedy": True}}, "player.greedy"), ({"player": {"chat": 3}}, "player.chat"),
        ({"player": {"policy": "scripted", "sessions": ["x"]}}, "player"),
        ({"player": f"{__name__}:forbidden"}, rf"{__name__}:forbidden' of 'alice' in '{ENV}' .* of \d+ \('.*reading"),
        ({"player": f"{__name__}:breaks"}, "breaks' .*RuntimeError: no weights"),
        ({"player": f"{__name__}:takes_nothing"}, "takes_nothing' .*TypeError"),
    ],
)  # fmt: skip
def test_bad_settings(tmp_path, other, setting):
    with pytest.raises(UserError, match=setting) as caught:
        collect(tmp_path / "bad", **other)
    assert "\n" not in str(caught.value)


def test_other_settings_are_refused(whole):
    for other in ({"seed": 5}, {"random_share": 0.5}, {"messages": "teacher"}):
        with pytest.raises(UserError, match="other settings"):
            collect(whole, **other)
