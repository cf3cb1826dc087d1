"""The cost of questions to chat models in the report of a study."""

from __future__ import annotations

import json

import pytest

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.evaluation.report import summarise, write_report
from rllib_llm_comm.evaluation.study_results import join_results, read_results
from rllib_llm_comm.policies.stage_record import StageRecord

STUDY = {
    "title": "Cost",
    "env": "toys/game-v0",
    "scenarios": {"one": {}},
    "shared": {"labels": {"run": "collect_labels"}},
    "systems": {
        "silent": {"label": "silent", "interventions": []},
        "planned": {"label": "a planner", "interventions": []},
    },
    "baseline": "silent",
    "seeds": [0, 1],
    "evaluation": {"episodes": 10, "seed": 0, "modes": ["sampled"]},
}
EVALUATION = {
    "return_mean": 1.0, "success_rate": 0.5, "length_mean": 50.0, "collisions_mean": 1.0, "message_words_mean": 3.0,
    "vocabulary": 7, "common_messages": [], "episodes": 10, "seconds_per_game": 2.5, "metrics": {},
}  # fmt: skip
COST = {
    "requests": 40, "kept_answers": 10, "input_tokens": 4000, "output_tokens": 800, "cost": 2.0, "answer_seconds": 20.0,
}  # fmt: skip


def stage(folder, name, run, **summary):
    place = folder / f"one.{name}"
    place.mkdir(parents=True, exist_ok=True)
    record = StageRecord(stage=f"one.{name}", run=run, status="finished", fingerprint="", summary=summary)
    (place / "stage.json").write_text(record.model_dump_json())
    return place


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "study.json").write_text(json.dumps(STUDY))
    stage(tmp_path, "labels", "collect_labels", labels=5, **COST)
    for name in ("silent", "planned"):
        asked = COST if name == "planned" else dict.fromkeys(COST, 0.0)
        for seed in (0, 1):
            trial = tmp_path / f"one.{name}" / f"trial_{seed}"
            trial.mkdir(parents=True)
            row = {"training_iteration": 1, "config": {"seed": seed}, "env_runners": {"chat": asked}}
            later = {**row, "evaluation": {"env_runners": {"chat": {"requests": 2 * seed}}}, "training_iteration": 2}
            (trial / "result.json").write_text(f"{json.dumps(row)}\n{json.dumps(later if name == 'planned' else row)}")
        stage(tmp_path, name, "EMMA")
        runs = {"checkpoints": [EVALUATION, EVALUATION]}
        place = stage(tmp_path, f"{name}.sampled", "evaluate", **runs, **asked)
        (place / "evaluation.json").write_text(json.dumps(runs))
    return tmp_path


def test_rows_are_means_per_stage_run_and_game(folder):
    told = summarise(read_results(folder))["scenarios"]["one"]["cost"]
    assert [(row["label"], row["part"], row["per"]) for row in told] == [
        ("labels", "shared stage", "stage"),
        ("a planner", "while learning", "run"),
        ("a planner", "sampled", "game"),
    ]
    assert [row["requests"] for row in told] == [40, 41, 2]  # the periodic evaluation of one seed asked two more
    assert [row["cost"] for row in told] == [2, 2, 0.1] and [row["input_tokens"] for row in told] == [4000, 4000, 200]
    assert [row["seconds_per_game"] for row in told] == [None, None, 2.5] and told[2]["answer_seconds"] == 1


def test_the_page_shows_it_and_can_be_made_again(folder, tmp_path):
    first, again = tmp_path / "report", tmp_path / "again"
    write_report(read_results(folder), first)
    write_report(read_results(first), again)
    for name in ("report.json", "report.md", "report.html", "results.json"):
        assert (first / name).read_bytes() == (again / name).read_bytes()
    row = "| a planner | sampled | game | 2.0 | 0.5 | 200 | 40 | 0.1 | 1.0 | 2.5 |"
    assert row in (first / "report.md").read_text()
    page = (first / "report.html").read_text()
    assert "<td>a planner</td><td>sampled</td><td>game</td><td>2.0</td>" in page
    assert join_results([read_results(folder)]).cost == read_results(folder).cost


def test_studies_that_ask_nobody_say_nothing_of_it(folder, tmp_path):
    for path in folder.glob("one.*/stage.json"):
        path.unlink()
    for path in folder.glob("one.planned/trial_*/result.json"):
        path.write_text((folder / "one.silent/trial_0/result.json").read_text())
    results = read_results(folder)
    assert results.cost == {} and "cost" not in summarise(results)["scenarios"]["one"]
    write_report(results, tmp_path / "report")
    assert "chat models" not in (tmp_path / "report/report.md").read_text()
    assert '"cost"' not in (tmp_path / "report/results.json").read_text()


def test_damaged_costs_are_refused(folder, tmp_path):
    write_report(read_results(folder), tmp_path / "report")
    path = tmp_path / "report/results.json"
    kept = json.loads(path.read_text())
    kept["cost"]["one"]["planned"]["requests"] = "many"
    path.write_text(json.dumps(kept))
    with pytest.raises(UserError, match=r"cost\.one\.planned\.requests"):
        read_results(tmp_path / "report")
