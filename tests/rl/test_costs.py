"""What a run took, from torch's own counters to the report: GPU memory, tokens, decisions, seconds."""

from __future__ import annotations

import json

import pytest
import torch
from ray.rllib.utils.metrics.metrics_logger import MetricsLogger

from rllib_llm_comm.core.phases import GPU_MEMORY, TOKENS, gpu_memory_gb, log_cost, phase
from rllib_llm_comm.evaluation.report import write_report
from rllib_llm_comm.evaluation.study_results import read_curve, read_results
from rllib_llm_comm.experiments.evaluation_run import print_figures
from rllib_llm_comm.rl.callbacks import add_cost

STUDY = {
    "title": "Cost", "env": "x/y-v0", "scenarios": {"one": {}}, "seeds": [0],
    "systems": {name: {"label": name, "interventions": [], "config": {}} for name in ("gpu", "cpu")},
    "evaluation": {"episodes": 2, "seed": 0, "modes": ["sampled"], "communication": False},
}  # fmt: skip
PLAYED = {
    "return_mean": 1.0, "success_rate": 1.0, "length_mean": 9.0, "collisions_mean": 0.0, "message_words_mean": 0.0,
    "vocabulary": 0, "common_messages": [], "metrics": {}, "episodes": 2,
}  # fmt: skip


@pytest.fixture
def gpu(monkeypatch):
    """A GPU of which this process has held 2.5 GB."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 2_500_000_000)


def logged():
    logger = MetricsLogger(root=True)
    phase.take_tokens()
    phase.count_tokens(70)
    log_cost(logger)
    return logger.reduce()


@pytest.mark.usefixtures("gpu")
def test_the_peak_of_gpu_memory_is_logged_and_the_largest_of_all_processes_told():
    assert gpu_memory_gb() == 2.5
    result = {"env_runners": logged(), "learners": {"__all_modules__": {GPU_MEMORY: 4.0, TOKENS: 30}}}
    add_cost(result)
    assert result[GPU_MEMORY] == 4.0 and result[TOKENS] == 100


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_nothing_is_said_of_its_memory():
    assert gpu_memory_gb() is None
    result = {"env_runners": logged()}
    add_cost(result)
    assert GPU_MEMORY not in result and result[TOKENS] == 70


def test_the_report_of_a_study_tells_what_a_run_took(tmp_path):
    (tmp_path / "study.json").write_text(json.dumps(STUDY))
    for name, memory in {"gpu": {"gpu_memory_gb": 2.5}, "cpu": {}}.items():
        trial = tmp_path / f"one.{name}" / "trial_0"
        trial.mkdir(parents=True)
        row = {"training_iteration": 1, "time_total_s": 90.0, "decisions": 4096, "tokens": 1_000_000, **memory}
        (trial / "result.json").write_text(json.dumps(row) + "\n")
        assert read_curve(trial / "result.json").cost.get("gpu_memory_gb") == memory.get("gpu_memory_gb")
        played = tmp_path / f"one.{name}.sampled"
        played.mkdir()
        (played / "evaluation.json").write_text(json.dumps(PLAYED))
    page = write_report(read_results(tmp_path), tmp_path / "report")
    systems = json.loads((page.parent / "report.json").read_text())["scenarios"]["one"]["systems"]
    whole = {"seconds": 90, "decisions": 4096, "tokens": 1_000_000}
    assert systems["gpu"]["took"] == {**whole, "gpu_memory_gb": 2.5} and systems["cpu"]["took"] == whole
    lines = (page.parent / "report.md").read_text().splitlines()
    assert "| gpu | 90 | 4,096 | 1,000,000 | 2.5 |" in lines and "| cpu | 90 | 4,096 | 1,000,000 | - |" in lines
    assert "<td>1,000,000</td><td>2.5</td>" in (page.parent / "report.html").read_text()


def test_the_table_of_evaluations_tells_what_playing_took(capsys):
    took = {"seconds": 3.25, "decisions": 80, "tokens": 12345}
    print_figures([{**PLAYED, "checkpoint": "a", "took": {**took, "gpu_memory_gb": 2.5}}])
    told = capsys.readouterr().out
    assert all(text in told for text in ("3.25", "80", "12345", "2.5", "GPU")), told
    print_figures([{**PLAYED, "checkpoint": "a", "took": took}])
    assert "GPU" not in capsys.readouterr().out
