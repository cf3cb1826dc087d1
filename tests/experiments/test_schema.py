"""The JSON schema of files: everything that comes with the package fits, and mistakes do not."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft7Validator

from rllib_llm_comm import EMMAConfig
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.experiments.default_file import default_file
from rllib_llm_comm.experiments.experiment_file import load_file
from rllib_llm_comm.experiments.packaged_examples import examples
from rllib_llm_comm.experiments.stages_without_tune import STAGE_KINDS
from rllib_llm_comm.rl.algorithms import ALGORITHMS
from tests.cli.command import rllib
from tests.refusal import refused

FILES = [path for path in examples().values() if path.suffix == ".yaml"]
ENV = "rllib_llm_comm/overcooked_text-v0"


@pytest.fixture(scope="module")
def schema(tmp_path_factory):
    """As the command writes it, in a process of its own."""
    file = tmp_path_factory.mktemp("schema") / "rllib.schema.json"
    done = rllib("schema", file.name, cwd=file.parent)
    assert f"# yaml-language-server: $schema={file.name}" in done.stdout, done.stderr
    found = json.loads(file.read_text())
    Draft7Validator.check_schema(found)
    return Draft7Validator(found)


def mistakes(schema, content):
    return list(schema.iter_errors(content))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_tuned_example_fits(schema, path):
    assert not mistakes(schema, load_file(Path(path)))


@pytest.mark.parametrize(
    "spec",
    [
        {"run": "Verc0"},
        {"run": "Verco", "config": {"lrr": 1e-3}},
        {"run": "Verco", "config": {"gamma": 1.5}},
        {"run": "PPO", "config": {"messages": "student"}},
        {"run": "Verco", "env": ENV, "config": {"env_config": {"map": "A"}}},
        {"run": "Verco", "env": ENV, "config": {"env_config": {"rewards": {"chp": 1}}}},
        {"run": "evaluate", "config": {"checkpoint": "x", "episodes": 0}},
        {"run": "collect_labels", "config": {"target_label": 3}},
        {"run": "collect_labels", "config": {"teacher": {"name": "scripted", "repeat_fact": 1}}},
        {"run": "collect_labels", "config": {"teacher": {"name": "chat", "modle": "gpt-4o"}}},
        {"run": "collect_demonstrations", "config": {"player": {"policy": "scripted", "noise": 0.5}}},
        {"run": "EMMA", "config": {"planner": {"name": "random", "subgoals": 3}}},
        {"run": "EMMA", "config": {"subgoal_rewards": {"name": "judge", "chat": {"modle": "gpt-4o"}}}},
        {
            "run": "EMMA",
            "config": {"planner": {"name": "disturbed", "planner": {"name": "sama", "chat": {"modle": ""}}}},
        },
        {"run": "play_planners", "config": {"planner": [{"name": "random", "sed": 3}]}},
        {"run": "Verco", "config": {"message_server": {"model": "message"}}},
        {"run": "evaluate", "config": {"checkpoint": "x", "message_server": {"base_url": "http://x", "timout": 3}}},
        {"run": "make_manual", "config": {"paper": "onion_soup", "chat": {"local": "smollm2", "budget": 1}}},
        {"run": "collect_demonstrations", "config": {"player": {"chat": {"model": "m", "temprature": 0}}}},
        {"run": "EMMA", "config": {"subgoal_rewards": {"name": "judge", "chat": {"model": "m", "temprature": 0}}}},
        {"run": "BestResponsePPO", "config": {"pool": [{"policy": "scripted", "noises": 0.2}]}},
        {"env": ENV},
    ],
)
def test_mistakes_of_experiments_are_seen(schema, spec):
    assert mistakes(schema, {"stage": spec})


@pytest.mark.parametrize(
    "spec",
    [
        {"run": "Verco", "config": {"lr": {"loguniform": [1e-5, 1e-3]}, "gamma": 1, "seed": None}, "stop": None},
        {"run": "Verco", "config": {"message_checkpoint": "${sft}", "seed": {"grid_search": [0, 1]}}},
        {"run": "PPO", "env": "CartPole-v1", "checkpoint_freq": 3, "config": {"env_config": {"anything": 1}}},
        {"run": "Verco", "env": ENV, "config": {"env_config": {"rewards": {"chop": 1}, "told_to": ["bob"]}}},
        {"run": "evaluate", "config": {"checkpoint": ["${a}", "${b}"], "planner": None}},
        {"run": "collect_labels", "config": {"teacher": {"name": "mine", "anything": 1}}},
        {"run": "collect_demonstrations", "config": {"player": {"sessions": "results/play"}}},
        {"run": "EMMA", "config": {"planner": {"name": "disturbed", "planner": "scripted", "share": 0.3}}},
        {"run": "EMMA", "config": {"subgoal_rewards": {"name": "code", "path": "${code}/code", "fallback": "none"}}},
        {"run": "EMMA", "config": {"planner": {"name": "sama", "chat": {"model": {"grid_search": ["a", "b"]}}}}},
        {"run": "EMMA", "config": {"subgoal_rewards": {"name": "chat", "chat": {"cassette": "${rewards}/x"}}}},
        {"run": "play_planners", "config": {"planner": ["scripted", {"name": "trained", "policy": "${seats}"}]}},
        {"run": "BestResponsePPO", "config": {"pool": ["stay", {"policy": "scripted", "noise": 0.2}]}},
    ],
)
def test_searches_references_and_nothing_are_no_mistakes(schema, spec):
    assert not mistakes(schema, {"stage": spec})


def test_studies_are_told_from_experiments(schema):
    system = {"run": "Verco", "stop": {"training_iteration": 1}, "config": {"lr": 1e-3}}
    study = {"env": ENV, "scenarios": {"a": {"map_name": "A"}}, "systems": {"verco": system}}
    assert not mistakes(schema, study)
    assert mistakes(schema, {**study, "scenarios": {"a": {"map": "A"}}})
    assert mistakes(schema, {**study, "systems": {"verco": {**system, "config": {"lrr": 1}}}})
    assert mistakes(schema, {**study, "seeds": []})


def test_editors_are_told_what_a_setting_means(schema):
    known = schema.schema["$defs"]
    verco, kitchen = known["config of Verco"]["properties"], known[f"settings of {ENV}"]["properties"]
    assert verco["lr"] == {"$ref": "#/$defs/setting%20lr"} and "description" in known["setting lr"]
    assert "two rooms" in kitchen["map_name"]["description"] and kitchen["map_name"]["default"] == "B"
    assert known["config of evaluate"]["properties"]["greedy"]["description"]


@pytest.mark.parametrize("run", ALGORITHMS)
def test_a_setting_of_ours_has_its_meaning_and_range(schema, run):
    known = schema.schema["$defs"]
    told = known[f"config of {run}"]["properties"]
    for model in ALGORITHMS[run].get_default_config().settings_models.values():
        for name, field in model.model_fields.items():
            setting = known[f"setting {name}"] if "$ref" in told[name] else told[name]
            assert setting["description"][:30] == " ".join(field.description.split())[:30], name
            ranged = any(hasattr(one, bound) for one in field.metadata for bound in ("ge", "gt"))
            assert not ranged or "inimum" in json.dumps(setting), name


@pytest.mark.parametrize("run", [*ALGORITHMS, *STAGE_KINDS])
def test_a_file_of_all_defaults_lacks_what_is_required_alone(schema, run):
    text = default_file(run)
    content = {**yaml.safe_load(text)["experiment"], "env": ENV}
    required = re.findall(r"# (\w+): .* # required", text)
    assert sorted(error.message for error in mistakes(schema, {"stage": content})) == sorted(
        f"{name!r} is a required property"
        for name in required
        if name != "input_"  # RLlib's own
    )


def test_a_file_of_all_defaults_has_the_settings_of_a_game(schema):
    content = yaml.safe_load(default_file("MAPPO", ENV))
    assert not mistakes(schema, content)
    assert content["experiment"]["config"]["env_config"]["map_name"] == "B"
    of_emma = yaml.safe_load(default_file("EMMA", EMMAConfig.own_env))["experiment"]["config"]
    assert of_emma["env_config"].items() >= EMMAConfig.env_defaults.items()
    with refused("env", "choice"):
        default_file("MAPPO", "overcooked_texts")
    with pytest.raises(UserError, match="rllib schema"):
        default_file("PPO")
