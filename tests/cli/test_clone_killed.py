"""A cloned start on the command line: demonstrations, clone, which is killed, and two ways to go on from it.

Each way stops at the first iteration that reaches its decisions, where its learning rate has fallen to 0.
"""

from __future__ import annotations

import json
import signal
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from rllib_llm_comm import load_policy
from rllib_llm_comm.cli.main import cli
from rllib_llm_comm.policies.policy_folder import find_policy
from rllib_llm_comm.rl.multi_agent_ppo import annealed
from tests.cli.command import fork_rllib, succeeds
from tests.cli.faults import rows, wait_until

KITCHEN = "rllib_llm_comm/overcooked_text-v0"
GAME = {"map_name": "A", "recipe": "tomato salad", "max_game_steps": 40}
DEMONSTRATIONS = {"env_config": GAME, "num_envs": 2, "target_demonstrations": 96, "seed": 0}
COMMAND = ("train", "file", "cloned.json", "--ray-num-cpus", "3")
PPO = {
    "env_config": GAME, "action_checkpoint": "${clone}", "num_envs_per_env_runner": 2,
    "train_batch_size_per_learner": 32, "minibatch_size": 32, "num_epochs": 1, "seed": 0,
}  # fmt: skip
BUDGET = 40  # decisions; two iterations of PPO, one of groups, whose episodes are played to the end
GROUPS = {"advantages": "rloo", "batch_mode": "complete_episodes", "group_size": 2, "group_by": "episode"}
WAYS = {"verco": ("Verco", {"messages": "none", **GROUPS}), "twosome": ("TWOSOME", {})}


def write(folder: Path) -> None:
    clone = {"input_": "${demonstrations}", "train_batch_size_per_learner": 32, "seed": 0}
    stages = {
        "demonstrations": {"run": "collect_demonstrations", "env": KITCHEN, "config": DEMONSTRATIONS},
        "clone": {
            "run": "ActionSFT", "stop": {"training_iteration": 3}, "config": clone,
            "checkpoint_config": {"checkpoint_frequency": 1},
        },
    }  # fmt: skip
    for name, (run, settings) in WAYS.items():
        config = {**PPO, "anneal": BUDGET, **settings}
        stages[name] = {"run": run, "env": KITCHEN, "stop": {"decisions": BUDGET}, "config": config}
    (folder / "cloned.json").write_text(json.dumps(stages))


def action_weights(stage: Path) -> dict[str, torch.Tensor]:
    (file,) = find_policy(stage).rglob("adapters/action/adapter_model.safetensors")
    return load_file(file)


def outputs(stage: Path) -> list[Path]:
    return [stage / path for path in json.loads((stage / "stage.json").read_text())["outputs"]]


def test_killed_in_the_clone_it_goes_on_to_two_ways_of_training(tmp_path):
    write(tmp_path)
    results = tmp_path / "results/cloned"
    running = fork_rllib(*COMMAND, cwd=tmp_path)
    sealed = results / "clone/trial_0/checkpoint_000001/written_here.json"
    wait_until(lambda: sealed.exists() or running.poll() is not None, seconds=240)
    running.send_signal(signal.SIGKILL)
    running.communicate()
    first = (results / "clone/trial_0/result.json").read_text().splitlines()[0]

    done = succeeds(*COMMAND, cwd=tmp_path, timeout=600)
    assert "Continuing where the last call stopped." in done.stdout
    assert rows(results / "clone/trial_0") == [1, 2, 3]
    assert (results / "clone/trial_0/result.json").read_text().splitlines()[0] == first, "it began anew"
    cloned = action_weights(results / "clone")
    trained = [path for name in WAYS for path in outputs(results / name)]
    assert len(trained) == len(WAYS)
    for path in trained:
        manifest = load_policy(path).manifest
        assert manifest.provenance["cloned_from"] == ["scripted"], path
        told = [json.loads(line) for line in (path.parent / "result.json").read_text().splitlines()]
        decisions = [row["decisions"] for row in told]
        assert all(one < BUDGET for one in decisions[:-1]) and decisions[-1] >= BUDGET, (path, decisions)
        assert annealed(1.0, decisions[-1], BUDGET) == 0.0, (path, decisions)
        returns = told[-1]["env_runners"]["agent_episode_returns_mean"]
        assert set(returns) == {"alice", "bob"} and np.isfinite(list(returns.values())).all(), (path, returns)
        moved = action_weights(path)
        assert moved.keys() == cloned.keys(), path
        steps = [float((moved[weight] - cloned[weight]).abs().max()) for weight in cloned]
        assert 0 < max(steps) < 0.1, (path, max(steps))  # it began with the clone's, and went on from them


CLONE = ("clone", "scripted", "results/cook", "--base-model", "embedded")


def test_the_scripted_cook_is_cloned_and_what_stands_in_the_way_is_told(tmp_path, monkeypatch):
    asked = [*CLONE, "--env", KITCHEN, "--env-config", json.dumps(GAME), "--demonstrations", "60", "--epochs", "1"]
    done = succeeds(*asked, "--random-share", "0.5", cwd=tmp_path)
    assert "`action_checkpoint: results/cook/clone`" in " ".join(done.stdout.split())
    run = tmp_path / "results/cook"
    rows = json.loads((run / "demonstrations/stage.json").read_text())
    assert rows["summary"]["demonstrations"] >= 60 and "labels" not in rows["summary"]
    assert rows["settings"]["config"]["random_share"] == 0.5 and rows["settings"]["config"]["env_config"] == GAME
    policy = load_policy(run / "clone")
    assert policy.manifest.provenance["cloned_from"] == ["scripted"] and policy.manifest.env == KITCHEN
    observations, _ = policy.env().reset(seed=0)
    policy.reset(seed=0)
    assert set(policy.act(observations)) == {"alice", "bob"}

    again = succeeds(*asked, "--random-share", "0.5", cwd=tmp_path)
    assert again.stdout.count("already there, skipped") == 2
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes.txt").write_text("keep me")
    refused = {
        ("clone", "scripted", "mine", *CLONE[3:], "--env", KITCHEN): "give a new folder",
        CLONE: "`--env` is missing",
        (*CLONE, "--env", KITCHEN, "--layout", "cramped_room"): "--layout",
        ("clone", "players:mine", "results/mine", *CLONE[3:], "--env", KITCHEN): "--import MODULE",
        (*CLONE, "--env", KITCHEN, "--import", "no_such_module"): "no_such_module",
        (*CLONE[:3], "--demonstrations", "60"): "--base-model",
    }
    monkeypatch.chdir(tmp_path)
    for words, told in refused.items():
        failed = CliRunner().invoke(cli, words)
        assert failed.exit_code != 0 and told in str(failed.exception), failed
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["notes.txt"]
