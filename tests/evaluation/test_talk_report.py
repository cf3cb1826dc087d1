"""Measures of talk, corrected comparisons, and the cost of chat models in a study's report."""

import itertools
import json
import shutil

import numpy as np
import pytest
from scipy import stats

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.evaluation.report import summarise, write_report
from rllib_llm_comm.evaluation.statistics import permutation_test
from rllib_llm_comm.evaluation.study_results import join_results, read_results
from rllib_llm_comm.policies.stage_record import StageRecord
from tests.evaluation.made_up import played, require_made_again, study_of, write, write_rows

STUDY = study_of("none", "talk", "other")
STUDY["evaluation"]["communication"] = True
RETURNS = {"talk": [1.1, 1.2, 1.15, 1.12], "none": [0.4, 0.3, 0.35, 0.42], "other": [0.41, 0.36, 0.3, 0.44]}


def measured(value):
    told = {"nats": value + 0.1, "corrected": value, "entropy": 1.1, "p_value": 0.001, "samples": 90}
    return {
        "signalling": told, "signalling_raw": told, "listening": value / 2, "listening_told": None, "decisions": 50,
        "consistency": 0.1, "coordination": 0.2, "obeyed": 0.8, "obeyed_chance": 0.4, "messages": 100, "distinct": 9,
        "vocabulary": 12, "zipf": -0.9, "understood": None, "unprintable": 0.0,
    }  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    write(tmp_path / "study.json", STUDY)
    for name, returns in RETURNS.items():
        spoken = 0 if name == "none" else 100
        runs = [played(one, communication={**measured(one / 2), "messages": spoken}) for one in returns]
        write(tmp_path / f"one.{name}.sampled/evaluation.json", {"checkpoints": runs})
    return tmp_path


def test_measures_and_corrected_comparisons(folder):
    told = summarise(read_results(folder))["scenarios"]["one"]["systems"]
    talk = told["talk"]["talk"]
    assert talk["signalling"]["value"] == pytest.approx(0.5675, abs=0.005)
    assert talk["obeyed"] == {"value": 0.8, "low": 0.8, "high": 0.8}
    assert talk["understood"] is None and told["none"]["talk"] is None
    assert talk["first_choice"] is None  # these evaluations are of a version that did not measure it
    assert told["talk"]["against_baseline"]["p_value"] == pytest.approx(2 / 70, abs=1e-5)  # the most extreme of 70
    assert told["talk"]["against_baseline"]["p_corrected"] == pytest.approx(4 / 70, abs=1e-5)
    assert told["other"]["against_baseline"]["p_corrected"] == told["other"]["against_baseline"]["p_value"] > 0.5


def test_all_comparisons_of_the_study_count_but_those_without_a_baseline_yet(folder):
    write(folder / "study.json", {**STUDY, "scenarios": {"one": {}, "two": {}}})
    for name in RETURNS:
        shutil.copytree(folder / f"one.{name}.sampled", folder / f"two.{name}.sampled")
    told = summarise(read_results(folder))["scenarios"]["two"]["systems"]
    assert told["talk"]["against_baseline"]["p_corrected"] == pytest.approx(8 / 70, abs=1e-5)
    found = told["talk"]["corrected"]
    assert found["comparisons"] == 4 and not found["overlaps_baseline"]
    assert told["other"]["corrected"]["overlaps_baseline"]
    usual = told["talk"]["evaluations"]["sampled"]["return_mean"]
    assert found["low"] <= usual["low"] < usual["value"] == found["value"] < usual["high"] <= found["high"]
    shutil.rmtree(folder / "two.none.sampled")  # a baseline that is not judged yet spoils no report
    told = summarise(read_results(folder))["scenarios"]["two"]["systems"]
    assert told["talk"]["corrected"]["overlaps_baseline"] is None
    write_report(read_results(folder), folder / "report")


def test_systems_may_have_baselines_of_their_own(folder):
    study = json.loads(json.dumps(STUDY))
    study["systems"]["talk"]["baseline"] = "other"
    study["systems"]["late"] = {**study["systems"]["other"], "label": "late"}
    write(folder / "study.json", study)
    shutil.copytree(folder / "one.talk.sampled", folder / "one.late.sampled")
    results = read_results(folder)
    assert {name: results.baseline_of(name) for name in study["systems"]} == {
        "talk": "other", "none": None, "other": None, "late": "none"
    }  # fmt: skip
    told = summarise(results)["scenarios"]["one"]["systems"]
    compared = {name: one["against_baseline"] for name, one in told.items() if "against_baseline" in one}
    assert {name: one["label"] for name, one in compared.items()} == {"talk": "other", "late": "none"}
    assert [one["p_corrected"] for one in compared.values()] == pytest.approx([4 / 70] * 2, abs=1e-5)  # of both
    study["systems"]["talk"]["baseline"] = "otherr"
    write(folder / "study.json", study)
    with pytest.raises(UserError, match="systems.talk.baseline.*must be one of"):
        read_results(folder)


def test_they_are_on_the_page_made_again_and_on_the_disk_before_its_files_get_their_names(folder, synced):
    page = require_made_again(read_results(folder), folder)
    assert "Signalling (nats)" in page.read_text() and "Holm" in page.read_text() and "Drift" not in page.read_text()
    written = {path.name for path in (folder / "report").iterdir()}
    assert {"report.html", "report.md", "report.json", "results.json"} <= written <= {path.name for path in synced}
    assert synced[-1] == folder / "again", "the folder comes last"


