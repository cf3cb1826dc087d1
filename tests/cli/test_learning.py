"""The main job reaches what README says, from nothing (minutes: `python -m pytest -m slow`)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.command import succeeds

FILE = Path(__file__).parents[2] / "tuned_examples" / "verco.yaml"


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_main_job_learns(seed, tmp_path):
    succeeds("train", "file", str(FILE), "--seed", str(seed), cwd=tmp_path, timeout=1700)
    learned = json.loads((tmp_path / "results/verco/message_sft/stage.json").read_text())["summary"]
    assert learned["same request"] >= 0.8
    figures = json.loads((tmp_path / "results/verco/evaluation/evaluation.json").read_text())
    assert figures["episodes"] == 50 and figures["sampled"]
    assert figures["return_mean"] >= 1.0
    assert (tmp_path / "results/verco/replay/replay.html").stat().st_size > 50_000
