"""Evaluations and replays from Python: data and files, no word on the console, no command line."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from hostile import write_checkpoint
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

import rllib_llm_comm
from rllib_llm_comm import evaluate_checkpoint, replay_checkpoint
from rllib_llm_comm.cli.main import cli
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.games import make_env
from rllib_llm_comm.evaluation.play_settings import EvaluationSettings
from rllib_llm_comm.evaluation.rollout import Episode, figures_of
from rllib_llm_comm.experiments.evaluation_run import run_evaluation
from rllib_llm_comm.policies.find_checkpoint import shipped_policy
from rllib_llm_comm.policies.numeric_network import NumericNetwork, NumericSettings
from rllib_llm_comm.policies.policy_folder import network_file, write_policy
from rllib_llm_comm.policies.policy_manifest import PolicyManifest
from tests.refusal import refused

TOOK = {"decisions", "tokens", *(["gpu_memory_gb"] if torch.cuda.is_available() else [])}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return write_checkpoint(tmp_path_factory.mktemp("cooks") / "trial_0" / "checkpoint_000001")


def test_the_function_gives_the_figures_of_the_command_and_prints_nothing(checkpoint, tmp_path, capsys):
    counted, settings = [], EvaluationSettings(greedy=True, env_config={"map_name": "B"}, messages="none")
    how = {"episodes": 2, "seed": 3, "progress": lambda *done: counted.append(done)}
    found = evaluate_checkpoint(checkpoint.parent, settings=settings, **how)
    assert capsys.readouterr() == ("", "")
    assert counted == [(1, 2), (2, 2)] and [episode.seed for episode in found.episodes] == [3, 4]
    assert found.figures.episodes == 2 and not found.figures.sampled and found.communication is None
    told = tmp_path / "figures.json"
    options = ["--episodes", "2", "--seed", "3", "--greedy", "--env-config", '{"map_name": "B"}', "--messages", "none"]
    done = CliRunner().invoke(cli, ["evaluate", str(checkpoint), *options, "--json", str(told)])
    assert done.exit_code == 0, done.exception
    of_command, of_function = json.loads(told.read_text()), json.loads(json.dumps(found.to_json()))
    for figures in (of_command, of_function):
        assert figures.pop("checkpoint") and 0 < figures.pop("seconds_per_game") < 60
        took = figures.pop("took")
        assert 0 < took.pop("seconds") < 120 and took["tokens"] > took["decisions"] > 0 and set(took) == TOOK, took
    assert of_command == of_function
    assert found.took()["decisions"] == sum(episode.decisions for episode in found.episodes)
    assert "decisions" in done.stdout and "tokens" in done.stdout
    assert ("GPU" in done.stdout) == ("gpu_memory_gb" in TOOK)
    assert found.seconds == pytest.approx(2 * found.to_json()["seconds_per_game"], abs=0.002)


def test_communication_is_measured_on_demand(checkpoint):
    found = evaluate_checkpoint(checkpoint, episodes=2, communication=True)
    assert found.communication is not None and found.communication.messages > 0
    assert found.to_json()["communication"]["messages"] == found.communication.messages
    assert not found.lacks_reference  # PPO did not train these messages
    with refused("communication"):
        evaluate_checkpoint(checkpoint, communication=True, trials=1)
    with refused("reference"):
        evaluate_checkpoint(checkpoint, reference="elsewhere")


def test_without_a_private_fact_the_command_tells_no_figures_of_one(checkpoint):
    done = CliRunner().invoke(
        cli, ["evaluate", str(checkpoint), "--communication", "--messages", "none", "--episodes", "1"]
    )
    assert done.exit_code == 0 and "Nobody speaks" in done.stdout and "choice" not in done.stdout


def test_a_replay_prints_nothing(checkpoint, tmp_path, capsys):
    page = replay_checkpoint(checkpoint, tmp_path / "page.html", seed=5, animation=tmp_path / "page.gif")
    assert capsys.readouterr() == ("", "")
    assert page.read_text().startswith("<!doctype html>") and (tmp_path / "page.gif").stat().st_size
    other = replay_checkpoint(checkpoint, tmp_path / "both.html", beside=checkpoint)
    assert "the same once more" in other.read_text()


def test_all_public_names_are_there():
    for name in rllib_llm_comm.__all__:
        assert getattr(rllib_llm_comm, name).__doc__, name


def test_a_cue_without_words_is_measured_for_agents_that_see_numbers(tmp_path):
    doors = {"doors": 3, "told_to": ["alice"]}
    env = make_env("rllib_llm_comm/door-v0", **doors)
    size, actions = env.observation_space("bob")["vector"].shape[0], int(env.action_space("bob").n)
    network = NumericNetwork(NumericSettings(init_seed=0), size, actions)
    model = {"size": size, "actions": actions, "critic_size": None}
    manifest = PolicyManifest("SymbolicPPO", model, {}, "rllib_llm_comm/door-v0", doors, kind="numeric")
    folder = write_policy(tmp_path / "policy", network_file(network), manifest)
    found = evaluate_checkpoint(folder, episodes=60, communication=True)
    told = found.communication
    assert told.messages == 0 and told.signalling is None and told.drift is None
    assert told.first_choice.entropy > 1 and told.first_choice.p_value > 0.01  # the network was not trained
    done = CliRunner().invoke(cli, ["evaluate", str(folder), "--episodes", "10", "--communication"])
    assert done.exit_code == 0 and "choice" in done.output and "Nobody speaks" in done.output
    assert "listening" not in done.output and "vocabulary" not in done.output


def test_an_evaluation_of_several_that_ends_early_goes_on_with_those_not_yet_played(tmp_path, capsys):
    first, second, figures = "zoo:soup_cramped_room", str(tmp_path / "later"), tmp_path / "figures.json"
    settings = EvaluationSettings(episodes=2)
    with pytest.raises(UserError, match="later"):
        run_evaluation([first, second], settings, json_path=figures)
    (kept,) = tmp_path.iterdir()
    (row,) = (one["row"] for one in json.loads(kept.read_text()).values())
    shutil.copytree(shipped_policy(first), second)
    done = run_evaluation([first, second], settings, json_path=figures)["checkpoints"]
    assert "played before" in capsys.readouterr().out and not kept.exists()
    assert done[0] == row, "seconds, too, so it was not played again"
    assert done[1]["returns"] == row["returns"] and json.loads(figures.read_text())["checkpoints"] == done
    again = run_evaluation([first, second], EvaluationSettings(episodes=1), json_path=figures)["checkpoints"]
    assert [one["episodes"] for one in again] == [1, 1]


def test_figures_kept_under_a_planner_or_settings_that_changed_since_are_not_taken(tmp_path, capsys):
    first, missing, figures = tmp_path / "emma", str(tmp_path / "later"), tmp_path / "figures.json"
    planner = tmp_path / "planner"
    shutil.copytree(shipped_policy("zoo:emma_cramped_room"), first)
    shutil.copytree(shipped_policy("zoo:planner_cramped_room"), planner)
    how = EvaluationSettings(episodes=1, planner=f"trained:{planner}", env_config={"horizon": 20})

    def play() -> bool:
        with pytest.raises(UserError, match="later"):
            run_evaluation([str(first), missing], how, json_path=figures)
        return "played before" not in capsys.readouterr().out

    assert play() and not play()
    weights = next(planner.rglob("*.safetensors"))
    save_file({name: 0 * tensor for name, tensor in load_file(weights).items()}, weights)
    assert play() and not play()
    manifest = first / "policy" / "policy.json" if (first / "policy").is_dir() else first / "policy.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()), indent=3))
    assert play() and not play()
    (kept,) = tmp_path.glob(".figures.played.json")
    for damage in ("{", "[" * 100_000, "[]", '{"key": {}}', kept.read_text().replace('"row"', '"line"')):
        kept.write_text(damage)
        assert play()


def test_a_metric_that_a_game_tells_in_some_episodes_is_their_mean():
    episodes = [Episode("game", {}, ["alice"], seed) for seed in range(3)]
    for one, metrics in zip(episodes, ({}, {"won": 2.0}, {"won": 3.0, "lost": 1.0}), strict=True):
        one.returns, one.metrics = {"alice": 1.0}, metrics
    assert figures_of(episodes, explore=True).metrics == {"won": 2.5, "lost": 1.0}
