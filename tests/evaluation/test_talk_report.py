"""Measures of talk and corrected comparisons in a study's report."""

import itertools
import json
import shutil

import numpy as np
import pytest
from scipy import stats

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.evaluation.report import summarise, write_report
from rllib_llm_comm.evaluation.statistics import permutation_test
from rllib_llm_comm.evaluation.study_results import read_results

STUDY = {
    "title": "Talk", "env": "x/y-v0", "scenarios": {"one": {}}, "baseline": "none", "seeds": [0, 1, 2, 3],
    "systems": {name: {"label": name, "interventions": [], "config": {}} for name in ("talk", "none", "other")},
    "evaluation": {"episodes": 10, "seed": 0, "modes": ["sampled"], "communication": True},
}  # fmt: skip
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
    (tmp_path / "study.json").write_text(json.dumps(STUDY))
    for name, returns in RETURNS.items():
        stage = tmp_path / f"one.{name}.sampled"
        stage.mkdir()
        runs = [
            {
                "return_mean": r, "success_rate": 0.5, "length_mean": 50.0, "collisions_mean": 1.0,
                "message_words_mean": 3.0, "vocabulary": 7, "common_messages": [],
                "communication": {**measured(r / 2), "messages": 0 if name == "none" else 100},
            }
            for r in returns
        ]  # fmt: skip
        (stage / "evaluation.json").write_text(json.dumps({"checkpoints": runs}))
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


def test_all_comparisons_of_the_study_count(folder):
    study = {**STUDY, "scenarios": {"one": {}, "two": {}}}
    (folder / "study.json").write_text(json.dumps(study))
    for name in RETURNS:
        shutil.copytree(folder / f"one.{name}.sampled", folder / f"two.{name}.sampled")
    told = summarise(read_results(folder))["scenarios"]["two"]["systems"]
    assert told["talk"]["against_baseline"]["p_corrected"] == pytest.approx(8 / 70, abs=1e-5)
    found = told["talk"]["corrected"]
    assert (
        found["comparisons"] == 4 and not found["overlaps_baseline"] and told["other"]["corrected"]["overlaps_baseline"]
    )
    usual = told["talk"]["evaluations"]["sampled"]["return_mean"]
    assert found["low"] <= usual["low"] < usual["value"] == found["value"] < usual["high"] <= found["high"]


def test_systems_may_have_baselines_of_their_own(folder):
    study = json.loads(json.dumps(STUDY))
    study["systems"]["talk"]["baseline"] = "other"
    study["systems"]["late"] = {**study["systems"]["other"], "label": "late"}
    (folder / "study.json").write_text(json.dumps(study))
    shutil.copytree(folder / "one.talk.sampled", folder / "one.late.sampled")
    results = read_results(folder)
    assert {name: results.baseline_of(name) for name in study["systems"]} == {
        "talk": "other", "none": None, "other": None, "late": "none"
    }  # fmt: skip
    page = write_report(results, folder / "report")
    told = json.loads((page.parent / "report.json").read_text())["scenarios"]["one"]
    compared = {name: one["against_baseline"] for name, one in told["systems"].items() if "against_baseline" in one}
    assert {name: one["label"] for name, one in compared.items()} == {"talk": "other", "late": "none"}
    means = {name: sum(returns) / 4 for name, returns in RETURNS.items()}
    assert compared["talk"]["difference"]["value"] == pytest.approx(means["talk"] - means["other"], abs=0.03)
    assert [one["p_corrected"] for one in compared.values()] == pytest.approx([4 / 70] * 2, abs=1e-5)  # of both
    assert told["systems"]["talk"]["corrected"]["comparisons"] == 2
    for kind in ("md", "html"):
        text = (page.parent / f"report.{kind}").read_text()
        assert "Against its baseline" in text and "other: intervals do not overlap" in text, kind
    again = write_report(read_results(folder / "report"), folder / "again").parent
    assert (again / "report.md").read_text() == (page.parent / "report.md").read_text()
    study["systems"]["talk"]["baseline"] = "otherr"
    (folder / "study.json").write_text(json.dumps(study))
    with pytest.raises(UserError, match="systems.talk.baseline.*must be one of"):
        read_results(folder)


def test_of_agents_in_silence_only_their_cues_are_told(folder):
    for name in ("talk", "none"):
        path = folder / f"one.{name}.sampled/evaluation.json"
        kept = json.loads(path.read_text())
        for run in kept["checkpoints"]:
            run["communication"]["first_choice"] = {"nats": 0.3, "corrected": 0.25, "entropy": 1.1}
        path.write_text(json.dumps(kept))
    told = summarise(read_results(folder))["scenarios"]["one"]["systems"]
    assert {name for name, value in told["none"]["talk"].items() if value} == {"first_choice"}
    assert told["none"]["talk"]["first_choice"]["value"] == told["talk"]["talk"]["first_choice"]["value"] == 0.25


