"""The command itself, in a process of its own: answers, exit codes, one clear sentence for every mistake."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

import rllib_llm_comm
from rllib_llm_comm.experiments.packaged_examples import description, examples
from tests import toys
from tests.cli.command import rllib, succeeds

GOLDEN = Path(__file__).parents[1] / "data" / "overcooked_text_golden.jsonl.gz"
KITCHEN = "rllib_llm_comm/overcooked_text-v0"


def test_one_sentence_and_exit_code(tmp_path):
    spec = {"a": {"run": "Verco", "env": KITCHEN, "config": {"env_config": {"layout": "ful"}}}}
    (tmp_path / "file.json").write_text(json.dumps(spec))
    done = rllib("train", "file", "file.json", cwd=tmp_path)
    assert done.returncode == 1 and done.stdout == "" and done.stderr.count("\n") == 1
    assert done.stderr.startswith("Error: In `a.config.env_config`: `layout` is 'ful'")
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", "file", "nothing.yaml"], "no file 'nothing.yaml'"),
        (["train", "--env", "CartPole-v1"], "`--run` is missing"),
        (["evaluate", "nowhere"], "no checkpoint at 'nowhere'"),
        (["check", "env", "x-v0", "--import", "not_a_module"], "`--import` module 'not_a_module'"),
        (["check", "golden", "nothing.jsonl"], "nothing.jsonl"),
        (["example", "get", "vercoo"], "mean 'verco'"),
        (["example", "get", "verco", "--out", "/proc/here/a b"], "`--out`: nothing can be copied to '/proc/here/a b'"),
        (["example", "run", "verco", "--stage", "verko"], "mean 'verco'"),
        (["list", "planer"], "mean 'planners'"),
    ],
)
def test_wrong_arguments(tmp_path, arguments, words):
    done = rllib(*arguments, cwd=tmp_path)
    assert done.returncode == 1 and words in done.stderr
    assert done.stderr.startswith("Error: ") and done.stderr.count("\n") == 1


def test_unknown_option_is_a_usage_error(tmp_path):
    for command in (["train"], ["example", "run", "verco"]):
        done = rllib(*command, "--nonsense", cwd=tmp_path)
        assert done.returncode == 2 and "--nonsense" in done.stderr


def test_version_and_help(tmp_path):
    assert rllib_llm_comm.__version__ in rllib("--version", cwd=tmp_path).stdout
    text = rllib("train", "file", "--help", cwd=tmp_path).stdout
    assert "--checkpoint-freq" in text and "rllib train file verco.yaml" in text


def test_check_golden(tmp_path):
    good = succeeds("check", "golden", str(GOLDEN), cwd=tmp_path)
    assert "41 episodes" in good.stdout and " 0 mismatches" in good.stdout
    with gzip.open(GOLDEN, "rt") as lines:
        episode = json.loads(next(iter(lines)))
    episode["steps"][2]["obs"][0][0] += 0.5
    (tmp_path / "bad.jsonl").write_text(json.dumps(episode))
    bad = rllib("check", "golden", "bad.jsonl", cwd=tmp_path)
    assert bad.returncode == 1 and " 1 mismatches" in bad.stdout and "step 3" in bad.stdout


OWN_ENV = """
import functools
import gymnasium as gym
import numpy as np
import toys

class Mine(toys.ColourTalk):
    action_space = functools.cache(toys.ColourTalk.action_space)

    @functools.cache
    def observation_space(self, agent):
        seen = super().observation_space(agent)
        return gym.spaces.Dict({**seen, "vector": gym.spaces.Box(0, HIGH, (3,), np.float32)})

toys.make = Mine
toys.register()
"""


def test_check_env_of_a_user(tmp_path):
    (tmp_path / "good.py").write_text(OWN_ENV.replace("HIGH", "1"))
    good = succeeds("check", "env", toys.ENV_ID, "--import", "good", cwd=tmp_path, PYTHONPATH=toys.TESTS)
    assert " 0 failed" in good.stdout, good.stdout + good.stderr
    (tmp_path / "broken.py").write_text(OWN_ENV.replace("HIGH", "0.5"))
    bad = rllib("check", "env", toys.ENV_ID, "--import", "broken", cwd=tmp_path, PYTHONPATH=toys.TESTS)
    assert bad.returncode == 1 and "failed" in bad.stdout


def test_examples(tmp_path):
    listed = rllib("example", "list", cwd=tmp_path, columns=80).stdout
    for name in ("verco", "message_sft", "verco_seeds", "verco_llama7b"):
        assert name in listed
    # On 80 columns the description is whole, whatever its lines.
    words = " ".join(line.split("│")[2].strip() for line in listed.split("\n") if line.startswith("│"))
    assert "from nothing to a replay." in words and "…" not in listed
    sentences = [description(path) for path in examples().values()]
    assert all(sentence in words and sentence[-1] == "." for sentence in sentences), sentences
    assert rllib("example", "get", "verco", cwd=tmp_path).returncode == 0
    assert "collect_labels" in (tmp_path / "verco.yaml").read_text()
    again = rllib("example", "get", "verco", cwd=tmp_path)
    assert again.returncode == 1 and "exists already" in again.stderr


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("rllib_llm_comm.cli.main", {"ray", "torch", "numpy", "gymnasium", "pandas", "matplotlib"}),
        ("rllib_llm_comm.experiments.pipeline", {"ray", "torch", "pandas", "matplotlib"}),
    ],
)
def test_a_command_begins_without_what_it_does_not_need(module, heavy):
    told = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert not heavy & set(done.stdout.split())


def test_list_shows_what_settings_can_name(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from rllib_llm_comm.sama.planners import register_planner\n\n\n"
        'def lazy(**settings):\n    """Never plans. Not even then."""\n\n\nregister_planner(\'lazy\', lazy)\n'
    )
    planners = succeeds("list", "planners", "--import", "mine", cwd=tmp_path).stdout
    for name in ("scripted", "trained", "sama", "As `chat`, with the answers of a recording.", "lazy", "Never plans."):
        assert name in planners
    assert "Not even then" not in planners and "Verco" not in planners
    everything = succeeds("list", cwd=tmp_path).stdout
    games = ("rllib_llm_comm/door-v0", "rllib_llm_comm/minirts_planner-v0")
    for name in ("Verco", "VercoPBT", "ROMA", "collect_labels", "play_planners", *games, "people", "trained", "DQN"):
        assert name in everything
    assert "settings: `" not in everything and "`run: " not in everything


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
