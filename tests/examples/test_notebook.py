"""`examples/quickstart.ipynb` runs from its first cell to its last, and shows the replay in itself."""

from __future__ import annotations

import html
import json
import os
import re
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[2] / "examples/quickstart.ipynb"


SHORT = """
stages["message_sft"].stop["training_iteration"] = 1
stages["verco"].stop["decisions"] = 64
stages["verco"].config.update(train_batch_size_per_learner=64, minibatch_size=64, num_epochs=1)
"""
TRAINS, EPISODES = "run_experiments(replace(", "episodes=50"


def run(folder, monkeypatch, short=False):
    """All texts that the notebook printed in a run in a folder, and what it showed; trained for a moment if `short`."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    if short:
        (trains,) = (cell for cell in notebook.cells if TRAINS in cell.source)
        (judges,) = (cell for cell in notebook.cells if EPISODES in cell.source)
        trains.source = trains.source.replace(TRAINS, SHORT + TRAINS)
        judges.source = judges.source.replace(EPISODES, "episodes=4")
    place = {"metadata": {"path": str(folder)}}
    nbclient.NotebookClient(notebook, timeout=540, kernel_name="python3", resources=place).execute(env=dict(os.environ))
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    printed = "".join(output["text"] for output in outputs if output["output_type"] == "stream")
    return printed, [output["data"].get("text/html", "") for output in outputs if "data" in output]


def returns(printed):
    """Messages -> return, as the notebook says."""
    return {name.strip(): float(value) for name, value in re.findall(r"^(.{10}) return +(-?[\d.]+),", printed, re.M)}


def test_it_is_small_and_has_no_outputs():
    told = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    codes = [cell for cell in told["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in codes)
    assert NOTEBOOK.stat().st_size < 10_000 and "%pip install" in "".join(codes[0]["source"])


@pytest.mark.timeout(580)
def test_a_short_form_runs(tmp_path, monkeypatch):
    printed, shown = run(tmp_path, monkeypatch, short=True)
    assert list(returns(printed)) == ["their own", "other_fact", "none"]
    (frame,) = [text for text in shown if "<iframe srcdoc=" in text]
    assert html.escape((tmp_path / "quickstart.html").read_text(encoding="utf-8")) in frame
    assert "alice says" in printed


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_as_it_stands_they_learn_to_talk(tmp_path, monkeypatch):
    printed, _ = run(tmp_path, monkeypatch)
    found = returns(printed)
    assert found["their own"] > 0.8 > 0.3 > max(found["other_fact"], found["none"])
