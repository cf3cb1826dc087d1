"""Files name no code, readers or secrets unless their module is imported or the file is trusted."""

from __future__ import annotations

import importlib
import os

import pytest

from rllib_llm_comm.core import trust
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.trust import names_code
from rllib_llm_comm.evaluation.cross_play import CrossPlaySettings
from rllib_llm_comm.experiments.console import import_modules
from rllib_llm_comm.experiments.evaluation_run import run_cross_play
from rllib_llm_comm.experiments.experiment_file import TrainSettings
from rllib_llm_comm.experiments.pipeline import run_file
from rllib_llm_comm.experiments.study_file import expand, read_study
from tests.experiments import staged
from tests.experiments.staged import BegunError, refused_file

OVERCOOKED = "rllib_llm_comm/overcooked_text-v0"
SALAD = "zoo:verco_salad"
MODULE = """
from pathlib import Path
from ray.rllib.callbacks.callbacks import RLlibCallback
import gymnasium

(Path(__file__).parent / "it_ran").touch()

class Mine(RLlibCallback):
    pass

class Game(gymnasium.Env):
    observation_space = gymnasium.spaces.Discrete(2)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, config):
        pass
"""


def begin(spec, folder, **settings):
    staged.begin({"a": spec}, folder / "results", **settings)


def allowed(spec, folder, **settings):
    with pytest.raises(BegunError):
        begin(spec, folder, **settings)


