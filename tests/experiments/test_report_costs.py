"""What the questions of games, of replays and of a growing data set cost, in the report of a SAMA run."""

from __future__ import annotations

import json

import pytest
from chat_server import ChatServer
from planner_model import planner

from rllib_llm_comm.experiments.sama_report import summarise
from rllib_llm_comm.policies.find_checkpoint import shipped_policy
from rllib_llm_comm.policies.stage_record import StageRecord
from tests.experiments.staged import run

COUNTS = ("requests", "input_tokens", "output_tokens", "cost")


def reported(folder, planner, **config):
    """The report of two games and a replay under a planner."""
    played = {
        "checkpoint": str(shipped_policy("zoo:emma_cramped_room")), "env_config": {"commit": False, "horizon": 8},
        "planner": planner, "trials": 0, **config,
    }  # fmt: skip
    specs = {
        "games": {"run": "evaluate", "config": {**played, "episodes": 2}},
        "replay": {"run": "replay", "config": played},
        "report": {"run": "sama_report", "config": {"of": ["${games}", "${replay}"]}},
    }
    run(specs, folder)
    return json.loads((folder / "f/report/report.json").read_text())


def trained(folder, config, *rows):
    """The report of a training whose `result.json` ends so."""
    (folder / "result.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = {"stage": "follower", "run": "EMMA", "status": "finished", "fingerprint": ""}
    record = StageRecord(**made, files={"metrics": "result.json"}, settings={"config": config})
    return summarise("x", [(record, folder)])


@pytest.mark.usefixtures("chat_client_at_home")
def test_games_and_replays_tell_requests_tokens_and_money(tmp_path):
    with ChatServer(planner) as server:
        chat = server.settings(price_per_million_input=1e4)
        report = reported(tmp_path, {"name": "chat", "chat": chat}, patience=4)
        asked = len(server.requests)
    assert [row["answers_from"] for row in report["stages"]] == ["tiny", "tiny"]
    assert report["sources"] == ["games: tiny", "replay: tiny"]
    games, replay = ({name: float(row[name]) for name in COUNTS} for row in report["stages"])
    assert games["requests"] + replay["requests"] == asked and replay["requests"] > 0
    for row in (games, replay):
        assert row["input_tokens"] > 0 < row["output_tokens"]
        assert row["cost"] == pytest.approx(row["input_tokens"] / 100)
    per_game = report["evaluations"][0]["metrics"]
    assert 2 * float(per_game["plan_requests"]) == games["requests"]


@pytest.mark.parametrize(
    ("planner", "author", "trials"), [("scripted", "rules", None), ({"name": "random", "seed": 1}, "random draws", 0)]
)
def test_games_and_replays_name_their_author_without_a_model(tmp_path, planner, author, trials):
    report = reported(tmp_path, planner, trials=trials)
    assert [row["answers_from"] for row in report["stages"]] == [author, author]
    assert report["sources"] == ["No language model and no recording was asked."]


def test_a_data_set_that_grew_in_training_names_who_was_asked_and_its_cost(tmp_path):
    grown = {"requests": 3.0, "kept_answers": 0.0, "input_tokens": 300.0, "output_tokens": 60.0, "cost": 0.5}
    config = {"new_subgoals": {"every": 1, "planner": {"name": "sama", "chat": {"model": "tiny"}}}}
    report = trained(tmp_path, config, {}, {"new_subgoals": {"states": 2.0, **grown}})
    assert report["sources"] == ["follower: tiny"]
    assert {name: float(report["stages"][0][name]) for name in grown} == grown


@pytest.mark.parametrize(
    "config",
    [
        {"planner": {"name": "chat", "chat": {"model": "tiny"}}},
        {"evaluation_config": {"planner": {"name": "sama", "chat": {"model": "tiny"}}}},
        {"subgoal_rewards": {"name": "judge", "chat": {"model": "tiny"}}},
    ],
)
def test_training_names_the_model_and_the_rules_that_answered_in_it(tmp_path, config):
    games = {"plans_by_model": 4.0, "plans_by_rules": 1.0, "chat": {"requests": 5.0, "cost": 0.1}}
    report = trained(tmp_path, config, {"evaluation": {"env_runners": games}})
    assert report["sources"] == ["follower: tiny"] and report["stages"][0]["answers_from"] == "tiny, rules"
    ruled = trained(tmp_path, {"planner": "scripted"}, {"env_runners": {"plans_by_rules": 1.0}})
    assert ruled["stages"][0]["answers_from"] == "rules"
