"""Fictitious co-play: a population of self-play, kept at three ages, and the best response to it."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from rllib_llm_comm import FCPConfig, load_policy
from rllib_llm_comm.baselines.population.fcp import FCP, MEMBER_SETTINGS
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.rl.multi_agent_ppo import PPOTraining
from tests.refusal import refused
from tests.running import cooks, running

pytestmark = pytest.mark.usefixtures("small_ray")


def config(**population):
    small = {"size": 2, "member_iterations": 3, "iterations_per_task": 2, "member_keep_every": 1}
    made = cooks(FCPConfig, rows=120, horizon=10, width=8, num_epochs=1).debugging(seed=4)
    return made.population(**{**small, **population})


def files_of(algo):
    return {
        (member.seed, name): one.policy.files["network.safetensors"]
        for member in algo._population.members
        for name, one in member.milestones.items()
    }


@pytest.fixture(scope="module")
def grown(small_ray, tmp_path_factory):
    """A population that is done and its response's first iteration: both checkpoints, results, policies and weights."""
    folder = tmp_path_factory.mktemp("grown")
    with running(config(member_iterations=2, iterations_per_task=1)) as algo:
        results = [algo.train() for _ in range(2)]
        midst = algo.save_to_path(str(folder / "midst"))
        results += [algo.train() for _ in range(3)]
        assert all(member.state is None for member in algo._population.members)
        return algo.save_to_path(str(folder / "done")), midst, results, files_of(algo), weights(algo)


def weights(algo):
    return algo.learner_group._learner.module["shared"].get_state()


def test_the_population_comes_first_then_the_response_and_a_checkpoint_keeps_both(grown):
    done, _, results, policies, _ = grown
    assert [one["population"]["member_iterations"] for one in results] == [1, 2, 3, 4, 4]
    assert [bool(one.get("should_checkpoint")) for one in results] == [True] * 4 + [False]
    # Members: 20 steps of 3 games in each of 2 iterations; the learner 40 in its first.
    assert results[3]["population"]["game_steps"] == 2 * 2 * 60 == results[3]["game_steps_with_population"]
    assert results[4]["game_steps_with_population"] == 2 * 2 * 60 + 120
    assert results[4]["env_runners"]["num_module_steps_sampled"]["shared"] == 120
    assert len({bytes(content) for content in policies.values()}) == len(policies) == 6
    names = sorted(folder.name for folder in (Path(done) / "population").iterdir())
    assert names == [f"seed_{seed}_{age}" for seed in (5000, 5001) for age in ("final", "half_way", "initial")]
    partner = load_policy(Path(done) / "population" / "seed_5000_initial")
    assert partner.manifest.algorithm == "SelfPlayPPO" and partner.manifest.provenance["training_iteration"] == 0
    assert load_policy(done).manifest.algorithm == "FCP"
    with running(FCP.from_checkpoint(done)) as later:
        assert files_of(later) == policies
        assert later.train()["population"]["members_done"] == 2 and len(later._pool.partners) == 6
        assert {partner.weight for partner in later._pool.partners} == {1.0}


def test_a_population_is_gone_on_with_from_its_midst(grown):
    """Members go on from their last part as if nothing had been interrupted; then the response learns the same."""
    _, midst, _, policies, learned = grown
    assert not (Path(midst) / "population").exists()
    with running(FCP.from_checkpoint(midst)) as again:
        assert sum(member.iterations for member in again._population.members) == 2
        resumed = [again.train() for _ in range(3)]
        assert [one["population"]["member_iterations"] for one in resumed] == [3, 4, 4]
        assert resumed[-1]["game_steps_with_population"] == 2 * 2 * 60 + 120
        assert files_of(again) == policies
        assert all(np.array_equal(value, learned[name]) for name, value in weights(again).items())


