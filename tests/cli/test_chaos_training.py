"""`kill -9` of what a training runs in: an EnvRunner, a Learner, the trial itself (minutes: `pytest -m slow`)."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.cli.chaos_table import stages_of
from tests.cli.command import start_rllib, succeeds
from tests.cli.faults import actor, below, require_finished, require_gone, rows, shown, wait_for_iteration, wait_until
from tests.cli.small_pipeline import ENV, KITCHEN, TINY
from tests.cli.test_resume import write as write_sweep

pytestmark = pytest.mark.slow
HERE = "cli/test_chaos_training.py"
ITERATIONS = 8


def file_of(stage: str, **config: Any) -> dict[str, Any]:
    """A file in which a stage trains, with what it needs."""
    stop = {"training_iteration": ITERATIONS}
    if stage == "verco":
        settings = {"env_config": ENV, "messages": "constant", **TINY, **config}
        return {"verco": {"run": "Verco", "env": KITCHEN, "stop": stop, "config": settings}}
    labels = {"env_config": ENV, "policy": "random", "num_envs": 2, "target_labels": 40}
    return {
        "labels": {"run": "collect_labels", "env": KITCHEN, "config": labels},
        stage: {"run": "MessageSFT", "stop": stop, "config": {"input_": "${labels}", "judge_prompts": 2, **config}},
    }


def start(folder: Path, stage: str, **config: Any) -> tuple[list[str], subprocess.Popen[str]]:
    """Starts the file and waits until three iterations of the stage are done: checkpoints are of even ones."""
    (folder / "small.json").write_text(json.dumps(file_of(stage, **config)))
    command = ["train", "file", "small.json", "--ray-num-cpus", "6"]
    running = start_rllib(*command, cwd=folder)
    wait_for_iteration(running, 3)
    return command, running


def end(running: subprocess.Popen[str], started: list[psutil.Process]) -> tuple[int, str]:
    """Waits until the command ends and nothing of it is left; its exit status and what it has said."""
    said, _ = running.communicate(timeout=240)
    require_gone(started)
    return running.returncode, said


def fails(running: subprocess.Popen[str], killed: psutil.Process, started: list[psutil.Process]) -> None:
    """Kills a process below the command, which ends with a sentence."""
    killed.kill()
    status, said = end(running, started)
    assert status == 1 and "Traceback" not in said and "bug" not in said, said


def goes_on(command: list[str], folder: Path, stage: str) -> None:
    done = succeeds(*command, cwd=folder)
    assert shown(done.stdout)[0] >= 3, done.stdout  # the checkpoint of iteration 2 was not lost
    require_finished(folder / "results")
    assert rows(folder / f"results/small/{stage}/trial_0") == list(range(1, ITERATIONS + 1))


@pytest.mark.parametrize("stage", stages_of(f"{HERE}::test_a_killed_env_runner"))
def test_a_killed_env_runner(stage, tmp_path):
    """RLlib starts another one; the command needs not be typed again."""
    command, running = start(tmp_path, stage, num_env_runners=1)
    runner = actor(running, "EnvRunner")
    started = below(running)
    runner.kill()
    status, said = end(running, started)
    assert status == 0, said
    require_finished(tmp_path / "results")
    assert rows(tmp_path / f"results/small/{stage}/trial_0") == list(range(1, ITERATIONS + 1))


@pytest.mark.parametrize("stage", stages_of(f"{HERE}::test_a_killed_learner"))
def test_a_killed_learner(stage, tmp_path):
    command, running = start(tmp_path, stage, num_learners=1)
    started = below(running)
    fails(running, actor(running, "_WrappedExecutable"), started)
    goes_on(command, tmp_path, stage)


@pytest.mark.parametrize("stage", stages_of(f"{HERE}::test_a_killed_trial"))
def test_a_killed_trial(stage, tmp_path):
    command, running = start(tmp_path, stage)
    started = below(running)
    fails(running, actor(running, {"verco": "Verco", "message_sft": "MessageSFT"}[stage]), started)
    goes_on(command, tmp_path, stage)


@pytest.mark.parametrize("stage", stages_of(f"{HERE}::test_a_killed_trial_of_a_sweep"))
def test_a_killed_trial_of_a_sweep(stage, tmp_path):
    """The other trial runs to its end; only the killed one goes on."""
    write_sweep(tmp_path, 40, {"grid_search": [0, 1]})
    command = ["train", "file", "tiny.json", "--ray-num-cpus", "2"]
    running = start_rllib(*command, cwd=tmp_path)
    folder = tmp_path / "results/tiny/cartpole"
    first = folder / "trial_0_seed=0"
    wait_until(lambda: (first / "result.json").exists() and len(rows(first)) >= 5 or running.poll() is not None)
    started = below(running)
    fails(running, actor(running, "PPO"), started)
    ended = [trial for trial in sorted(folder.glob("trial_*")) if len(rows(trial)) == 40]
    assert len(ended) == 1
    succeeds(*command, cwd=tmp_path)
    require_finished(tmp_path / "results")
    assert [rows(trial) for trial in sorted(folder.glob("trial_*"))] == [list(range(1, 41))] * 2
