"""Every family of algorithms plays games of strangers as they are, or says one sentence."""

from __future__ import annotations

import logging

import numpy as np
import odd_games
import pytest
from toys import language_model

from rllib_llm_comm import (
    CommNetConfig,
    MAPPOConfig,
    QMIXConfig,
    SymbolicPPOConfig,
    TWOSOMEConfig,
    VercoConfig,
    load_policy,
)
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.evaluation.rollout import evaluate, record
from tests.running import running

pytestmark = pytest.mark.usefixtures("small_ray")

# Of each kind of `Mixed` in order: mean of what both are paid; who comes later is paid 1 less per step, and so on.
RETURNS = [4, 4, 4, 3, 3.5, 1, 5, 5, 4.5, 5, 5, 5, 5]


def ppo(config, **settings):
    odd_games.register()
    return (
        config.env_runners(num_envs_per_env_runner=2)
        .training(train_batch_size_per_learner=48, minibatch_size=None, num_epochs=1, **settings)
        .debugging(seed=0)
    )


def language(config, **settings):
    return ppo(config.language_model(**language_model(max_candidate_tokens=12)), **settings)


def verco():
    return language(VercoConfig()).communication(messages="student", max_message_words=2)


def rloo():
    groups = language(TWOSOMEConfig(), advantages="rloo", group_size=2)
    return groups.env_runners(batch_mode="complete_episodes", num_envs_per_env_runner=2)


def qmix():
    odd_games.register()
    return (
        QMIXConfig()
        .policy_network(width=8)
        .training(train_batch_size_per_learner=2, buffer_episodes=20)
        .reporting(min_sample_timesteps_per_iteration=30)
        .debugging(seed=0)
    )


FAMILIES = {
    "MAPPO": lambda: ppo(MAPPOConfig()),
    "CommNet": lambda: ppo(CommNetConfig()),
    "Verco": verco,
    "RLOO": rloo,
    "QMIX": qmix,
}


def trained(config, env, folder, **settings):
    """The policy of one iteration, and its results."""
    with running(config.environment(env, env_config=settings)) as algo:
        results = algo.train()
        return load_policy(algo.save_to_path(str(folder / "checkpoint")), trust=True), results


# Strange games are odd in all ways of the mixed ones, too.
@pytest.mark.parametrize(
    ("family", "env"),
    [*((family, "odd/strange-v0") for family in FAMILIES), ("MAPPO", "odd/mixed-v0"), ("Verco", "odd/mixed-v0")],
)
def test_odd_games_are_played_and_learned(family, env, tmp_path):
    policy, results = trained(FAMILIES[family](), env, tmp_path)
    assert results["env_runners"]["num_episodes"] >= 4
    learned = next(iter(value for name, value in results["learners"].items() if name != "__all_modules__"))
    losses = [float(value) for name, value in learned.items() if "loss" in name]
    assert losses and np.isfinite(losses).all()
    result = evaluate(policy, episodes=len(RETURNS), num_envs=1)
    assert result.returns == RETURNS
    episode = record(policy, seed=1)[0]
    assert sorted(episode.agents) == sorted(map(str, policy.env().possible_agents))


@pytest.mark.parametrize(
    ("config", "kind"),
    [(lambda: ppo(SymbolicPPOConfig()), "lists"), (lambda: ppo(MAPPOConfig()), "image"), (qmix, "image"),
     (qmix, "shapes differ"), (qmix, "actions differ"), (lambda: ppo(MAPPOConfig()), "masked"), (qmix, "masked")],
)  # fmt: skip
def test_lists_images_masks_and_uneven_teams_are_learned(config, kind, tmp_path):
    policy, _ = trained(config(), "odd/game-v0", tmp_path, kind=kind)
    assert evaluate(policy, episodes=2).returns == [odd_games.LENGTH] * 2


@pytest.mark.parametrize(
    ("family", "kind"),
    [(family, kind) for family in ("MAPPO", "Verco") for kind in ("shapes differ", "actions differ")]
    + [(family, kind) for family in ("MAPPO", "Verco", "QMIX") for kind in odd_games.SPACES],
)
def test_spaces_that_cannot_be_learned_are_refused_before_training(family, kind):
    config = FAMILIES[family]().environment("odd/game-v0", env_config={"kind": kind})
    agent = "b" if "differ" in kind else "a"
    with pytest.raises(UserError, match=rf"space of agent '{agent}' is .*") as told:
        config.build_algo()
    if kind in odd_games.SPACES:
        told.match(odd_games.SPACES[kind])


@pytest.mark.parametrize("family", ["MAPPO", "Verco", "QMIX"])
@pytest.mark.parametrize("kind", ["reward nan", "all masked"])
def test_what_is_seen_in_play_ends_training_in_one_sentence(family, kind, caplog):
    config = FAMILIES[family]().environment("odd/game-v0", env_config={"kind": kind})
    with running(config) as algo:
        with caplog.at_level(logging.ERROR, "ray.rllib"), pytest.raises(UserError, match="agent 'a' in step 3 is"):
            algo.train()
        assert not any(record.exc_info for record in caplog.records)  # no traceback beside it


@pytest.mark.parametrize("family", ["MAPPO", "QMIX"])
def test_what_a_game_raises_in_its_first_step_ends_training_as_it_is(family):
    config = FAMILIES[family]().environment("odd/game-v0", env_config={"kind": "fails"})
    with running(config) as algo, pytest.raises(ZeroDivisionError, match="the game itself"):
        algo.train()


@pytest.mark.parametrize("family", ["MAPPO", pytest.param("QMIX", marks=pytest.mark.slow)])
def test_runners_elsewhere_tell_what_they_see(family):
    """RLlib would log it, make the runner anew and go on without samples."""
    config = FAMILIES[family]().environment("odd/game-v0", env_config={"kind": "reward nan"})
    told = "reward of agent 'a' in step 3 is nan"
    with running(config.env_runners(num_env_runners=1)) as algo, pytest.raises(UserError, match=told):
        algo.train()


def test_games_that_fail_are_made_anew_where_rllib_is_told_so(caplog):
    config = FAMILIES["MAPPO"]().environment("odd/game-v0", env_config={"kind": "reward nan"})
    with running(config.fault_tolerance(restart_failed_sub_environments=True)) as algo:
        with caplog.at_level(logging.ERROR, "ray.rllib"):
            algo.env_runner._try_env_step([{"a": 0, "b": 0}] * 2)
            algo.env_runner.env.reset(seed=0)
            for _ in range(3):
                algo.env_runner._try_env_step([{"a": 0, "b": 0}] * 2)
        assert any("reset" in record.message and "'a' in step 3" in record.message for record in caplog.records)
