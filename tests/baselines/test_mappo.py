"""MAPPO as an algorithm: runners, learners, checkpoints, and that a critic which sees more teaches sooner."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from toys import Luck

from rllib_llm_comm import MAPPOConfig, load_policy
from rllib_llm_comm.evaluation.rollout import evaluate
from rllib_llm_comm.policies.numeric_network import team_vectors
from rllib_llm_comm.rl.rllib_adapter import register_parallel_env
from tests.refusal import refused
from tests.running import curve, running

pytestmark = pytest.mark.usefixtures("small_ray")


def luck(**settings):
    register_parallel_env("toys/luck", entry=Luck)
    return (
        MAPPOConfig()
        .environment("toys/luck", env_config=settings, disable_env_checking=True)
        .env_runners(num_envs_per_env_runner=4)
        .training(train_batch_size_per_learner=64, num_epochs=2)
        .debugging(seed=0)
    )


def learned(algo):
    return algo.learner_group._learner.module["shared"].unwrapped()


@pytest.fixture(scope="module")
def trained(small_ray, tmp_path_factory):
    """An algorithm after two iterations, its curve, and its checkpoint."""
    with running(luck()) as algo:
        yield algo, curve(algo), algo.save_to_path(str(tmp_path_factory.mktemp("trained") / "checkpoint"))


@pytest.mark.parametrize(
    ("critic", "told", "seen"),
    [("auto", True, "state"), ("auto", False, "team"), ("own", True, "own")],
)
def test_the_policy_without_ray_acts_as_the_module_and_without_what_only_the_critic_needs(critic, told, seen, tmp_path):
    with running(luck(state=told).policy_network(critic_observation=critic)) as algo:
        for _ in range(2):
            algo.train()
        path = algo.save_to_path(str(tmp_path / "checkpoint"))
        network = learned(algo).network
    policy = load_policy(path)
    assert policy.network.settings.critic_observation == seen
    assert float(policy.network.value_norm.std) == float(network.value_norm.std) > 5
    observations, _ = Luck(state=told).reset(seed=3)
    decisions = policy.act(observations, explore=False)
    vectors = {agent: observed["vector"] for agent, observed in observations.items()}
    for agent, observed in observations.items():
        batch = {
            "vector": torch.from_numpy(vectors[agent])[None],
            "team_vectors": torch.from_numpy(team_vectors(agent, ["alice", "bob"], vectors))[None],
            "action_mask": torch.ones(1, 3),
        }
        if told:
            batch["critic_state"] = torch.from_numpy(observed["state"].astype(np.float32)).reshape(1, -1)
        with torch.no_grad():
            np.testing.assert_allclose(decisions[agent].probabilities, network.logits(batch).softmax(-1)[0], atol=1e-6)
            assert decisions[agent].value == pytest.approx(float(network.values(batch)), rel=1e-5)
    policy.reset(seed=0)
    alone = policy.act({"bob": {"vector": vectors["bob"]}}, explore=False)["bob"]
    # A state that is not told is missing; an agent that was not seen may be still to come, as in training.
    assert np.isnan(alone.value) == (seen == "state")
    np.testing.assert_allclose(alone.probabilities, decisions["bob"].probabilities, rtol=1e-6)


def test_same_seed_same_curve(trained):
    with running(luck()) as algo:
        assert curve(algo) == trained[1]


def test_a_restored_run_goes_on_equally(trained):
    algo, _, path = trained
    with running(type(algo).from_checkpoint(path)) as again:
        assert again.training_iteration == 2
        episodes = algo.env_runner.sample(num_timesteps=32)
        for one in (algo, again):
            one.learner_group._learner.update(
                episodes=copy.deepcopy(episodes), num_epochs=3, timesteps={"num_env_steps_sampled_lifetime": 0}
            )
        first, second = learned(algo).state_dict(), learned(again).state_dict()
        assert int(first["value_norm.updates"]) == 2 * 2 + 3
        assert all(torch.equal(value, second[name]) for name, value in first.items())
        assert np.isfinite(float(again.train()["learners"]["shared"]["vf_loss"]))


@pytest.mark.slow
def test_a_critic_that_sees_more_teaches_sooner(tmp_path):
    """Rewards are nearly all luck: a critic that sees the luck takes it out of the advantages."""
    shares = {}
    for critic in ("state", "team", "own"):
        with running(
            luck()
            .policy_network(critic_observation=critic)
            .training(train_batch_size_per_learner=512, num_epochs=15, gamma=0.0, lr=2e-3, critic_lr=2e-3)
            .env_runners(num_envs_per_env_runner=8)
        ) as algo:
            for _ in range(10):
                algo.train()
            path = algo.save_to_path(str(tmp_path / critic))
        # Without luck the return is the number of right answers of 8.
        shares[critic] = evaluate(load_policy(path), episodes=20, env=Luck(luck=0.0)).return_mean / 8
    assert shares["state"] > 0.9 and shares["team"] > 0.9, shares
    assert shares["own"] < 0.7, shares


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        (lambda c: c.policy_network(critic_observation="partner"), ("critic_observation", "choice")),
        (lambda c: c.learners(num_learners=2), ("minibatch_size",)),
        (lambda c: c.update_from_dict({"use_valuenorm": True}), ("use_valuenorm", "unknown", "'use_value_norm'")),
    ],
)
def test_bad_settings(change, wrong):
    with refused(*wrong):
        change(luck()).validate()
