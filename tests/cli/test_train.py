"""Training through the real command and a real Ray: tables, sweeps, errors inside a trial, `kill -9` and ctrl-C."""

from __future__ import annotations

import json
import signal

from tests.cli.command import rllib, start_rllib

TINY = {"num_env_runners": 0, "num_epochs": 1, "train_batch_size_per_learner": 64, "minibatch_size": 64}


def write(folder, stop, config, name="tiny.json"):
    spec = {"cartpole": {"run": "PPO", "env": "CartPole-v1", "stop": stop, "config": {**TINY, **config}}}
    (folder / name).write_text(json.dumps(spec))


def iterations(folder):
    lines = (folder / "results/tiny/cartpole/trial_0/result.json").read_text().splitlines()
    return [json.loads(line)["training_iteration"] for line in lines]


def test_killed_run_continues_and_finished_one_is_skipped(tmp_path):
    write(tmp_path, {"training_iteration": 60}, {"seed": 1})
    command = ["train", "file", "tiny.json", "--ray-num-cpus", "2"]
    running = start_rllib(*command, cwd=tmp_path)
    for line in running.stdout:
        if line.split()[:1] == ["40"]:
            running.send_signal(signal.SIGKILL)
            break
    running.wait()
    assert json.loads((tmp_path / "results/tiny/cartpole/stage.json").read_text())["status"] == "running"

    done = rllib(*command, cwd=tmp_path)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert "Continuing where the last call stopped." in done.stdout
    assert "Everything lies here" in done.stdout and "results/tiny/cartpole/trial_0/checkpoint_" in done.stdout
    rows = [line.split()[0] for line in done.stdout.splitlines() if line[:7].strip().isdigit()]
    assert 1 < int(rows[0]) <= 41 and rows[-1] == "60"
    seen = iterations(tmp_path)
    assert seen[0] == 1 and seen[-1] == 60 and set(seen) == set(range(1, 61))

    skipped = rllib(*command, cwd=tmp_path)
    assert skipped.returncode == 0 and "already there, skipped" in skipped.stdout


def test_sweep_over_a_grid(tmp_path):
    write(tmp_path, {"training_iteration": 2}, {"seed": {"grid_search": [0, 1]}})
    done = rllib("train", "file", "tiny.json", "--ray-num-cpus", "2", cwd=tmp_path)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    folder = tmp_path / "results/tiny/cartpole"
    record = json.loads((folder / "stage.json").read_text())
    assert len(record["outputs"]) == 2 and all((folder / path).is_dir() for path in record["outputs"])
    assert sorted(path.name for path in folder.glob("trial_*")) == ["trial_0_seed=0", "trial_1_seed=1"]


def test_ctrl_c_keeps_what_is_done(tmp_path):
    write(tmp_path, {"training_iteration": 100_000}, {})
    running = start_rllib("train", "file", "tiny.json", cwd=tmp_path)
    said = []
    for line in running.stdout:
        said.append(line)
        if line.split()[:1] == ["3"]:
            running.send_signal(signal.SIGINT)
    assert running.wait(timeout=120) == 130
    assert said[-1] == "Stopped. What is done so far is kept; type the same command to continue.\n"
    assert not any("Traceback" in line for line in said)


FAILING = """
import gymnasium as gym
import numpy as np
from ray.rllib.algorithms.ppo import PPOConfig
from rllib_llm_comm.errors import UserError


class Sulky(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, config=None):
        self.steps = 0

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.steps += 1
        if self.steps == 80:
            raise UserError("`mood` is 'bad' but must be good; cheer up.")
        return np.zeros(1, np.float32), 1.0, self.steps % 10 == 0, False, {}


config = PPOConfig().environment(Sulky).env_runners(num_env_runners=0)
config.training(train_batch_size_per_learner=64, minibatch_size=64, num_epochs=1)
stop = {"training_iteration": 5}
"""


def test_python_file_and_an_error_inside_a_trial(tmp_path):
    (tmp_path / "sulky.py").write_text(FAILING)
    done = rllib("train", "file", "sulky.py", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr == "Error: In `sulky`: `mood` is 'bad' but must be good; cheer up.\n"
    assert "decisions" in done.stdout  # the first iteration was still shown
