"""Learning curves: all checkpoints that a run kept are played, each with its iteration, and reported row by row."""

from __future__ import annotations

import json
import shutil

import pytest

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.experiments.evaluation_run import kept_checkpoints
from rllib_llm_comm.policies.find_checkpoint import shipped_policy
from tests.experiments.staged import run


def trial(folder, iterations):
    """A run's folder with a shipped policy as each of its checkpoints."""
    for number, iteration in enumerate(iterations):
        policy = folder / f"checkpoint_{number:06d}" / "policy"
        shutil.copytree(shipped_policy("zoo:told_salad"), policy)
        manifest = json.loads((policy / "policy.json").read_text())
        manifest["provenance"] = {"training_iteration": iteration}
        (policy / "policy.json").write_text(json.dumps(manifest))
    return folder


def test_each_kept_checkpoint_is_played_and_reported_with_its_iteration(tmp_path):
    checkpoint = trial(tmp_path / "trial_0", [4, 8]) / "checkpoint_000001"
    config = {"checkpoint": str(checkpoint), "episodes": 1, "curve": True, "env_config": {"max_game_steps": 8}}
    specs = {
        "curve": {"run": "evaluate", "config": config},
        "report": {"run": "sama_report", "config": {"of": ["${curve}"]}},
    }
    run(specs, tmp_path / "out", "file")
    rows = json.loads((tmp_path / "out/file/curve/evaluation.json").read_text())["checkpoints"]
    assert [row["training_iteration"] for row in rows] == [4, 8] and all(row["episodes"] == 1 for row in rows)
    report = json.loads((tmp_path / "out/file/report/report.json").read_text())
    assert [row["name"] for row in report["evaluations"]] == ["curve, iteration 4", "curve, iteration 8"]
    assert [row["episodes"] for row in report["evaluations"]] == [1, 1]
    seconds = [f"{row['seconds_per_game']:.4g}" for row in rows]
    assert [row["seconds_per_game"] for row in report["evaluations"]] == seconds
    page = (tmp_path / "out/file/report/report.html").read_text()
    assert "<th>Seconds per game</th>" in page and all(f"<td>{one}</td>" in page for one in seconds)


def test_one_checkpoint_is_no_curve(tmp_path):
    folder = trial(tmp_path / "trial_0", [4])
    with pytest.raises(UserError, match="`curve` is true but .* holds 1 checkpoints; train with") as caught:
        kept_checkpoints(folder / "checkpoint_000000")
    assert "\n" not in str(caught.value)
