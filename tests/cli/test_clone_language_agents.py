"""`rllib clone --base-model`: language agents that act as a player does."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from rllib_llm_comm import load_policy
from rllib_llm_comm.cli.main import cli
from tests.cli.command import succeeds

KITCHEN = "rllib_llm_comm/overcooked_text-v0"
GAME = {"map_name": "A", "recipe": "tomato salad", "max_game_steps": 40}
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
