"""Games under a planner: the same for the same seed, counted right, and played once."""

from __future__ import annotations

import json

import pytest
from chat_server import ChatServer
from corridor import CORRIDOR, register
from planner_model import planner

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.evaluation.planner_scores import (
    ALL,
    Cell,
    PlannedGames,
    PlannerScores,
    PlanningSetup,
    PolicyExecutor,
    ScriptedExecutor,
    markdown,
    table,
)
from rllib_llm_comm.sama.emma.policy import GroundedPolicy
from tests.evaluation.kitchens import follower
from tests.refusal import refused

pytestmark = pytest.mark.usefixtures("chat_client_at_home")

BY_RULES, DOOR = PlanningSetup(), "rllib_llm_comm/door-v0"
DISTURBED = {"name": "disturbed", "planner": "scripted", "share": 0.5}


def games(setup=BY_RULES, **settings):
    return PlannedGames(ScriptedExecutor(), {"layout": "forced_coordination", "horizon": 60, **settings}, setup)


def test_an_officer_that_was_trained_stands_in_for_nothing():
    assert not ScriptedExecutor("rllib_llm_comm/minirts-v0", {"executor": "trained:zoo:red_officer"}).stand_ins
    assert ScriptedExecutor("rllib_llm_comm/minirts-v0").stand_ins


@pytest.mark.parametrize("replan", ["any", "all"])
def test_the_same_seed_gives_the_same_episode(replan):
    setup = PlanningSetup(DISTURBED, replan, 2 if replan == "all" else 0)
    one, other = games(setup), games(setup)
    first = [one.play(seed) for seed in (3, 4, 3)]
    assert first[0] == first[2] == other.play(3) and first[0]["metrics"] != first[1]["metrics"]
    metrics = first[0]["metrics"]
    assert first[0]["return"] == metrics["score"] and metrics["subgoals_replaced"] > 0
    assert metrics["subgoals_completed"] > 0 and metrics["plans"] > 0 == metrics["plan_requests"]


def test_failed_rounds_are_put_back_and_planned_anew():
    setups = [PlanningSetup({"name": "random"}, "all", trials) for trials in (0, 3)]
    without, with_trials = (
        [games(setup, layout="cramped_room").play(seed)["metrics"] for seed in range(3)] for setup in setups
    )
    failed = [sum(one["rounds_failed"] for one in episodes) for episodes in (without, with_trials)]
    assert failed[1] < failed[0] and sum(one["reflections"] for one in with_trials) > 0
    assert all(one["reflections"] == 0 and one["plans"] == one["rounds"] for one in without)
    assert all(one["plans"] == one["rounds"] + one["reflections"] for one in with_trials)


@pytest.mark.parametrize("replan", ["any", "all"])
def test_what_a_model_is_asked_is_counted(replan):
    with ChatServer(planner) as server:
        setup = PlanningSetup({"name": "chat", "chat": server.settings(max_tokens=2000)}, replan, patience=10)
        metrics = games(setup, horizon=20).play(0)["metrics"]
        assert metrics["plan_requests"] == len(server.requests) > 0
    assert metrics["plan_tokens"] == 120 * metrics["plan_requests"]


def test_the_table_tells_who_answered_and_what_takes_over():
    """A server that refuses every assignment: nobody may think that its model has given anything out."""
    with ChatServer(lambda prompt: "no" if "Give each of these" in prompt else planner(prompt)) as server:
        setup = PlanningSetup({"name": "chat", "chat": server.settings(max_tokens=2000)}, patience=5)
        room = {"layout": "cramped_room", "horizon": 20}
        cell = Cell({"scenario": "cramped_room"}, ScriptedExecutor(), room, setup)
        played = PlannerScores("toys", "nothing", [cell], range(1))
        played.play(lambda text: None)
    columns, (row,) = table(played.figures())
    told = dict(zip(columns, row, strict=True))
    assert (told["planned by"], told["assigned by"], told["fallback"]) == ("model", "rules", "rules")
    assert "subgoals by" not in told
    record = json.loads(played.to_json())["cells"][0]
    assert record["fallback"] == "rules" and record["summary"]["metrics"]["assignments_by_rules"] > 1


