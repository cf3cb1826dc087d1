"""`model:` of a file: the language model of all of its stages, named once."""

from __future__ import annotations

import json

import pytest
import torch
import yaml

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.evaluation.play_settings import EvaluationSettings
from rllib_llm_comm.experiments.calibration_run import read_settings
from rllib_llm_comm.experiments.experiment_file import TrainSettings, read_experiment_file
from rllib_llm_comm.experiments.pipeline import run_file, with_model
from rllib_llm_comm.experiments.study_file import expand, part_of, read_study
from rllib_llm_comm.verco.teachers.collect_labels import collect_labels

KITCHEN = "rllib_llm_comm/overcooked_text-v0"
SFT = {"run": "MessageSFT", "stop": {"training_iteration": 1}}
STAGES = {
    "labels": {"run": "collect_labels", "env": KITCHEN},
    "sft": {**SFT, "config": {"input_": "${labels}", "dtype": "float16"}},
    "verco": {"run": "Verco", "env": KITCHEN, "stop": {"decisions": 1}},
    "numbers": {"run": "MAPPO", "env": KITCHEN, "stop": {"decisions": 1}},
    "other": {"run": "Verco", "env": KITCHEN, "stop": {"decisions": 1}, "config": {"base_model": "embedded"}},
    "play": {"run": "evaluate", "config": {"checkpoint": "${verco}"}},
}
MODEL = {"base_model": "smollm2", "dtype": "bfloat16", "device": "auto", "lora_layers": 6, "prompts": "twosome"}


def write(folder, content):
    path = folder / "file.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path


def test_every_stage_that_loads_a_model_takes_it(tmp_path):
    file = with_model(read_experiment_file(write(tmp_path, {"model": MODEL, **STAGES})))
    configs = {name: experiment.config for name, experiment in file.experiments.items()}
    assert list(configs) == list(STAGES)
    assert configs["labels"] == {name: MODEL[name] for name in ("base_model", "dtype", "device", "prompts")}
    assert configs["sft"] == {**MODEL, "dtype": "float16", "input_": "${labels}"}
    assert configs["verco"] == MODEL
    assert configs["numbers"] == {}
    assert configs["other"] == {"base_model": "embedded"}  # another model, to which the rest does not belong
    assert configs["play"] == {"checkpoint": "${verco}"}


def test_calibration_reads_it(tmp_path):
    path = write(tmp_path, {"model": {"dtype": "bfloat16"}, "verco": STAGES["verco"]})
    assert read_settings(path).dtype == "bfloat16"


def test_it_reaches_labels_judging_training_and_the_evaluation(tmp_path):
    """From the file to the weights that are loaded: half-precision ones play, are judged, trained on, and evaluated."""
    game = {"map_name": "A", "recipe": "tomato salad", "max_game_steps": 12}
    labels = {"env_config": game, "target_labels": 40, "num_envs": 2}
    sft = {"input_": "${labels}", "train_batch_size_per_learner": 16, "judge_interval": 1}
    ppo = {
        "env_config": game, "message_checkpoint": "${sft}", "num_envs_per_env_runner": 2, "num_epochs": 1,
        "train_batch_size_per_learner": 16, "minibatch_size": 16,
    }  # fmt: skip
    content = {
        "model": {"base_model": "embedded", "dtype": "bfloat16", "device": "cpu"},
        "labels": {"run": "collect_labels", "env": KITCHEN, "config": labels},
        "sft": {**SFT, "config": sft},
        "verco": {"run": "Verco", "env": KITCHEN, "stop": {"decisions": 16}, "config": ppo},
        "play": {"run": "evaluate", "config": {"checkpoint": "${verco}", "episodes": 1, "messages": "student"}},
    }
    run_file(read_experiment_file(write(tmp_path, content)), TrainSettings(storage_path=str(tmp_path)))
    results = tmp_path / "file"
    told = json.loads((results / "labels/labels/_collection.json").read_text())
    assert "bfloat16" in json.dumps(told)
    judged = json.loads((results / "sft/trial_0/result.json").read_text().splitlines()[-1])
    assert judged["config"]["dtype"] == "bfloat16" and 0 <= judged["message_sft"]["exact_match"] <= 1
    played = json.loads((results / "play/evaluation.json").read_text())
    assert played["episodes"] == 1 and played["took"]["tokens"] > 0
    for checkpoint in ("sft", "verco", played["checkpoint"]):
        path = checkpoint if checkpoint == played["checkpoint"] else results / checkpoint
        policy = EvaluationSettings(episodes=1).load(path)  # as the evaluation loads it
        assert policy.network.lm.base.model.dtype == torch.bfloat16, checkpoint
        assert policy.manifest.model_config["dtype"] == "bfloat16", checkpoint


def test_a_study_has_it_too(tmp_path):
    study = {
        "env": KITCHEN, "model": MODEL, "scenarios": {"A": {"map_name": "A"}},
        "shared": {
            "labels": {"run": "collect_labels", "env": "${env}"},
            "message_sft": {**SFT, "config": {"input_": "${labels}"}},
        },
        "systems": {
            "verco": {"run": "Verco", "stop": {"decisions": 1}, "config": {"message_checkpoint": "${message_sft}"}},
            "mappo": {"run": "MAPPO", "stop": {"decisions": 1}},
        },
    }  # fmt: skip
    study = read_study(write(tmp_path, study))
    file = with_model(expand(study, "study"))
    assert file.experiments["A.verco"].config["lora_layers"] == 6
    assert file.experiments["A.labels"].config["dtype"] == "bfloat16"
    assert "dtype" not in file.experiments["A.mappo"].config
    assert list(part_of(study, file, systems=["mappo"]).experiments)[0] == "A.mappo"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"model": {"base_modle": "x"}, "verco": STAGES["verco"]}, "`model.base_modle`.*Did you mean 'base_model'"),
        ({"model": {"dtype": "float16"}, "numbers": STAGES["numbers"]}, "`model` means nothing"),
        ({"model": "smollm2", "verco": STAGES["verco"]}, "`model` in .* is 'smollm2'"),
    ],
)
def test_what_it_cannot_be_is_told(tmp_path, content, words):
    with pytest.raises(UserError, match=words):
        with_model(read_experiment_file(write(tmp_path, content)))


def test_a_stage_may_be_called_model(tmp_path):
    file = with_model(read_experiment_file(write(tmp_path, {"model": STAGES["numbers"]})))
    assert list(file.experiments) == ["model"] and not file.model


def test_labels_are_collected_by_the_model_that_is_named(tmp_path):
    def played(folder, **model):
        settings = {"env_config": {"map_name": "A"}, "target_labels": 60, "teacher_share": 0.0, "num_envs": 4}
        return collect_labels(KITCHEN, tmp_path / folder, **settings, **model).decisions

    assert played("same") == played("again")
    for other in ({"dtype": "bfloat16"}, {"prompts": "twosome"}):
        with pytest.raises(UserError, match="other settings"):
            played("same", **other)
