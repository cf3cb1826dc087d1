"""The page about QMIX for a game of one's own: its files are what runs here."""

import json

import pytest

from tests import forked
from tests.cli.command import succeeds
from tests.extend.test_templates import templates


@pytest.fixture
def mine(tmp_path):
    """A user's folder with the page's files."""
    for name in ("two_step.py", "two_step_qmix.yaml", "act.py"):
        (tmp_path / name).write_text(templates()[name])
    return tmp_path


def test_qmix_trains_a_game_from_outside_by_its_name(mine):
    stop = json.dumps({"num_env_steps_sampled_lifetime": 40})
    config = json.dumps({"train_batch_size_per_learner": 4, "width": 8, "min_sample_timesteps_per_iteration": 40})
    options = ["--import", "two_step", "--stop", stop, "--config", config, "--checkpoint-at-end", "--storage-path", "."]
    succeeds("train", "--run", "QMIX", "--env", "mine/two_step-v0", *options, cwd=mine)
    checkpoint = max(mine.glob("**/checkpoint_*"))
    played = forked.run("act.py", str(checkpoint), cwd=mine)
    assert float(played.stdout) in (0, 1, 7, 8), played.stderr
    shown = succeeds("replay", str(checkpoint), "--import", "two_step", "--episodes", "1", cwd=mine)
    assert list(mine.glob("**/*.html")), shown.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("run", "greedy"), [("QMIX", 8.0), ("VDN", 7.0)])
def test_the_pages_file_solves_it(mine, run, greedy):
    file = mine / "two_step_qmix.yaml"
    file.write_text(file.read_text().replace("run: QMIX", f"run: {run}"))
    succeeds("train", "file", file.name, "--import", "two_step", "--storage-path", ".", cwd=mine, timeout=550)
    (found,) = mine.glob("**/evaluation.json")
    text = json.dumps(json.loads(found.read_text()))
    assert f'"return_mean": {greedy}' in text, text