def test_a_plan_that_fails_later_does_not_end_the_episode():
    def model(prompt: str) -> str:
        return "I would rather not." if "could not" in prompt or "has done" in prompt else planner(prompt)

    with ChatServer(model) as server:
        setup = PlanningSetup({"name": "chat", "chat": server.settings(max_tokens=2000)}, patience=10)
        metrics = games(setup, horizon=40).play(0)["metrics"]
    assert metrics["plans"] >= 1 <= metrics["plans_failed"]


def test_a_trained_policy_follows_the_planner_instead_of_sampled_subgoals():
    settings = {"observe": ["entities"], "action_level": "goal_cell", "subgoals": "sampled", "horizon": 30}
    network, manifest = follower(**settings)
    executor = PolicyExecutor(GroundedPolicy(network.eval(), manifest), "mine", {"commit": False})
    identity = executor.identity()
    assert identity["env"] == "rllib_llm_comm/overcooked_ai-v0" and "subgoals" not in identity["env_config"]
    assert identity["env_config"]["horizon"] == 30 and identity["algorithm"] == "EMMA"
    assert executor.scenarios == {"as trained": {}}
    played = PlannedGames(executor, {}, PlanningSetup(patience=10))
    first = played.play(0)
    assert first == played.play(0) and first["metrics"]["subgoals_given"] >= 2


def test_another_game_is_evaluated_as_well():
    register()
    executor = ScriptedExecutor(CORRIDOR, {"length": 10})
    assert executor.scenarios == {"default": {}}
    found = PlannedGames(executor, {}, PlanningSetup()).play(0)
    # Both need 2 steps to the right end, then 4 to the left one and 4 back.
    assert found["return"] == 2 and found["metrics"]["subgoals_completed"] == 6
    assert PlannedGames(executor, {}, PlanningSetup(replan="all")).play(0)["return"] == 2


def test_games_that_cannot_be_played_and_reflection_without_rounds_are_told():
    for env, told in (("toys/nowhere-v0", ("env", "unknown")), (DOOR, ("", "invalid", "Planners"))):
        with refused(*told):
            ScriptedExecutor(env)
    with refused("replan"):
        PlanningSetup(trials=1)


def corridors(length=10, planners=("scripted", "random")):
    register()
    executor = ScriptedExecutor(CORRIDOR, {"length": length})
    return [
        Cell({"scenario": name, "planner": planner}, executor, {"length": more}, PlanningSetup(planner))
        for name, more in (("short", length), ("long", 2 * length))
        for planner in planners
    ]


def study(seeds=range(4), **cells):
    return PlannerScores("toys", "nothing", corridors(**cells), seeds)


@pytest.fixture(scope="module")
def played():
    """A study that was played, and what was kept after each episode, and at the end."""
    whole, kept = study(), []
    whole.play(kept.append)
    return whole, kept


def test_episodes_are_kept_one_by_one_and_played_once(played):
    _, kept = played
    assert len(kept) == 17
    half = json.loads(kept[5])
    assert [len(cell["episodes"].get("seed", ())) for cell in half["cells"]] == [4, 2, 0, 0]
    half["cells"][1]["episodes"]["return"][0] = 99.0  # would be 0 to 2 if it were played again
    again, more = study(), []
    again.take_over(json.dumps(half))
    again.play(more.append)
    assert len(more) == 11
    assert json.loads(more[-1])["cells"][1]["episodes"]["return"][0] == 99.0
    assert without_seconds(json.loads(more[-1])["cells"][3]) == without_seconds(json.loads(kept[-1])["cells"][3])
    fewer = study(seeds=range(2))
    fewer.take_over(kept[-1])
    fewer.play(more.append)
    assert [row["summary"]["episodes"] for row in fewer.figures()] == [2, 2, 2, 2, 4, 4]
    other = study(length=6)  # of other settings, beside which the old figures stay
    other.take_over(kept[-1])
    other.play(more.append)
    record = json.loads(more[-1])
    assert len(record["cells"]) == 8 and len({cell["key"] for cell in record["cells"]}) == 8
    assert len(other.figures()) == 6


