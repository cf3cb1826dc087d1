"""`examples/quickstart.ipynb` runs from its first cell to its last, and shows the replay in itself."""

import html
import json
import re
from pathlib import Path

import pytest

from tests import forked

NOTEBOOK = Path(__file__).parents[2] / "examples/quickstart.ipynb"
CELLS = [cell for cell in json.loads(NOTEBOOK.read_text("utf-8"))["cells"] if cell["cell_type"] == "code"]
SHORT = """
stages["message_sft"].stop["training_iteration"] = 1
stages["verco"].stop["decisions"] = 64
stages["verco"].config.update(train_batch_size_per_learner=64, minibatch_size=64, num_epochs=1)
"""
TRAINS, EPISODES = "run_experiments(replace(", "episodes=50"


def run(folder, short=False):
    """All texts that the notebook printed in a kernel in a folder, and what it showed; trained briefly if `short`."""
    pytest.importorskip("ipykernel")
    from jupyter_client import BlockingKernelClient
    from jupyter_client.connect import write_connection_file

    sources = ["".join(cell["source"]) for cell in CELLS]
    if short:
        assert sum(TRAINS in one for one in sources) == sum(EPISODES in one for one in sources) == 1
        sources = [one.replace(TRAINS, SHORT + TRAINS).replace(EPISODES, "episodes=4") for one in sources]
    file, _ = write_connection_file(str(folder / "kernel.json"))
    command, log = ["ipykernel_launcher", "-f", file], folder / "log"
    kernel, client = forked.spawn(command, folder, forked.environment(), log, log), BlockingKernelClient()
    client.load_connection_file(file)
    client.start_channels(hb=False)  # a kernel that is slow to answer is not dead
    client.wait_for_ready(60)
    told = []
    for source in sources:
        reply = client.execute_interactive(source, allow_stdin=False, timeout=540, output_hook=told.append)
        assert reply["content"]["status"] == "ok", reply["content"]
    client.shutdown()
    kernel.join(60)
    client.stop_channels()
    printed = "".join(one["content"]["text"] for one in told if one["msg_type"] == "stream")
    return printed, [one["content"]["data"].get("text/html", "") for one in told if "data" in one["content"]]


def returns(printed):
    """Messages -> return, as the notebook says."""
    return {name.strip(): float(value) for name, value in re.findall(r"^(.{10}) return +(-?[\d.]+),", printed, re.M)}


def test_it_is_small_and_has_no_outputs():
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in CELLS)
    assert NOTEBOOK.stat().st_size < 10_000 and "%pip install" in "".join(CELLS[0]["source"])


@pytest.mark.timeout(580)
def test_a_short_form_runs(tmp_path):
    printed, shown = run(tmp_path, short=True)
    assert list(returns(printed)) == ["their own", "other_fact", "none"]
    (frame,) = [text for text in shown if "<iframe srcdoc=" in text]
    assert html.escape((tmp_path / "quickstart.html").read_text(encoding="utf-8")) in frame
    assert "alice says" in printed


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_as_it_stands_they_learn_to_talk(tmp_path):
    printed, _ = run(tmp_path)
    found = returns(printed)
    assert found["their own"] > 0.8 > 0.3 > max(found["other_fact"], found["none"])
