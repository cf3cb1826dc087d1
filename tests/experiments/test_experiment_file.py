"""Reading experiment files: the old format is understood, every mistake is one sentence."""

from __future__ import annotations

import json
import os

import pytest

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.experiments.experiment_file import (
    TrainSettings,
    load_json_option,
    parse_experiments,
    read_experiment_file,
)
from tests.refusal import refused

OLD = """
cartpole-ppo:
  run: PPO
  env: CartPole-v1
  stop: {env_runners: {episode_return_mean: 150}, training_iteration: 10}
  checkpoint_freq: 5
  config: {framework: torch, lr: 1e-4, seed: {grid_search: [0, 1]}}
"""
PYTHON = """
from ray.rllib.algorithms.ppo import PPOConfig
config = PPOConfig().environment("CartPole-v1").training(lr=0.5)
stop = {"training_iteration": 3}
"""


def write(folder, text, name="file.yaml"):
    path = folder / name
    path.write_text(text)
    return path


def test_old_format_is_understood(tmp_path):
    file = read_experiment_file(write(tmp_path, OLD))
    experiment = file.experiments["cartpole-ppo"]
    assert file.name == "file"
    assert experiment.stop == {"env_runners/episode_return_mean": 150, "training_iteration": 10}
    assert experiment.checkpoint_config.checkpoint_frequency == 5
    assert experiment.config["lr"] == 1e-4


def test_an_old_key_of_a_file_is_the_option_of_that_name():
    for key, kept in (("min-x", ("x", "min")), ("x", ("x", "max"))):
        of_file = parse_experiments({"a": {"run": "PPO", "env": "E-v0", "checkpoint_score_attr": key}}, "f")["a"]
        how = of_file.checkpoint_config
        assert (how.checkpoint_score_attribute, how.checkpoint_score_order) == kept
        both = {"checkpoint_score_attr": key, "checkpoint_config": {"checkpoint_score_attribute": "other"}}
        how = parse_experiments({"a": {"run": "PPO", "env": "E-v0", **both}}, "f")["a"].checkpoint_config
        assert (how.checkpoint_score_attribute, how.checkpoint_score_order) == ("other", "max")
        given = TrainSettings(checkpoint_score_attr=key).checkpoint_keys()
        assert (given["checkpoint_score_attribute"], given["checkpoint_score_order"]) == kept


def test_json_is_the_same_as_yaml(tmp_path):
    spec = {"a": {"run": "PPO", "env": "CartPole-v1", "config": {"lr": 0.1}}}
    from_json = read_experiment_file(write(tmp_path, json.dumps(spec), "x.json"))
    from_yaml = read_experiment_file(write(tmp_path, json.dumps(spec), "x.yaml"))
    assert from_json == from_yaml


def test_env_may_stand_in_config():
    assert parse_experiments({"a": {"run": "PPO", "config": {"env": "E-v0"}}}, "f")["a"].env == "E-v0"


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"runn": "PPO"}, "`a.runn` .*'run'"),
        ({"env": "X"}, "`a.run` is missing"),
        ({"run": "PPO", "env": "X", "config": {"env": "Y"}}, "`env` is 'X' but `config.env` is 'Y'"),
        ({"run": "PPO", "checkpoint_config": {"checkpoint_score_order": "up"}}, "'up' .*'max', 'min'"),
        ({"run": "PPO", "stop": {"episode_reward_mean": 1}}, "'env_runners/episode_return_mean'"),
        ({"run": "PPO", "stop": {"training_iterations": 1}}, "mean 'training_iteration'"),
        ({"run": "PPO", "stop": {"training_iteration": "ten"}}, "'ten' .*number"),
        ({"run": "PPO", "stop": {"training_iteration": 0}}, "stop.training_iteration` is 0"),
    ],
)
def test_wrong_keys_and_values_are_named(spec, told):
    with pytest.raises(UserError, match=told) as caught:
        parse_experiments({"a": spec}, "file.yaml")
    assert "\n" not in str(caught.value)


def test_results_of_own_callbacks_may_stop():
    spec = {"run": "PPO", "stop": {"my_figure": 1}, "config": {"callbacks_on_train_result": "x"}}
    assert parse_experiments({"a": spec}, "f")["a"].stop == {"my_figure": 1}


