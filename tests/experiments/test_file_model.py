"""`model:` of a file: the language model of all of its stages, named once.

That weights are loaded so is shown by a trained pipeline in `tests/cli/test_stand_ins.py`.
"""

from __future__ import annotations

import pytest
import yaml

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.experiments.calibration_run import read_settings
from rllib_llm_comm.experiments.experiment_file import read_experiment_file
from rllib_llm_comm.experiments.pipeline import with_model
from rllib_llm_comm.experiments.study_file import expand, part_of, read_study
from rllib_llm_comm.verco.teachers.collect_labels import collect_labels
from tests.refusal import refused

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
    assert read_settings(path).model.dtype == "bfloat16"


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


def test_a_file_whose_stages_all_name_their_own_model_says_so(tmp_path):
    own = {f"own_{number}": STAGES["other"] for number in range(5)}
    with refused("model", match="own_0.config.base_model.* 2 others"):
        with_model(read_experiment_file(write(tmp_path, {"model": {"lora_r": 4}, **own})))


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