def test_they_are_in_both_pages_and_are_made_again_from_what_was_kept(folder):
    page = write_report(read_results(folder), folder / "report")
    assert "Signalling (nats)" in page.read_text() and "Holm" in page.read_text()
    text = (folder / "report/report.md").read_text()
    assert "| talk | 0.57 [" in text and "intervals do not overlap, p 0.0571 |" in text
    write_report(read_results(folder / "report"), folder / "again")
    assert (folder / "again/report.md").read_text() == text


def test_drift_has_columns_where_messages_were_trained(folder):
    path = folder / "one.talk.sampled" / "evaluation.json"
    runs = json.loads(path.read_text())["checkpoints"]
    for number, run in enumerate(runs):
        run["communication"]["drift"] = {
            "kl": 0.5 + number / 10, "kl_per_token": 0.1, "new_words": 0.2, "new_words_reference": 0.05,
            "unreadable": None, "unreadable_reference": None, "messages": 400,
        }  # fmt: skip
    path.write_text(json.dumps({"checkpoints": runs}))
    told = summarise(read_results(folder))["scenarios"]["one"]["systems"]
    assert told["talk"]["talk"]["drift.kl"]["value"] == pytest.approx(0.65)
    assert told["talk"]["talk"]["drift.unreadable"] is None and "drift.kl" not in told["other"]["talk"]
    page = write_report(read_results(folder), folder / "report")
    text = (folder / "report/report.md").read_text()
    assert "| Drift (nats per message) | New words | New words, taught |" in text and "| 0.65 [" in text
    row = next(line for line in text.splitlines() if line.startswith("| other | 0."))
    assert row.endswith("| - | - | - | - | - |") and "<th>New words</th>" in page.read_text()
    write_report(read_results(folder / "report"), folder / "again")
    assert (folder / "again/report.md").read_text() == text


def test_drift_has_no_columns_elsewhere(folder):
    write_report(read_results(folder), folder / "report")
    assert "Drift" not in (folder / "report/report.md").read_text()


def test_a_report_is_on_the_disk_before_its_files_get_their_names(folder, synced):
    write_report(read_results(folder), folder / "report")
    written = {path.name for path in (folder / "report").iterdir()}
    assert {"report.html", "report.md", "report.json", "results.json"} <= written <= {path.name for path in synced}
    assert synced[-1] == folder / "report"


def test_a_study_that_does_not_measure_talk_has_none_of_it(folder):
    plain = {**STUDY, "evaluation": {"episodes": 10, "seed": 0, "modes": ["sampled"]}}
    (folder / "study.json").write_text(json.dumps(plain))
    page = write_report(read_results(folder), folder / "report")
    assert "Signalling" not in page.read_text() and "p_corrected" not in (folder / "report/report.json").read_text()


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


def test_a_scenario_whose_baseline_is_not_judged_yet_spoils_no_report(folder):
    (folder / "study.json").write_text(json.dumps({**STUDY, "scenarios": {"one": {}, "two": {}}}))
    shutil.copytree(folder / "one.talk.sampled", folder / "two.talk.sampled")
    told = summarise(read_results(folder))["scenarios"]
    assert told["two"]["systems"]["talk"]["corrected"]["overlaps_baseline"] is None
    assert told["one"]["systems"]["talk"]["corrected"]["overlaps_baseline"] is False
    write_report(read_results(folder), folder / "report")


@pytest.mark.parametrize(
    ("talk", "says"),
    [
        (5, "`checkpoints.0.communication` is 5 but must be a mapping"),
        ({"signalling": 1}, "`checkpoints.0.communication.messages` is missing"),
        ({"messages": 1, "listening": "x"}, "`checkpoints.0.communication.listening` is 'x' but must be a number"),
        ({"messages": 1, "signalling": {}}, "`checkpoints.0.communication.signalling.corrected` is missing"),
        ({"messages": 1, "drift": 5}, "`checkpoints.0.communication.drift` is 5 but must be a mapping"),
    ],
)
def test_damaged_measures_are_refused(talk, says, folder):
    path = folder / "one.talk.sampled" / "evaluation.json"
    content = json.loads(path.read_text())
    content["checkpoints"][0]["communication"] = talk
    path.write_text(json.dumps(content))
    with pytest.raises(UserError, match=f"damaged or incomplete: {says}"):
        read_results(folder)