def test_permutation_test_agrees_with_scipy():
    rng = np.random.default_rng(0)
    one, two = rng.normal(size=6), rng.normal(0.8, size=5)

    def difference(first, second, axis):
        return np.abs(first.mean(axis) - second.mean(axis))

    reference = stats.permutation_test((one, two), difference, alternative="greater", n_resamples=np.inf)
    assert permutation_test(one, two) == pytest.approx(reference.pvalue)
    assert permutation_test(one, two, draws=100) == pytest.approx(reference.pvalue, abs=0.15)
    assert permutation_test(one, one) == 1.0
    shares = [permutation_test(np.array([*a]), np.array([b])) for *a, b in itertools.permutations([1.0, 2.0, 9.0])]
    assert min(shares) == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("talk", "says"),
    [
        ({"signalling": 1}, "messages` is missing"), ({"messages": 1, "listening": "x"}, "listening` is 'x'"),
        ({"messages": 1, "signalling": {}}, "signalling.corrected` is missing"),
    ],
)  # fmt: skip
def test_damaged_measures_are_refused(talk, says, folder):
    path = folder / "one.talk.sampled" / "evaluation.json"
    content = json.loads(path.read_text())
    content["checkpoints"][0]["communication"] = talk
    write(path, content)
    with pytest.raises(UserError, match=rf"`checkpoints\.0\.communication\.{says}"):
        read_results(folder)


COSTLY = study_of("silent", "planned", seeds=[0, 1], shared={"labels": {"run": "collect_labels"}})
COSTLY["systems"]["planned"]["label"] = "a planner"
PLAYED = played(1.0, episodes=10, seconds_per_game=2.5, metrics={})
COST = {
    "requests": 40, "kept_answers": 10, "input_tokens": 4000, "output_tokens": 800, "cost": 2.0, "answer_seconds": 20.0,
}  # fmt: skip


def stage(folder, name, run, **summary):
    record = StageRecord(stage=f"one.{name}", run=run, status="finished", fingerprint="", summary=summary)
    write(folder / f"one.{name}/stage.json", record.model_dump())


@pytest.fixture
def asked_folder(tmp_path):
    write(tmp_path / "study.json", COSTLY)
    stage(tmp_path, "labels", "collect_labels", labels=5, **COST)
    for name in ("silent", "planned"):
        asked = COST if name == "planned" else dict.fromkeys(COST, 0.0)
        for seed in (0, 1):
            row = {"training_iteration": 1, "config": {"seed": seed}, "env_runners": {"chat": asked}}
            later = {**row, "evaluation": {"env_runners": {"chat": {"requests": 2 * seed}}}, "training_iteration": 2}
            write_rows(tmp_path / f"one.{name}/trial_{seed}", [row, later if name == "planned" else row])
        stage(tmp_path, name, "EMMA")
        runs = {"checkpoints": [PLAYED, PLAYED]}
        stage(tmp_path, f"{name}.sampled", "evaluate", **runs, **asked)
        write(tmp_path / f"one.{name}.sampled/evaluation.json", runs)
    return tmp_path


def test_rows_are_means_per_stage_run_and_game(asked_folder):
    told = summarise(read_results(asked_folder))["scenarios"]["one"]["cost"]
    assert [(row["label"], row["part"], row["per"]) for row in told] == [
        ("labels", "shared stage", "stage"), ("a planner", "while learning", "run"), ("a planner", "sampled", "game"),
    ]  # fmt: skip
    assert [row["requests"] for row in told] == [40, 41, 2]  # the periodic evaluation of one seed asked two more
    assert [row["cost"] for row in told] == [2, 2, 0.1] and [row["input_tokens"] for row in told] == [4000, 4000, 200]
    assert [row["seconds_per_game"] for row in told] == [None, None, 2.5] and told[2]["answer_seconds"] == 1


def test_the_page_shows_it_and_can_be_made_again_and_damaged_costs_are_refused(asked_folder):
    page = require_made_again(read_results(asked_folder), asked_folder)
    row = "| a planner | sampled | game | 2.0 | 0.5 | 200 | 40 | 0.1 | 1.0 | 2.5 |"
    assert row in page.with_suffix(".md").read_text()
    assert "<td>a planner</td><td>sampled</td><td>game</td><td>2.0</td>" in page.read_text()
    assert join_results([read_results(asked_folder)]).cost == read_results(asked_folder).cost
    kept = json.loads((page.parent / "results.json").read_text())
    kept["cost"]["one"]["planned"]["requests"] = "many"
    write(page.parent / "results.json", kept)
    with pytest.raises(UserError, match=r"cost\.one\.planned\.requests"):
        read_results(page.parent)


def test_studies_that_ask_nobody_say_nothing_of_it(asked_folder, tmp_path):
    for path in asked_folder.glob("one.*/stage.json"):
        path.unlink()
    for path in asked_folder.glob("one.planned/trial_*/result.json"):
        path.write_text((asked_folder / "one.silent/trial_0/result.json").read_text())
    results = read_results(asked_folder)
    assert results.cost == {} and "cost" not in summarise(results)["scenarios"]["one"]
    write_report(results, tmp_path / "report")
    assert "chat models" not in (tmp_path / "report/report.md").read_text()
    assert '"cost"' not in (tmp_path / "report/results.json").read_text()
