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


@pytest.mark.usefixtures("chat_client_at_home")
def test_games_and_replays_tell_requests_tokens_and_money(tmp_path):
    with ChatServer(planner) as server:
        chat = server.settings(price_per_million_input=1e4)
        played = {
            "checkpoint": str(shipped_policy("zoo:emma_cramped_room")),
            "env_config": {"commit": False, "horizon": 8},
            "planner": {"name": "chat", "chat": chat},
            "trials": 0,
            "patience": 4,
        }
        specs = {
            "games": {"run": "evaluate", "config": {**played, "episodes": 2}},
            "replay": {"run": "replay", "config": played},
            "report": {"run": "sama_report", "config": {"of": ["${games}", "${replay}"]}},
        }
        run(specs, tmp_path)
        asked = len(server.requests)
    report = json.loads((tmp_path / "f/report/report.json").read_text())
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
    ("planner", "author"), [("scripted", "rules"), ({"name": "random", "seed": 1}, "random draws")]
)
@pytest.mark.parametrize("trials", [None, 0])
def test_games_and_replays_name_their_author_without_a_model(tmp_path, planner, author, trials):
    played = {
        "checkpoint": str(shipped_policy("zoo:emma_cramped_room")),
        "env_config": {"commit": False, "horizon": 8},
        "planner": planner,
        "trials": trials,
        "episodes": 1,
    }
    specs = {
        "games": {"run": "evaluate", "config": played},
        "replay": {"run": "replay", "config": played},
        "report": {"run": "sama_report", "config": {"of": ["${games}", "${replay}"]}},
    }
    run(specs, tmp_path)
    report = json.loads((tmp_path / "f/report/report.json").read_text())
    assert [row["answers_from"] for row in report["stages"]] == [author, author]
    assert report["sources"] == ["No language model and no recording was asked."]


def test_a_data_set_that_grew_in_training_names_who_was_asked_and_its_cost(tmp_path):
    grown = {"requests": 3.0, "kept_answers": 0.0, "input_tokens": 300.0, "output_tokens": 60.0, "cost": 0.5}
    (tmp_path / "result.json").write_text("{}\n" + json.dumps({"new_subgoals": {"states": 2.0, **grown}}) + "\n")
    config = {"new_subgoals": {"every": 1, "planner": {"name": "sama", "chat": {"model": "tiny"}}}}
    record = StageRecord(
        stage="follower", run="EMMA", fingerprint="", files={"metrics": "result.json"}, settings={"config": config}
    )
    report = summarise("x", [(record, tmp_path)])
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
    (tmp_path / "result.json").write_text(json.dumps({"evaluation": {"env_runners": games}}) + "\n")
    record = StageRecord(
        stage="follower",
        run="EMMA",
        status="finished",
        fingerprint="",
        files={"metrics": "result.json"},
        settings={"config": config},
    )
    report = summarise("t", [(record, tmp_path)])
    assert report["sources"] == ["follower: tiny"]
    assert report["stages"][0]["answers_from"] == "tiny, rules"
    (tmp_path / "result.json").write_text(json.dumps({"env_runners": {"plans_by_rules": 1.0}}) + "\n")
    scripted = StageRecord(**{**vars(record), "settings": {"config": {"planner": "scripted"}}})
    assert summarise("t", [(scripted, tmp_path)])["stages"][0]["answers_from"] == "rules"
