"""The table of `rllib evaluate` in a narrow terminal; learning curves of all checkpoints that a run kept."""

from __future__ import annotations

import json
import shutil

import pytest
from rich.console import Console

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.experiments.evaluation_run import kept_checkpoints, print_figures
from rllib_llm_comm.policies.find_checkpoint import shipped_policy
from tests.experiments.staged import run

MANY = {f"figure_number_{k}": float(k) for k in range(15)}


def row(name, **metrics):
    return {"checkpoint": name, "return_mean": 1.25, "episodes": 50, "metrics": metrics}


@pytest.fixture
def printed(monkeypatch):
    def show(*rows):
        console = Console(width=80, record=True)
        monkeypatch.setattr("rllib_llm_comm.experiments.console.out", console)
        print_figures(rows)
        return console.export_text()

    return show


def test_few_figures_stand_in_a_line(printed):
    text = printed(row("a", score=3.0))
    assert any("mean" in line and "score" in line for line in text.splitlines())


def test_no_column_is_cut_off(printed):
    for count in range(3, 15):
        text = printed(row("a", **{f"figure {k}": 1000.0 + k for k in range(count)}))
        assert all(str(1000 + k) in text for k in range(count)), count
        assert len({len(line) for line in text.splitlines()}) == 1


def test_a_long_table_is_not_turned(printed):
    rows = [row(f"checkpoint_{k}", **{f"figure {n}": 1000.0 for n in range(9)}) for k in range(12)]
    assert sum(line.count("1000") == 9 for line in printed(*rows).splitlines()) == 12


@pytest.mark.parametrize("names", [["a"], ["runs/x/trial_0_lr=0.1", "runs/x/trial_1_lr=0.2"]])
def test_many_figures_stand_below_each_other(names, printed):
    text = printed(*(row(name, **MANY) for name in names))
    assert "…" not in text
    for k in range(15):
        line = next(line for line in text.splitlines() if f"figure number {k} " in line)
        assert line.count(f" {k} ") == len(names) + 1
    assert all(name.rsplit("_", 1)[-1] in text for name in names[1:])


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
    report = {"run": "sama_report", "config": {"of": ["${curve}"]}}
    run({"curve": {"run": "evaluate", "config": config}, "report": report}, tmp_path / "out", "file")
    rows = json.loads((tmp_path / "out/file/curve/evaluation.json").read_text())["checkpoints"]
    assert [row["training_iteration"] for row in rows] == [4, 8] and all(row["episodes"] == 1 for row in rows)
    report = json.loads((tmp_path / "out/file/report/report.json").read_text())
    seconds = [f"{row['seconds_per_game']:.4g}" for row in rows]
    told = [(row["name"], row["episodes"], row["seconds_per_game"]) for row in report["evaluations"]]
    assert told == [("curve, iteration 4", 1, seconds[0]), ("curve, iteration 8", 1, seconds[1])]
    page = (tmp_path / "out/file/report/report.html").read_text()
    assert "<th>Seconds per game</th>" in page and all(f"<td>{one}</td>" in page for one in seconds)


def test_one_checkpoint_is_no_curve(tmp_path):
    folder = trial(tmp_path / "trial_0", [4])
    with pytest.raises(UserError, match="`curve` is true but .* holds 1 checkpoints"):
        kept_checkpoints(folder / "checkpoint_000000")