def test_missing_file_suggests_a_near_one(tmp_path):
    write(tmp_path, "a: {run: PPO}", "verco.yaml")
    with pytest.raises(UserError, match="no file .*'verco.yaml'"):
        read_experiment_file(tmp_path / "verko.yaml")


def test_python_file(tmp_path):
    file = read_experiment_file(write(tmp_path, PYTHON, "mine.py"))
    experiment = file.experiments["mine"]
    assert (experiment.run, experiment.env, experiment.config["lr"]) == ("PPO", "CartPole-v1", 0.5)
    assert experiment.stop == {"training_iteration": 3}
    assert file.checked_by_python and file.digest


def test_json_option():
    assert load_json_option("--stop", '{"a": 1e-3}') == {"a": 0.001}
    with refused("--stop"):
        load_json_option("--stop", "[1]")


def laughs(holder):
    """A file in which each line holds the one above ten times."""
    lines = zip("abcdefghi", "bcdefghij", strict=True)
    return "a: &a {x: 1}\n" + "\n".join(f"{new}: &{new} " + holder % ", ".join([f"*{old}"] * 10) for old, new in lines)


@pytest.mark.parametrize(
    ("text", "name", "told"),
    [
        ("a: {run: PPO", "f.yaml", "no valid YAML.*line"),
        ("a: {run: PPO}\na: {run: PPO}", "f.yaml", r"'a' is given twice \(line 2\)"),
        ('{"a": 1,}', "f.json", "no valid JSON.*line 1"),
        ("", "f.yaml", "must hold"),
        ("run: PPO\nenv: X", "f.yaml", "`run` .*must be an experiment"),
        ("../up: {run: PPO}", "f.yaml", "cannot name a folder"),
        ("a" * 300 + ": {run: PPO}", "f.yaml", "cannot name a folder"),
        ("config = 3", "f.py", "AlgorithmConfig"),
        ("import nothing_of_this_name", "f.py", "ModuleNotFoundError"),
        (laughs("[%s]"), "f.yaml", "100000 parts"),
        (laughs("{<<: [%s]}"), "f.yaml", "100000 parts"),
        ("a: &a [*a]", "f.yaml", "alias"),
        ("a: " + "[" * 60 + "]" * 60, "f.yaml", "50 levels"),
        ("a: " + "[" * 1000 + "]" * 1000, "f.yaml", "nested too deeply"),
        ("[" * 90000 + "]" * 90000, "f.json", "nested too deeply"),
        ('{"a": {"run": "PPO", "run": "DQN"}}', "f.json", "'run' is given twice"),
        ('{"a": ' + "9" * 5000 + "}", "f.json", "no valid JSON"),
        ("a: {run: PPO, config: {1: 2}}", "f.yaml", "'1' is no text"),
        ("a: !!python/object/apply:os.system [ls]", "f.yaml", "no valid YAML"),
        ("a: {run: PPO, config: {lr: [[0, .nan]]}}", "f.yaml", r"`a.config.lr\[0\]\[1\]` is nan"),
        ("a: {run: PPO, stop: {training_iteration: .inf}}", "f.yaml", "stop.training_iteration` is inf"),
    ],
)
def test_files_that_hold_no_plain_settings(tmp_path, text, name, told):
    with pytest.raises(UserError, match=told) as caught:
        read_experiment_file(write(tmp_path, text, name))
    assert "\n" not in str(caught.value)


def test_dates_are_texts_as_in_json(tmp_path):
    file = read_experiment_file(write(tmp_path, "a: {run: PPO, config: {note: 2024-13-45, day: 2024-01-02}}"))
    assert file.experiments["a"].config == {"note": "2024-13-45", "day": "2024-01-02"}


def test_special_files_are_not_read(tmp_path):
    os.mkfifo(tmp_path / "fifo.yaml")
    (tmp_path / "zero.yaml").symlink_to("/dev/zero")
    with (tmp_path / "large.yaml").open("w") as file:
        file.truncate(2**30)
    for name, words in (("fifo", "no regular file"), ("zero", "no regular file"), ("large", "at most")):
        with pytest.raises(UserError, match=words):
            read_experiment_file(tmp_path / f"{name}.yaml")
