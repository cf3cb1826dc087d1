"""Every benchmark runs and writes rows of the promised form."""

import json
from pathlib import Path

import pytest
import torch

from tests import forked

FOLDER = Path(__file__).parents[2] / "benchmarks"
QUICK = [
    "games", "onion_soup", "trunk", "floor", "minirts_compilation", "minirts_observations", "officers", "questions",
]  # fmt: skip
SLOW = [
    "gpu", "overhead", "main_job", "value_decomposition", "base_memory", "scoring", "asking_ahead", "update", "engine",
    "merged_weights", "env_runners", "phases", "messages", "partners", "zero_columns", "followers", "studies",
    "mixed_batch",
]  # fmt: skip
KEYS = {"name", "ours", "reference", "unit", "ratio", "goal", "met", "settings"}


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_command(name, tmp_path):
    target = tmp_path / "rows.json"
    environment = {**forked.environment(), "HF_HUB_OFFLINE": "1", "RAY_USAGE_STATS_ENABLED": "0"}
    script = FOLDER / f"{name}.py"
    done = forked.run(script, "--smoke", "--json", str(target), cwd=tmp_path, env=environment, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    rows = json.loads(target.read_text())
    assert rows and all(set(row) == KEYS and row["name"].startswith(name) for row in rows)


def test_the_7b_benchmark_says_why_it_measures_nothing(tmp_path):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    done = forked.run(FOLDER / "gpu.py", cwd=tmp_path)
    assert done.returncode == 0 and "no GPU" in done.stdout


def test_a_part_that_fails_on_a_gpu_keeps_its_rows_and_who_differs_is_not_timed(tmp_path):
    script = tmp_path / "parts.py"
    script.write_text(
        f"import sys\nsys.path.insert(0, {str(FOLDER)!r})\nimport gpu, torch\n"
        "def fails():\n    yield 'row'\n    raise ValueError('no such kernel')\n"
        "def full():\n    yield 'row'\n    raise torch.cuda.OutOfMemoryError()\n"
        "known = torch.tensor([-20.0, -31.0])\n"
        "gpu.require_agreement('near', known + 0.5, known)\n"
        "def party(theirs):\n    gpu.require_agreement('other', theirs, known)\n    yield 'row'\n"
        "for theirs in (known - 5.0, known * torch.nan):\n"
        "    print(gpu._rows_of('part', 'cpu', lambda: party(theirs), False))\n"
        "print([gpu._rows_of('part', 'cpu', one, False) for one in (fails, full, lambda: ['other'])])\n"
    )
    done = forked.run(script, cwd=tmp_path)
    assert done.returncode == 0 and "part failed" in done.stdout and "does not fit" in done.stdout, done.stderr
    assert "no such kernel" in done.stderr
    assert done.stdout.count("([], False)") == done.stderr.count("other is not timed") == 2
    assert done.stdout.splitlines()[-1] == "[(['row'], False), (['row'], False), (['other'], True)]"
