"""A trial that Ray has no room for is told with the settings that ask for it, and with numbers."""

from __future__ import annotations

import pytest

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.experiments.ray_session import demand
from rllib_llm_comm.experiments.tune_stage import cpus_needed
from rllib_llm_comm.sama.emma.emma import SymbolicPPO
from rllib_llm_comm.verco.sft import MessageSFT
from rllib_llm_comm.verco.verco import Verco
from tests.experiments.staged import run, stages_of

ENV = "rllib_llm_comm/overcooked_text-v0"
TOO_BIG = [
    (
        Verco,
        {"num_env_runners": {"grid_search": [4, 8]}},
        "5 CPUs but Ray has 2: `num_cpus_for_main_process` is 1 and `num_env_runners` is 4; set less in its `config:` "
        "or `resources_per_trial:`, or give `--ray-num-cpus 5`.",
    ),
    (
        SymbolicPPO,
        {"num_env_runners": 1, "num_cpus_per_env_runner": 0.75, "num_learners": 2, "num_cpus_per_learner": 1},
        "3.75 CPUs but Ray has 2: `num_cpus_for_main_process` is 1 and `num_env_runners` is 1 and "
        "`num_cpus_per_env_runner` is 0.75 and `num_learners` is 2; set less in its `config:` or "
        "`resources_per_trial:`, or give `--ray-num-cpus 4`.",
    ),
    (
        MessageSFT,
        {"env": None, "input_": "labels", "num_cpus_for_main_process": 1},
        "3 CPUs but Ray has 2: `num_cpus_for_main_process` is 1 and reading its data takes 2; set less in its "
        "`config:` or `resources_per_trial:`, or give `--ray-num-cpus 3`.",
    ),
    (
        Verco,
        {"num_gpus_per_learner": 1},
        "1 GPUs but Ray has 0: `num_gpus_per_learner` is 1; set less in its `config:` or `resources_per_trial:`, or "
        "give `--ray-num-gpus 1`.",
    ),
]


@pytest.mark.parametrize(("algorithm", "config", "told"), TOO_BIG)
def test_a_trial_that_is_too_big_is_told_with_its_settings(algorithm, config, told):
    asked = demand(algorithm, {"env": ENV, **config})
    with pytest.raises(UserError) as error:
        asked.require("mine", {"CPU": 2})
    assert str(error.value) == f"A trial of `mine` needs {told}"
    asked.require("mine", {"CPU": 5, "GPU": 1})


def test_who_joined_a_cluster_is_told_of_larger_ones():
    """`--ray-num-cpus` is refused beside `--ray-address`."""
    with pytest.raises(UserError, match="`resources_per_trial:`, or join a larger cluster.$"):
        demand(Verco, {"env": ENV, "num_env_runners": 4}).require("mine", {"CPU": 2}, "10.0.0.1:6379")


def test_too_few_cpus_are_told_before_the_first_stage_runs(tmp_path):
    stages = {
        "labels": {"run": "collect_labels", "env": ENV, "config": {"teacher": "scripted", "target_labels": 4}},
        "message_sft": {"run": "MessageSFT", "config": {"input_": "${labels}", "num_cpus_for_main_process": 1}},
    }
    with pytest.raises(UserError, match="A trial of `message_sft` needs 3 CPUs but Ray has 2: .* `--ray-num-cpus 3`"):
        run(stages, tmp_path, ray_num_cpus=2)
    assert not list(tmp_path.rglob("*"))


RESPONSE = {"pool": [{"policy": "${partner}"}], "num_env_runners": 2}


@pytest.mark.parametrize(
    ("config", "options", "needs"),
    [
        (RESPONSE, {"ray_num_cpus": 2}, "needs 3 CPUs but Ray has 2"),
        ({**RESPONSE, "num_gpus_per_learner": 1}, {"ray_num_cpus": 8, "ray_num_gpus": 0}, "needs 1 GPUs but Ray has 0"),
    ],
)
def test_needs_of_a_stage_that_waits_for_another_are_told_before_that_runs(config, options, needs, tmp_path):
    """RLlib cannot validate such a stage, as the checkpoint is not there yet."""
    partner = {"run": "SelfPlayPPO", "env": "rllib_llm_comm/overcooked_ai-v0", "stop": {"training_iteration": 1}}
    stages = {"partner": partner, "response": {**partner, "run": "BestResponsePPO", "config": config}}
    with pytest.raises(UserError, match=f"A trial of `response` {needs}"):
        run(stages, tmp_path, **options)
    assert not list(tmp_path.rglob("*"))


def test_needs_that_are_drawn_are_not_told_beforehand(tmp_path):
    def needed(runners):
        specs = {"sweep": {"run": "SymbolicPPO", "env": ENV, "config": {"num_env_runners": runners}}}
        (stage,) = stages_of(specs, tmp_path)
        return cpus_needed(stage, {"CPU": 2})

    assert 5 <= needed({"randint": [4, 6]}) <= 7
    with pytest.raises(UserError, match="needs 5 CPUs but Ray has 2"):
        needed({"grid_search": [4, 6]})