def without_seconds(cell):
    assert cell["summary"].pop("seconds") >= 0 and min(cell["episodes"].pop("seconds")) >= 0
    return cell


def test_seconds_per_game_are_told_and_files_without_them_go_on(played):
    old, again = json.loads(played[1][-1]), study(planners=("scripted",))
    del old["cells"][0]["episodes"]["seconds"]
    old["cells"][2]["episodes"]["seconds"] = [2.5] * 4
    again.take_over(json.dumps(old))
    columns, rows = table(again.figures())
    assert [row[columns.index("seconds")] for row in rows] == ["", "2.5", ""]


def test_files_of_something_else_are_refused():
    damaged = '{"study": "toys", "cells": [{"key": "a", "episodes": [{"seed": 0}]}]}'
    for text in ("{", "[]", '{"study": 1}', damaged):
        with pytest.raises(UserError, match="continued"):
            study().take_over(text)
    with pytest.raises(UserError, match="'more toys'"):
        study().take_over('{"study": "more toys", "cells": []}')


def test_the_table_tells_scores_and_leaves_out_what_is_zero(played):
    empty = table(study().figures())
    assert empty[0] == ["scenario", "planner", "episodes"] and empty[1][0] == ["short", "scripted", "0"]
    columns, rows = table(played[0].figures())
    timed = columns.index("seconds")
    assert all(0 < float(row.pop(timed)) < 60 for row in rows) and columns.pop(timed)
    told = ["score", "95 % interval", "plans", "subgoals done", "planned by"]
    assert columns == ["scenario", "planner", *told, "episodes"]
    assert {row[1]: row[-2] for row in rows} == {"scripted": "rules", "random": "random"}
    assert rows[0] == ["short", "scripted", "2.0", "2.0 to 2.0", "3", "100 %", "rules", "4"]
    assert [row[:2] for row in rows[-2:]] == [[ALL, "scripted"], [ALL, "random"]] and rows[-2][-1] == "8"
    mean = [float(row[2]) for row in rows if row[1] == "scripted"]
    assert mean[2] == pytest.approx((mean[0] + mean[1]) / 2)
    text = markdown(columns, rows)
    assert text.splitlines()[1] == "| --- | --- | --- | --- | --- | --- | --- | --- |" and len(text.splitlines()) == 8


@pytest.mark.parametrize("name", ["cassette", "chat"])
def test_a_recording_that_has_changed_counts_as_another_planner(tmp_path, name):
    tape = tmp_path / "tape.jsonl"
    tape.write_text('{"cassette": 1, "model": "m", "made": "", "note": ""}\n')
    source = {"cassette": str(tape)}
    planner = {"name": "disturbed", "planner": {"name": name, **(source if name == "cassette" else {"chat": source})}}
    cell = Cell({}, ScriptedExecutor(), {}, PlanningSetup(planner))
    before = cell.key()
    assert cell.made_with()["recording"]["model"] == "m" and cell.key() == before
    tape.write_text(tape.read_text() + '{"system": "", "prompt": "a", "answer": "b"}\n')
    assert cell.key() != before


def test_a_recording_that_a_model_goes_on_with_is_part_of_its_settings(tmp_path):
    """It grows while games are played; its figures are those of the model that the settings name."""
    tape = tmp_path / "tape.jsonl"
    chat = {"model": "m", "base_url": "http://127.0.0.1:9/v1", "cassette": str(tape)}
    cell = Cell({}, ScriptedExecutor(), {}, PlanningSetup({"name": "chat", "chat": chat}))
    before = cell.key()
    tape.write_text('{"cassette": 1, "model": "m", "made": "", "note": ""}\n')
    assert cell.key() == before and "recording" not in cell.made_with()
