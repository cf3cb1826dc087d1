"""Every example script runs to its end in its smoke form, as a user would start it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples"
SAYS = {
    "adapters_in_plain_peft": "load_policy says:",
    "own_teacher": "labels of",
    "own_text_environment": "12 checks passed",
    "pieces_in_own_ppo": " 2 ",
    "tune_pbt": "times a trial took over another one's checkpoint",
    "tune_sweep": "seed 1  temperature 1.5",
}


def test_all_examples_are_here():
    assert {path.stem for path in FOLDER.glob("*.py") if not path.stem.startswith("_")} == set(SAYS)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", SAYS)
def test_smoke(name, tmp_path):
    done = subprocess.run(
        [sys.executable, str(FOLDER / f"{name}.py"), "--smoke"],
        cwd=tmp_path, capture_output=True, text=True, timeout=280, check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert SAYS[name] in done.stdout


def test_plain_peft_says_the_same(tmp_path):
    """The figures that `adapters_in_plain_peft` prints side by side agree."""
    done = subprocess.run(
        [sys.executable, str(FOLDER / "adapters_in_plain_peft.py"), "--smoke"],
        cwd=tmp_path, capture_output=True, text=True, timeout=280, check=True,
    )  # fmt: skip
    said = [
        line.split(":", 1)[1].strip() for line in done.stdout.splitlines() if " says: " in line and "bob" not in line
    ]
    assert said[0] == said[1]
    pairs = [line.split("PEFT")[1].split("load_policy") for line in done.stdout.splitlines() if line.startswith("  ")]
    assert len(pairs) > 2
    for by_peft, own in pairs:
        assert float(by_peft) == pytest.approx(float(own), abs=1e-4)
