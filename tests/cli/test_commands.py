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
from tests.cli.command import rllib, succeeds

GOLDEN = Path(__file__).parents[1] / "data" / "overcooked_text_golden.jsonl.gz"
KITCHEN = "rllib_llm_comm/overcooked_text-v0"


def write(folder, spec, name="file.json"):
    (folder / name).write_text(json.dumps(spec))
    return name


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        (
            {"a": {"run": "PPO", "env": "CartPole-v1", "config": {"lrr": 1}}},
            "Error: `a.config.lrr` is no setting of PPO. Did you mean 'lr'?\n",
        ),
        (
            {"a": {"run": "Verco", "env": KITCHEN, "config": {"env_config": {"layout": "ful"}}}},
            "Error: In `a.config.env_config`: `layout` is 'ful' but must be one of 'full', 'oneplate', 'tomato'. "
            "Did you mean 'full'?\n",
        ),
    ],
)
def test_one_sentence_and_exit_code(tmp_path, spec, sentence):
    done = rllib("train", "file", write(tmp_path, spec), cwd=tmp_path)
    assert (done.returncode, done.stderr, done.stdout) == (1, sentence, "")
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", "file", "nothing.yaml"], "There is no file 'nothing.yaml'"),
        (["train", "--env", "CartPole-v1"], "`--run` is missing"),
        (["train", "--run", "PPO", "--stop", "ten"], "`--stop` is 'ten'"),
        (
            ["train", "--run", "PPO", "--env", "CartPole-v1", "--ray-address", "127.0.0.1:9"],
            "`--ray-address`",
        ),
        (["evaluate", "nowhere"], "There is no checkpoint at 'nowhere'; give a checkpoint"),
        (["replay", "nowhere"], "There is no checkpoint at 'nowhere'; give a checkpoint"),
        (["check", "env", "nothing-v0"], "nothing-v0"),
        (["check", "env", "x-v0", "--import", "not_a_module"], "`--import` module 'not_a_module'"),
        (["check", "golden", "nothing.jsonl"], "nothing.jsonl"),
        (["example", "get", "vercoo"], "Did you mean 'verco'?"),
        (
            ["example", "get", "verco", "--out", "/proc/here/a b"],
            "`--out`: nothing can be copied to '/proc/here/a b': ",
        ),
    ],
)
def test_wrong_arguments(tmp_path, arguments, words):
    done = rllib(*arguments, cwd=tmp_path)
    assert done.returncode == 1 and words in done.stderr
    assert done.stderr.startswith("Error: ") and done.stderr.count("\n") == 1


def test_unknown_option_is_a_usage_error(tmp_path):
    done = rllib("train", "--episodes", "3", cwd=tmp_path)
    assert done.returncode == 2 and "--episodes" in done.stderr


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
import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv
from pettingzoo.env_registry import registration


class Corridor(ParallelEnv):
    metadata = {"name": "corridor_v0", "render_modes": []}
    render_mode = None

    def __init__(self, length=3):
        self.length, self.possible_agents = length, ["ann", "ben"]
        self.spaces = {a: (spaces.Box(0, 10, (1,), np.float32), spaces.Discrete(2)) for a in ("ann", "ben")}

    def observation_space(self, agent):
        return self.spaces[agent][0]

    def action_space(self, agent):
        return self.spaces[agent][1]

    def reset(self, seed=None, options=None):
        self.agents, self.place = list(self.possible_agents), 0
        return self._see(), {a: {} for a in self.agents}

    def step(self, actions):
        self.place += 1
        over = self.place >= self.length
        agents = list(self.agents)
        seen = self._see()
        if over:
            self.agents = []
        return (seen, {a: 1.0 for a in agents}, dict.fromkeys(agents, over), dict.fromkeys(agents, False),
                {a: {} for a in agents})

    def _see(self):
        return {a: np.array([self.place], dtype=np.float32) for a in self.agents}


registration.register("parallel", "mine/corridor-v0", Corridor)
"""


def test_check_env_of_a_user(tmp_path):
    (tmp_path / "corridor.py").write_text(OWN_ENV)
    good = succeeds("check", "env", "mine/corridor-v0", "--import", "corridor", cwd=tmp_path)
    assert " 0 failed" in good.stdout, good.stdout + good.stderr
    (tmp_path / "broken.py").write_text(OWN_ENV.replace("Box(0, 10", "Box(0, 1"))
    bad = rllib("check", "env", "mine/corridor-v0", "--import", "broken", cwd=tmp_path)
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
    ("arguments", "code", "words"),
    [
        (["verco", "--stage", "verko"], 1, "Did you mean 'verco'?"),
        (["verco", "--nonsense"], 2, "--nonsense"),
        (["nothing"], 1, "There is no example 'nothing'"),
    ],
)
def test_options_reach_the_example(tmp_path, arguments, code, words):
    done = rllib("example", "run", *arguments, cwd=tmp_path)
    assert done.returncode == code and words in done.stderr


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
    done = rllib("list", "planer", cwd=tmp_path)
    assert done.returncode == 1 and "Did you mean 'planners'?" in done.stderr
