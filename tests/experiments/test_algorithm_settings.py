"""`config:` is checked against the algorithm's own settings before anything starts."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from ray import cloudpickle

from rllib_llm_comm import MAPPO, MAPPOConfig, VercoConfig
from rllib_llm_comm.baselines.numeric.mappo import MAPPOTraining
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.experiments import tune_stage
from rllib_llm_comm.experiments.algorithm_settings import check_config, find_algorithm, fits
from rllib_llm_comm.experiments.env_settings import check_environment, check_planned_environment
from rllib_llm_comm.experiments.experiment_file import make_experiment
from rllib_llm_comm.experiments.ray_session import available_cpus
from rllib_llm_comm.experiments.search_space import (
    check_searches,
    first_point,
    grid_points,
    has_draws,
    has_search,
    single_points,
    to_tune,
)
from rllib_llm_comm.experiments.stages import Stage
from rllib_llm_comm.experiments.stages_without_tune import STAGE_KINDS
from rllib_llm_comm.experiments.tune_stage import tune_config
from rllib_llm_comm.policies.numeric_network import NumericSettings
from rllib_llm_comm.rl.algorithms import ALGORITHMS, register_algorithm
from rllib_llm_comm.rl.strict_config import select_fields, with_defaults
from rllib_llm_comm.verco.sft import MessageSFT
from tests.refusal import refused

KITCHEN = "rllib_llm_comm/overcooked_text-v0"


@pytest.fixture(scope="module")
def ppo():
    return find_algorithm("PPO")


def test_settings_reach_the_config(ppo):
    given = {"env": "CartPole-v1", "lambda": 0.9, "framework": "torch", "train_batch_size_per_learner": 256, "seed": 3}
    config = check_config("a", ppo, given)
    assert (config.lambda_, config.train_batch_size_per_learner, config.seed) == (0.9, 256, 3)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"lrr": 1}, ("a.config.lrr", "unknown", "'lr'")),
        ({"num_sgd_iter": 3}, ("a.config.num_sgd_iter", "unknown", "'num_epochs'")),
        ({"lr": "fast"}, ("a.config.lr", "type", "`a.config.lr` is 'fast' .*number")),
        ({"gamma": 1.5}, ("a.config.gamma", "range")),
        ({"env_config": 3}, ("a.config.env_config", "type")),
        ({"lr": {"grid_search": [0.1, "x"]}}, ("a.config.lr", "type", "'x'")),
        ({"entropy_coeff": {"grid_search": [0.0, -0.5]}}, ("a.config.entropy_coeff",)),
        ({"lr": {"by_seed": [0.1]}}, ("a.config.lr.by_seed",)),
        ({"seed": {"grid_search": [0]}, "env_config": {"a": {"by_seed": [1, 2]}}}, ("a.config.env_config.a.by_seed",)),
        ({"framework": "tf2"}, ("a.config.framework",)),
        ({"enable_rl_module_and_learner": False}, ("a.config.enable_rl_module_and_learner",)),
        ({"train_batch_size_per_learner": 10, "minibatch_size": 20}, ("a.config.minibatch_size",)),
        ({"evaluation_config": {"exploar": 1}}, ("a.config.evaluation_config.exploar", "unknown", "'explore'")),
    ],
)  # fmt: skip
def test_wrong_settings_are_named(ppo, settings, told):
    with refused(*told) as caught:
        check_config("a", ppo, {"env": "CartPole-v1", **settings})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("algorithm", "settings", "told"),
    [
        ("Verco", {"messages": "studnt"}, ("messages", "choice", "Did you mean 'student'")),
        ("Verco", {"gamma": {"grid_search": [0.9, 2]}}, ("gamma", "range", "from 0 to 1")),
        ("Verco", {"num_epochs": True}, ("num_epochs", "type")),
        ("Verco", {"lr": None}, ("lr", "type")),
        ("Verco", {"grad_clip_by": "golbal_norm"}, ("grad_clip_by", "choice")),
        ("Verco", {"batch_mode": "complete"}, ("batch_mode", "choice")),
        ("Verco", {"model": {"fcnet_hiddens": [1]}}, ("model", "unknown")),
        ("Verco", {"learning_rate": 0.1}, ("learning_rate", "unknown", "rllib example defaults Verco")),
        ("Verco", {"evaluation_config": 5}, ("evaluation_config", "type")),
        ("Verco", {"policies": 5}, ("policies", "type")),
        ("Verco", {"policies": None}, ("policies", "type")),
        ("Verco", {"teacher": {"nam": "scripted"}}, ("teacher.nam", "unknown")),
        ("MAPPO", {"policies": True}, ("policies", "type")),
        ("PBT", {"mutate": ["lrr"]}, ("mutate.0", "choice")),
    ],
)
def test_wrong_settings_of_ours_are_named_as_their_models_do(algorithm, settings, told):
    with refused(f"a.config.{told[0]}", *told[1:]):
        check_config("a", find_algorithm(algorithm), {"env": KITCHEN, **settings})


def test_a_setting_of_another_method_is_told_with_its_method():
    with refused("messages", "unknown", r"\.communication\("):
        VercoConfig().training(messages="none")


@pytest.mark.parametrize(
    ("algorithm", "module", "differing", "told"),
    [
        ("Verco", "shared", {"entropy_coeff": -5}, ".shared.entropy_coeff` is -5"),
        ("Verco", "nobody", {"entropy_coeff": 0.5}, "` is 'nobody' .* 'shared'"),
        ("Verco", "shared", None, ".shared` is None but must be a mapping"),
        ("MAPPO", "nobody", {"lr": 0.1}, "` is 'nobody' .* 'shared'"),
        ("QMIX", "shared", {"lr": 0.1}, "` is 'shared' .* 'default_policy'"),
    ],
)
def test_settings_of_single_modules_are_checked(algorithm, module, differing, told):
    given = {"env": "rllib_llm_comm/door-v0", "algorithm_config_overrides_per_module": {module: differing}}
    with pytest.raises(UserError, match=f"algorithm_config_overrides_per_module{told}"):
        check_config("a", find_algorithm(algorithm), given)


@pytest.mark.parametrize("algorithm", ["QMIX", "MAPPO"])
def test_a_policy_per_agent_is_refused_where_a_team_acts_by_one(algorithm):
    found = find_algorithm(algorithm)
    with refused("a.config.policies"):
        check_config("a", found, {"env": KITCHEN, "policies": "per_agent"})
    with refused("policies"):
        found.get_default_config().environment(KITCHEN).multi_agent(policies="per_agent").validate()


def test_names_and_fields_that_are_none_are_refused():
    for name in ("Verco", *STAGE_KINDS):
        with pytest.raises(UserError, match=f"`name` is '{name}'"):
            register_algorithm(name, find_algorithm("TWOSOME"))
    with refused("algorithm"):
        register_algorithm("Mine", 3)
    with pytest.raises(ValueError, match="NumericSettings has no setting 'hidens'.*'hiddens'"):
        select_fields(NumericSettings, "hidens")
    with pytest.raises(ValueError, match="NumericSettings has no setting 'hidens'.*'hiddens'"):
        with_defaults(hidens=[8])(NumericSettings)


def test_a_config_builds_the_class_that_names_it():
    for algorithm in ALGORITHMS.values():
        config = algorithm.get_default_config()
        assert config.algo_class is type(config)().algo_class is pickle.loads(pickle.dumps(config)).algo_class
        assert config.algo_class is algorithm and type(config).__name__ == f"{algorithm.__name__}Config"

    class OwnConfig(MAPPOConfig):
        pass

    class Own(MAPPO):
        config_class = OwnConfig

    class Child(Own):
        config_class = OwnConfig

    class Plain(MAPPO):
        pass

    assert (OwnConfig().algo_class, MAPPOConfig().algo_class) == (Own, MAPPO)
    copied, config = cloudpickle.loads(cloudpickle.dumps((Own, OwnConfig())))
    assert copied is config.algo_class is copied.config_class.algorithm[0] is copied.get_default_config().algo_class
    with pytest.raises(UserError, match="`a.config.extra` is no setting of Plain, whose config is MAPPOConfig"):
        check_config("a", Plain, {"extra": 1})

    class LongConfig(MAPPOConfig):
        pass

    class Long(MAPPO):
        @classmethod
        def get_default_config(cls):
            return LongConfig()

    with pytest.raises(UserError, match="`algorithm` is Long but .*LongConfig builds MAPPO; write `config_class"):
        register_algorithm("Long", Long)


def test_other_defaults_keep_all_else_of_a_field():
    other = with_defaults(hiddens=(8,))(NumericSettings)
    assert (
        other().hiddens == (8,)
        and NumericSettings().hiddens != (8,)
        and list(other.model_fields) == list(NumericSettings.model_fields)
    )
    ours, theirs = other.model_fields["hiddens"], NumericSettings.model_fields["hiddens"]
    assert (ours.description, ours.annotation) == (theirs.description, theirs.annotation)
    with refused("hiddens.0", "range"):
        other(hiddens=(0,))
    config = find_algorithm("MAPPO").get_default_config()
    assert all(getattr(config, name) == value for name, value in MAPPOTraining.defaults().items())


def test_fluent_methods_take_the_model_of_their_settings():
    config = find_algorithm("MAPPO").get_default_config().training(MAPPOTraining(gamma=0.5, lr=0.1), lr=0.2)
    assert (config.gamma, config.lr, config.critic_lr) == (0.5, 0.2, 5e-4)
    for given in (NumericSettings(hiddens=(8,)), {"gamma": 0.5}):
        with pytest.raises(UserError, match="training"):
            config.training(given)


def test_the_planner_of_the_periodic_evaluation_is_checked_before_anything_runs():
    emma, played = find_algorithm("EMMA"), {"planner": "scripted"}
    config = check_config("a", emma, {"evaluation_config": played})
    check_planned_environment("a", config)
    assert config.planner is None
    with refused("a.config.evaluation_config.planner", "unknown"):
        check_config("a", emma, {"evaluation_config": {**played, "planner": "scriptde"}})
    later = {**played, "planner": {"name": "random", "subgoals": "/to/come/subgoals.json"}}
    check_planned_environment("a", check_config("a", emma, {"evaluation_config": later}, ("/to/come",)))
    with pytest.raises(UserError, match="`subgoals_to` is .*nobody plans"):
        check_config("a", emma, {"subgoals_to": ["alice"]})
    lost = check_config("a", emma, {"evaluation_config": {**played, "subgoals_to": ["carol"]}})
    with refused("a.config.evaluation_config.subgoals_to", "choice"):
        check_planned_environment("a", lost)


def test_a_guess_is_refused_where_nothing_is_hidden_before_anything_runs():
    ppo, guessing = find_algorithm("SymbolicPPO"), {"name": "disturbed", "planner": {"name": "guessing"}}
    game = {"env": KITCHEN, "planner": guessing}
    hidden = {"map_name": "B", "recipe": ["tomato salad", "onion salad"], "told_to": "planner", "observe": ["vector"]}
    check_planned_environment("a", check_config("a", ppo, {**game, "env_config": hidden}))
    told = check_config("a", ppo, {**game, "env_config": {**hidden, "told_to": "all"}})
    with pytest.raises(UserError, match="In `a.config`: `planner` is 'guessing' .*hides nothing"):
        check_planned_environment("a", told)


def test_complaints_about_results_to_come_are_ignored():
    algorithm = find_algorithm("MessageSFT")
    check_config("a", algorithm, {"input_": "/labels/(not there yet)"}, ("/labels/(not there yet)",))


def test_unknown_algorithm_gets_a_hint():
    with pytest.raises(UserError, match="mean 'Verco'"):
        find_algorithm("Vercoo", ["evaluate"])


def test_search_spaces():
    config = {"lr": {"loguniform": [1e-4, 1e-2]}, "seed": {"grid_search": [0, 1, 2]}, "env_config": {"a": 1}}
    assert has_search(config) and grid_points(config) == 3
    assert first_point(config) == {"lr": 1e-4, "seed": 0, "env_config": {"a": 1}}
    converted = to_tune(config)
    assert 1e-4 <= converted["lr"].sample() <= 1e-2
    assert converted["seed"] == {"grid_search": [0, 1, 2]}
    assert has_search(converted) and not has_search({"env_config": {"a": {"b": 1}}})
    assert has_draws(converted) and not has_draws({"seed": {"grid_search": [0, 1]}, "x": {"by_seed": [3, 4]}, "y": 2})


def test_environments():
    check_environment("a", "CartPole-v1", {})
    check_environment("a", KITCHEN, {"map_name": {"grid_search": ["A", "B"]}})
    with pytest.raises(UserError, match="`layout` is 'ful'.*'full'"):
        check_environment("a", KITCHEN, {"layout": "ful"})
    with refused("a.config.env_config.map_name", "choice"):
        check_environment("a", KITCHEN, {"map_name": {"grid_search": ["A", "Z"]}})
    with pytest.raises(UserError, match="mean 'CartPole-v1'"):
        check_environment("a", "CartPol-v1", {})


def cpus_of_a_trial(ppo, *ray_has, **settings):
    spec = {"run": "PPO", "env": "CartPole-v1", "config": {"num_env_runners": 0, **settings}}
    return tune_config(make_experiment("a", spec), ppo, *ray_has).get("num_cpus_for_main_process")


def test_a_trial_in_one_process_gets_all_cores_that_ray_has(ppo):
    assert cpus_of_a_trial(ppo) == cpus_of_a_trial(ppo, 999) == available_cpus()
    assert cpus_of_a_trial(ppo, 1) == cpus_of_a_trial(ppo, num_cpus_for_main_process=1) == 1
    assert cpus_of_a_trial(ppo, num_env_runners=1) is cpus_of_a_trial(ppo, seed={"grid_search": [0, 1]}) is None


def test_a_trial_that_reads_data_leaves_cpus_for_that():
    spec = {"run": "MessageSFT", "config": {"input_": "labels"}, "stop": {"training_iteration": 1}}
    sft = make_experiment("sft", spec)
    for most in (3, 4, 999):
        assert tune_config(sft, MessageSFT, most)["num_cpus_for_main_process"] == min(available_cpus(), most - 2)
    assert tune_config(sft, MessageSFT, 1)["num_cpus_for_main_process"] == 1  # and the sentence says: give 3


@pytest.mark.parametrize(
    ("space", "words"),
    [
        ({"grid_search": 7}, "must be a list"), ({"uniform": [1, 0]}, "smaller number first"),
        ({"uniform": [0, float("inf")]}, "finite"), ({"loguniform": [0, 1]}, "above 0"),
        ({"quniform": [0, 1, 0]}, "step above 0"), ({"randn": [0, -1]}, "deviation"),
    ],
)  # fmt: skip
def test_search_spaces_that_cannot_be_searched(space, words):
    with pytest.raises(UserError, match=f"`a.config.x.*{words}"):
        check_searches("a.config", {"x": {"y": space}})


def test_every_value_of_a_search_space_is_checked():
    points = list(single_points({"a": {"grid_search": [1, 2]}, "b": {"c": {"choice": [3, 4]}, "d": 5}}))
    inner = {"c": 3, "d": 5}
    assert points == [{"a": 1, "b": inner}, {"a": 2, "b": inner}, {"a": 1, "b": {"c": 4, "d": 5}}]


@pytest.mark.parametrize(
    ("scheduler", "arguments", "wrong"),
    [
        ("asha", {"metric": 5}, ("a.scheduler_config.metric", "type")),
        ("asha", {"metric": "x", "mode": "max", "max_t": -1}, ("a.scheduler_config",)),
        ("asha", {"grace": 1}, ("a.scheduler_config.grace",)),
        ("pbt", {"hyperparam_mutations": {"lrr": [1]}}, ("a.scheduler_config.hyperparam_mutations.lrr", "unknown")),
        ("pbt", {"custom_explore_fn": "os.system"}, ("a.scheduler_config.custom_explore_fn", "type")),
    ],
)
def test_arguments_of_schedulers(scheduler, arguments, wrong):
    spec = {"run": "PPO", "env": "CartPole-v1", "scheduler": scheduler, "scheduler_config": arguments}
    with refused(*wrong):
        tune_stage.check(Stage("a", make_experiment("a", spec), Path("x")), ())


def test_a_run_of_another_version_is_not_gone_on_with(monkeypatch, tmp_path):
    def unpickle(*_, **__):
        return pickle.loads(b"crllib_llm_comm.rl.callbacks\nLongGone\n.")

    monkeypatch.setattr("ray.tune.run", unpickle)
    monkeypatch.setattr(tune_stage, "ray_is_local", lambda: False)
    stage = Stage("a", make_experiment("a", {"run": "PPO", "env": "CartPole-v1"}), tmp_path / "a")
    with pytest.raises(UserError, match="was begun by another version .*LongGone"):
        tune_stage._run_trials(stage, {}, None, resume=True, restore=None, cpus=1)


@pytest.mark.parametrize(
    ("value", "annotation", "may"),
    [
        ([1, 2], list[int], True), ([1, "x"], list[int], False), ([None], list[str | None], True),
        ("x", Sequence[str], False), ({"a": "x"}, Mapping[str, int], False),
        ([[0, 1.0], [5, 0.5]], list[tuple[int, float]], True), ([[0, 1.0, 2]], list[tuple[int, float]], False),
        ("os.system", Callable[[int], int] | None, False), (None, int, True), (3, str | Path, False),
        (["x.npy"], str | Callable[[int], int], True), ({"a": None}, dict[str, dict[str, int]], True),
    ],
)  # fmt: skip
def test_elements_have_types_too(value, annotation, may):
    assert fits(value, annotation) is may
