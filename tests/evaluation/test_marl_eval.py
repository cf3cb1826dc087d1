"""Studies as files of marl-eval."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from rllib_llm_comm.errors import UserError
from rllib_llm_comm.evaluation.marl_eval import to_marl_eval
from rllib_llm_comm.evaluation.study_results import StudyResults, SystemResults, read_results

RESULTS = Path(__file__).parents[2] / "docs" / "results"


def test_every_run_has_the_same_steps_and_its_own_figures():
    results = read_results(RESULTS / "study_map_a_all_three")
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


def test_systems_of_some_scenarios_only_are_left_out_and_named():
    results = read_results(RESULTS / "study_map_a_all_three")
    systems = results.scenarios["A_all_three"]
    one = {name: system for name, system in systems.items() if name != "twosome"}
    both = StudyResults(results.study, {"here": systems, "there": one}, [])
    document, left_out = to_marl_eval(both)
    assert left_out == ["twosome"]
    assert all("twosome" not in task for task in document["overcooked_text-v0"].values())


def test_a_study_without_curves_is_refused():
    results = read_results(RESULTS / "study_map_a_all_three")
    bare = {name: SystemResults(name, system.label) for name, system in results.scenarios["A_all_three"].items()}
    with pytest.raises(UserError, match="let the study end first"):
        to_marl_eval(dataclasses.replace(results, scenarios={"A_all_three": bare}))