def test_another_learner_takes_the_population_of_an_earlier_run(grown, tmp_path):
    done, policies = shutil.copytree(grown[0], tmp_path / "done"), grown[3]
    settings = config(population_from=str(done), past_checkpoints=False).debugging(seed=9)
    assert [one["CPU"] for one in FCP.default_resource_request(settings.to_dict()).bundles] == [1]
    with running(settings) as second:
        found = second.train()
        assert files_of(second) == policies
        assert sorted(one.name for one in second._pool.partners) == ["seed_5000_final", "seed_5001_final"]
        # The steps of its members count, though others trained them.
        assert found["game_steps_with_population"] == 2 * 2 * 60 + 120
        again = second.save_to_path(str(tmp_path / "again"))
    # The members of an ablation have all their ages; what means nothing to a learner is not checked when it goes on.
    assert len(list((Path(again) / "population").iterdir())) == 6
    with running(config(population_from=again, member_iterations=1).training(train_batch_size_per_learner=63)) as odd:
        odd.train()
        assert len(odd._pool.partners) == 6
        odd.save_to_path(str(tmp_path / "odd"))
    FCP.from_checkpoint(str(tmp_path / "odd")).stop()
    with running(config(population_from=str(tmp_path / "odd"))) as own:  # the remedy where the first folder is gone
        own.restore_from_path(str(tmp_path / "odd"))
        assert own.train()["training_iteration"] == 2 and files_of(own) == policies
    with pytest.raises(UserError, match="`env_config.dynamics`"):
        config(population_from=again).environment(env_config={"dynamics": "new"}).validate()
    shutil.rmtree(Path(again) / "population" / "seed_5001_half_way")
    with pytest.raises(UserError, match="5001 .*'half_way'"):
        config(population_from=again).validate()
    config(population_from=again, past_checkpoints=False).validate()
    shutil.rmtree(done)
    with running(FCP.from_checkpoint(again)) as third:
        assert files_of(third) == policies


def test_tune_reserves_cpus_for_the_members():
    def bundles(**population):
        settings = config(**population).to_dict()
        return [bundle.get("CPU") for bundle in FCP.default_resource_request(settings).bundles]

    assert bundles(members_at_once=2, num_cpus_per_member=3) == [1, 3, 3]
    assert bundles(size=1, members_at_once=5) == [1, 1]


def test_members_differ_by_their_seed_alone():
    settings = config().training(lr=3e-4).env_runners(num_env_runners=2)
    member = settings.member_config()
    assert (member.lr, member.num_env_runners, member.hiddens, member.keep_policy_every) == (3e-4, 0, [8], 1)
    assert member.env_config["horizon"] == 10
    own = config(member_settings={"num_epochs": 7, "shaping_horizon": None})
    assert (own.num_epochs, own.member_config().num_epochs, own.member_config().shaping_horizon) == (1, 7, None)
    assert {one.seed for one in config().debugging(seed=0).members()}.isdisjoint(range(1000))
    assert len({seed for run in range(3) for seed in (one.seed for one in config().debugging(seed=run).members())}) == 6


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda c: c.population(size=0), ("population_size", "range")),
        (lambda c: c.population(member_settings=["num_epochs"]), ("member_settings", "type")),
        (
            lambda c: c.population(member_settings={"num_epoch": 2}),
            ("member_settings", "invalid", "Did you mean 'num_epochs'"),
        ),
        (
            lambda c: c.population(member_settings={"minibatch_size": 999}),
            ("", "invalid", "^Members .*`minibatch_size` is 999"),
        ),
        (lambda c: c.training(minibatch_size=121), ("minibatch_size",)),
        (
            lambda c: c.population(population_from="nowhere"),
            ("population_from", "invalid", "nothing"),
        ),
        (
            lambda c: c.population(population_from="tests"),
            ("population_from", "invalid", "checkpoint"),
        ),
        (
            lambda c: c.population(population_from="zoo:soup"),
            ("population_from", "invalid", "folder"),
        ),
        (lambda c: c.partners(pool=["random"]), ("pool",)),
        (lambda c: c.environment(env_config={"horizon": 100}), ("iterations_per_task",)),
    ],
)
def test_bad_settings_are_named(change, why):
    with refused(*why):
        change(config()).validate()


def test_members_have_settings_of_their_own_and_no_others():
    config(member_settings={name: getattr(config(), name) for name in MEMBER_SETTINGS}).validate()
    assert {*PPOTraining.model_fields, "shaping_horizon", "hiddens"} <= set(MEMBER_SETTINGS)
    for name in ("seed", "population_size", "env"):
        with pytest.raises(UserError, match=f"^`member_settings` has '{name}'"):
            config(member_settings={name: getattr(FCPConfig(), name)}).validate()
