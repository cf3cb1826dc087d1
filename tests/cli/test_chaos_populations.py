"""`kill -9` of a population's training and of a run of one member (minutes: `pytest -m slow`)."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import psutil
import pytest

from tests.cli.command import start_rllib, succeeds
from tests.cli.faults import actor, below, require_finished, require_gone, rows, shown, wait_for_iteration, wait_until

pytestmark = pytest.mark.slow
ITERATIONS = {"PBT": 6, "COLE": 6, "FCP": 8}
SMALL = {
    "env_config": {"layout": "cramped_room", "horizon": 20}, "hiddens": [8], "num_envs_per_env_runner": 4,
    "train_batch_size_per_learner": 400, "minibatch_size": 100, "num_epochs": 1,
}  # fmt: skip
OWN = {
    "PBT": {"size": 3, "run_batches": 2, "selection_games": 2, "members_at_once": 1},
    "COLE": {"initial_size": 1, "run_batches": 3, "runs_per_generation": 2, "member_games": 1},
    "FCP": {"population_size": 2, "member_iterations": 3, "iterations_per_task": 1, "members_at_once": 1},
}
COMMAND = ["train", "file", "small.json", "--ray-num-cpus", "4"]


def start(folder: Path, name: str) -> tuple[subprocess.Popen[str], list[psutil.Process]]:
    """Starts the training and waits until three iterations are done; the checkpoint of the second is in the middle."""
    stop = {"training_iteration": ITERATIONS[name]}
    stage = {"run": name, "env": "rllib_llm_comm/overcooked_ai-v0", "stop": stop, "config": {**SMALL, **OWN[name]}}
    if name == "FCP":  # no checkpoint is due for long, but the end of a part asks for one
        stage["checkpoint_config"] = {"checkpoint_frequency": 100, "checkpoint_at_end": True}
    (folder / "small.json").write_text(json.dumps({"population": stage}))
    running = start_rllib(*COMMAND, cwd=folder)
    wait_for_iteration(running, 3)
    trial = folder / "results/small/population/trial_0"
    wait_until(lambda: list(trial.glob("checkpoint_*")) or running.poll() is not None, seconds=400)
    return running, below(running)


@pytest.mark.parametrize("name", list(OWN))
def test_a_killed_trial_goes_on_in_the_middle_of_a_generation(name, tmp_path):
    running, started = start(tmp_path, name)
    actor(running, name).kill()
    said, _ = running.communicate(timeout=480)
    require_gone(started)
    assert running.returncode == 1 and "Traceback" not in said and "bug" not in said, said
    done = succeeds(*COMMAND, cwd=tmp_path, timeout=480)
    assert shown(done.stdout)[0] >= 3, done.stdout
    require_finished(tmp_path / "results")
    trial = tmp_path / "results/small/population/trial_0"
    iterations = ITERATIONS[name]
    assert rows(trial) == list(range(1, iterations + 1))
    whole = json.loads((trial / "result.json").read_text().splitlines()[-1])
    last = whole["population"]
    if name == "PBT":
        assert last["iterations"] == iterations // 3
        # Each round has 3 runs of 800 steps, each iteration 9 games of 20 steps.
        assert last["game_steps"] == iterations * 2400 + iterations // 3 * 180
    elif name == "COLE":
        assert (last["generation"], last["members"]) == (1, 2), "a run with itself of three batches, then one of two"
        # Batches of 320 steps; a game of the first member, then of three pairs.
        assert last["game_steps"] == iterations * 320 + 4 * 20
    else:
        assert (last["members_done"], last["member_iterations"]) == (2, 6), "killed behind the third of six parts"
        # Batches of 200 game steps of a member, and of 400 of the learner, which has the last two iterations.
        assert whole["game_steps_with_population"] == 6 * 200 + 2 * 400


@pytest.mark.parametrize(("name", "task"), [("PBT", "run_member"), ("FCP", "train_part")])
def test_a_killed_run_of_a_member_is_done_again(name, task, tmp_path):
    """Ray starts the task again; the command goes on by itself."""
    running, started = start(tmp_path, name)
    actor(running, task).kill()
    said, _ = running.communicate(timeout=480)
    require_gone(started)
    assert running.returncode == 0, said
    require_finished(tmp_path / "results")
    assert rows(tmp_path / "results/small/population/trial_0") == list(range(1, ITERATIONS[name] + 1))