@pytest.fixture
def planted(tmp_path, monkeypatch):
    """A module that can be imported and tells that it was."""
    (tmp_path / "planted.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(importlib.sys.modules, "planted", raising=False)
    yield tmp_path / "it_ran"
    importlib.sys.modules.pop("planted", None)
    trust._vouched_modules.discard("planted")


def ppo(**config):
    return {"run": "PPO", "env": "CartPole-v1", "config": {"num_env_runners": 0, **config}}


NAMES = {
    "callbacks": ppo(callbacks="planted.Mine"),
    "callbacks_class": ppo(callbacks_class=["planted.Mine"]),
    "searched": ppo(callbacks={"grid_search": ["planted.Mine"]}),
    "evaluation": ppo(evaluation_config={"callbacks": "planted.Mine"}),
    "inner evaluation": ppo(evaluation_config={"evaluation_config": {"callbacks": "planted.Mine"}}),
    "played": ppo(evaluation_config={"env": "planted.Game"}),
    "ours": {"run": "Verco", "env": OVERCOOKED, "config": {"callbacks_class": "planted.Mine"}},
    "overrides": ppo(algorithm_config_overrides_per_module={"default_policy": {"callbacks_class": "planted.Mine"}}),
    "exploration": ppo(exploration_config={"type": "planted.Mine"}),
    "collector": ppo(sample_collector="planted.Mine"),
    "model": ppo(model={"custom_model": "planted.Mine"}),
    "runner": ppo(env_runner_cls="planted.Mine"),
    "mapping": ppo(policy_mapping_fn="planted.Mine"),
    "policies": ppo(policies={"p": ["planted.Mine", None, None, {}]}),
    "buffer": {"run": "DQN", "env": "CartPole-v1", "config": {"replay_buffer_config": {"type": "planted.Mine"}}},
    "environment": {**ppo(), "env": "planted:Game-v0"},
    "class of one": {**ppo(), "env": "planted.Game"},
    "labels": {"run": "collect_labels", "env": "planted:Game-v0"},
    "partner": {"run": "Verco", "env": OVERCOOKED, "config": {"pool": [{"policy": "planted:Mine"}]}},
    "demonstrations": {"run": "collect_demonstrations", "env": OVERCOOKED, "config": {"player": "planted:Mine"}},
    "player": {"run": "crossplay", "config": {"players": [{"policy": "planted:Mine"}]}},
    "stranger": {"run": "crossplay", "config": {"players": ["random"], "partners": {"x": ["planted:Mine"]}}},
}


@pytest.mark.parametrize("case", NAMES)
def test_names_of_code_are_refused_and_nothing_of_them_runs(case, planted, tmp_path):
    refused_file(tmp_path, {"a": NAMES[case]}, "`a.*--import|must be a function")
    assert not planted.exists()


@pytest.mark.parametrize("case", ["callbacks", "evaluation", "class of one"])
def test_an_imported_module_or_trust_allows_them(case, planted, tmp_path):
    allowed(NAMES[case], tmp_path, trust=True)
    refused_file(tmp_path, {"a": NAMES[case]}, "--import")
    import_modules(["planted"])
    allowed(NAMES[case], tmp_path)


def test_a_file_in_place_of_a_module_is_told_the_module():
    with pytest.raises(UserError, match=r"'my_game\.py' cannot be imported.*`--import my_game`"):
        import_modules(["my_game.py"])


READERS = {
    "input_read_method": "read_numpy", "input_read_method_kwargs": {"allow_pickle": True},
    "input_": ["x.npy"], "input": ".", "map_batches_kwargs": {"runtime_env": {"pip": ["x"]}},
    "output_write_method": "write_x", "extra_python_environs_for_worker": {"LD_PRELOAD": "/tmp/x.so"},
}  # fmt: skip


@pytest.mark.parametrize("key", READERS)
def test_readers_that_unpickle_are_refused(key, tmp_path):
    refused_file(tmp_path, {"a": ppo(**{key: READERS[key]})}, rf"`a.config.{key}` is .*--trust")


def test_recorded_episodes_are_read_by_rllib_only_with_trust(tmp_path):
    recorded = {"run": "BC", "config": {"input_": str(tmp_path), "env": "CartPole-v1"}}
    refused_file(tmp_path, {"a": recorded}, "`a.config.input_` .*--trust")


def test_words_of_settings_are_no_code(tmp_path):
    plain = {"model": {"fcnet_activation": "relu"}, "placement_strategy": "SPREAD", "rollout_fragment_length": "auto"}
    allowed(ppo(**plain), tmp_path)


def test_a_file_has_no_secret_sent(tmp_path):
    chat = {"model": "m", "base_url": "https://example.org/v1", "api_key_env": "AWS_SECRET_ACCESS_KEY"}
    spec = {"run": "chat_play", "env": OVERCOOKED, "config": {"chat": chat}}
    refused_file(tmp_path, {"a": spec}, r"`a\.config\.chat` .*AWS_SECRET_ACCESS_KEY.*--trust")
    allowed(spec, tmp_path, trust=True)


RUNS = {"eval": "open('it_ran', 'w')"}
PBT = {"time_attr": "training_iteration", "metric": "m", "mode": "max"}


@pytest.mark.parametrize(
    "spec",
    [
        ppo(lr=RUNS), ppo(env_config={"render_mode": RUNS}), ppo(env_config={"grid_search": [{"x": RUNS}]}),
        ppo(model={"fcnet_hiddens": [RUNS]}), ppo(policies={"choice": [RUNS]}),
        {"run": "Verco", "env": OVERCOOKED, "config": {"messages": "teacher", "teacher": RUNS}},
        {"run": "chat_play", "env": OVERCOOKED, "config": {"chat": {"model": "m", "api_key_env": RUNS}}},
        {**ppo(), "scheduler": "pbt", "scheduler_config": {**PBT, "hyperparam_mutations": {"lr": RUNS}}},
    ],
)  # fmt: skip
def test_what_ray_tune_evaluates_is_refused(spec, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused_file(tmp_path, {"a": spec}, r"`a\.[\w.\[\]]*\.eval` is Python.*--trust")
    assert not (tmp_path / "it_ran").exists()


@pytest.mark.parametrize(
    "mutations",
    [
        {"callbacks": ["planted.Mine"]},
        {"evaluation_config": {"callbacks": ["planted.Mine", "planted.Mine"]}},
        {"evaluation_config": [{"callbacks": "planted.Mine"}]},
        {"evaluation_config": {"evaluation_config": {"callbacks": ["planted.Mine"]}}},
        {"algorithm_config_overrides_per_module": {"p": {"callbacks_class": ["planted.Mine"]}}},
        {"algorithm_config_overrides_per_module": [{"p": {"callbacks_class": "planted.Mine"}}]},
        {"model": {"custom_model": ["planted.Mine"]}},
    ],
)
def test_what_a_scheduler_changes_names_no_code(mutations, planted, tmp_path):
    spec = {**ppo(), "scheduler": "pbt", "scheduler_config": {**PBT, "hyperparam_mutations": mutations}}
    refused_file(tmp_path, {"a": spec}, "names 'planted.Mine'")
    assert not planted.exists()


def test_what_a_scheduler_changes_has_no_secret_sent(tmp_path):
    chat = {"name": "chat", "model": "m", "base_url": "https://example.org/v1", "api_key_env": "AWS_SECRET_ACCESS_KEY"}
    for teacher in ([chat], {"base_url": ["https://example.org/v1"]}):
        mutations = {"scheduler": "pbt", "scheduler_config": {**PBT, "hyperparam_mutations": {"teacher": teacher}}}
        spec = {"run": "Verco", "env": OVERCOOKED, **mutations}
        refused_file(tmp_path, {"a": spec}, "to which it does not belong")


def test_a_study_names_no_code(planted, tmp_path):
    (tmp_path / "study.yaml").write_text(
        f"env: {OVERCOOKED}\nscenarios: {{B: {{map_name: B}}}}\n"
        "systems: {verco: {run: Verco, stop: {training_iteration: 1}, config: {callbacks: planted.Mine}}}\n"
    )
    file = expand(read_study(tmp_path / "study.yaml"), "s")
    with pytest.raises(UserError, match="`B.verco.config.callbacks` names 'planted.Mine'"):
        run_file(file, TrainSettings(storage_path=str(tmp_path / "results")))
    assert not planted.exists()


def test_a_file_of_partners_names_no_function(planted, tmp_path):
    (tmp_path / "partners.yaml").write_text("strangers: [{policy: 'planted:Mine'}]\n")
    with pytest.raises(UserError, match="`--partners` .*names 'planted:Mine'.*--import"):
        run_cross_play(["stay"], CrossPlaySettings(env="rllib_llm_comm/door-v0"), partners=tmp_path / "partners.yaml")
    assert not planted.exists()


CLASSES = ("callbacks", "callbacks_class", "env_runner_cls", "sample_collector", "policy_mapping_fn")


@pytest.mark.parametrize(
    ("key", "value"), [*((key, "evil") for key in CLASSES), *(("callbacks", bad) for bad in ({"type": "x"}, ["x"], 3))]
)
def test_what_is_no_class_or_function_is_refused_by_name(key, value, tmp_path):
    refused_file(tmp_path, {"a": ppo(**{key: value})}, rf"`a\.config\.{key}` is .*must be a (class|function)")


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"run": "collect_labels", "env": OVERCOOKED, "config": {"teacher": 1e-320}}, "`a.config.teacher` is 1e-320"),
        ({"run": "evaluate", "config": {"checkpoint": SALAD, "seed": {"grid_search": 7}}}, "`a.config.seed"),
        (ppo(output="unheard://x/y", batch_mode="complete_episodes"), "`a.config.output` is 'unheard://x/y'"),
        ({**ppo(), "scheduler": "pbt", "scheduler_config": {**PBT, "hyperparam_mutations": {"model": ["gs://b/x"]}}},
         "`a.scheduler_config.hyperparam_mutations.model` is 'gs://b/x'"),
    ],
)  # fmt: skip
def test_other_values_of_a_wrong_kind_are_refused_by_name(spec, told, tmp_path):
    refused_file(tmp_path, {"a": spec}, told)


def test_a_long_value_does_not_make_a_long_sentence(tmp_path):
    with pytest.raises(UserError, match="^`run` is 'xxx.*clone_officer") as caught:
        begin({"run": "x" * 5000}, tmp_path)
    assert len(str(caught.value)) < 2000


def test_a_pipe_in_place_of_a_model_is_refused_by_name(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    config = {"text_encoder": str(tmp_path / "pipe")}
    spec = {"run": "EMMA", "env": "rllib_llm_comm/overcooked_ai_subgoals-v0", "config": config}
    refused_file(tmp_path, {"a": spec}, "`text_encoder` is '.*pipe' but no such folder")


def test_places_of_one_word_are_no_code():
    assert names_code("module:function")
    assert not any(map(names_code, ("people:session", "trained:planner", "zoo:door")))
