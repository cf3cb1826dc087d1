"""Training from a Python file: what comes out of a real Ray where an error happens inside of a trial."""

from __future__ import annotations

from tests.cli.command import rllib

FAILING = """
import gymnasium as gym
import numpy as np
from ray.rllib.algorithms.ppo import PPOConfig
from rllib_llm_comm.core.errors import UserError


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
