"""Studies as files of marl-eval."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rllib_llm_comm.cli.main import cli
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.evaluation.report import to_marl_eval
from rllib_llm_comm.evaluation.study_results import StudyResults, SystemResults, read_results, to_plain


@pytest.fixture(scope="module")
def results():
    return read_results(Path(__file__).parents[2] / "docs/results/study_map_a_all_three")


def test_every_run_has_the_same_steps_and_its_own_figures(results):
    document, left_out = to_marl_eval(results)
    assert left_out == []
    (tasks,) = document.values()
    assert list(tasks) == list(results.scenarios)
    steps = {tuple(run) for systems in tasks.values() for runs in systems.values() for run in runs.values()}
    assert len(steps) == 1 and len(next(iter(steps))) > 10
    verco = results.scenarios["A_all_three"]["verco"]
    for curve, told in zip(verco.curves, verco.evaluations["sampled"], strict=True):
        run = tasks["A_all_three"]["verco"][f"seed_{curve.seed}"]
        assert run["absolute_metrics"]["return"] == [told["return_mean"]]
        last = list(run.values())[-2]  # the absolute metrics come last
        index = curve.decisions.index(last["step_count"])
        assert last["return"] == [curve.values["return"][index]]


def test_systems_of_some_scenarios_only_are_left_out_and_named(results):
    systems = results.scenarios["A_all_three"]
    one = {name: system for name, system in systems.items() if name != "twosome"}
    both = StudyResults(results.study, {"here": systems, "there": one}, [])
    document, left_out = to_marl_eval(both)
    assert left_out == ["twosome"]
    assert all("twosome" not in task for task in document["overcooked_text-v0"].values())


def test_a_study_without_curves_is_refused(results):
    bare = {name: SystemResults(name, system.label) for name, system in results.scenarios["A_all_three"].items()}
    with pytest.raises(UserError, match="let the study end first"):
        to_marl_eval(dataclasses.replace(results, scenarios={"A_all_three": bare}))


def test_the_command_writes_the_file_or_tells_why_not(results, tmp_path, monkeypatch):
    whole = results.scenarios["A_all_three"]
    study = {**results.study, "systems": {name: results.study["systems"][name] for name in ("none", "verco")}}
    two = StudyResults(study, {"A_all_three": {name: whole[name] for name in ("none", "verco")}}, [])
    (tmp_path / "results.json").write_text(json.dumps(to_plain(two)))
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli, ["report", ".", "--out", "page", "--marl-eval", "there/study.json"])
    assert "there/study.json" in done.output, done.exception
    assert json.loads((tmp_path / "there" / "study.json").read_text()) == to_marl_eval(two)[0]
    (tmp_path / "file").write_text("")
    refused = CliRunner().invoke(cli, ["report", ".", "--out", "other", "--marl-eval", "file/study.json"])
    assert isinstance(refused.exception, UserError) and "`--marl-eval`: file/study.json" in str(refused.exception)
    assert not (tmp_path / "other").exists()
