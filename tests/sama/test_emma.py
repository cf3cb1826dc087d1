"""EMMA as an algorithm: it trains, is saved, acts without Ray as in training, and learns to follow words."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from kitchens import small_emma

from rllib_llm_comm import EMMAConfig, load_policy
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.overcooked_ai.subgoal_env import subgoal_env
from rllib_llm_comm.evaluation.replay import write_replay
from rllib_llm_comm.evaluation.rollout import evaluate, record
from rllib_llm_comm.language.text_encoder import load_text_encoder
from rllib_llm_comm.sama.emma.network import EmmaEncoder
from tests.refusal import refused
from tests.running import curve, running

pytestmark = pytest.mark.usefixtures("small_ray")


def config():
    return small_emma(layout="cramped_room", horizon=20).training(num_epochs=2)


def train_twice(algo, folder):
    """What each of two iterations learned, and their checkpoint."""
    learned = [algo.train()["learners"]["shared"] for _ in range(2)]
    return learned, algo.save_to_path(str(folder / "checkpoint"))


@pytest.fixture(scope="module")
def trained(small_ray, tmp_path_factory):
    """What two iterations learned, their checkpoint, and the network that learned."""
    with running(config()) as algo:
        network = algo.learner_group._learner.module["shared"].unwrapped().network
        return *train_twice(algo, tmp_path_factory.mktemp("trained")), network


@pytest.mark.parametrize("apart", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_trains_saves_and_plays(apart, trained, tmp_path):
    learned, path, _ = trained
    if apart:
        with running(config().env_runners(num_env_runners=1).learners(num_learners=2)) as algo:
            learned, path = train_twice(algo, tmp_path)
    for one in learned:
        assert float(one["ratio_first_minibatch"]) < 1e-4
        assert np.isfinite([float(one[name]) for name in ("policy_loss", "vf_loss", "value_norm_std")]).all()
    policy = load_policy(path)
    assert policy.manifest.algorithm == "EMMA" and policy.manifest.kind == "grounded"
    env = policy.env(subgoals="planner")
    result = evaluate(policy, episodes=2, env=env)
    assert result.lengths == [20] * 2 and "subgoals_share" in result.metrics
    assert "overcooked_ai" in write_replay(record(policy), tmp_path / "replay.html").read_text()


def test_the_policy_without_ray_acts_as_the_module(trained):
    _, path, network = trained
    policy = load_policy(path)
    encoder = EmmaEncoder(load_text_encoder(), network.settings)
    env = policy.env()
    observations, _ = env.reset(seed=3)
    policy.reset(seed=3)
    frames = {agent: [] for agent in observations}
    for _ in range(3):
        decisions = policy.act(observations)
        for agent, seen in observations.items():
            arrays = encoder.encode(seen, frames[agent], True)
            batch = {name: torch.from_numpy(value)[None] for name, value in arrays.items()}
            with torch.no_grad():
                expected = network.logits(batch).softmax(-1)[0]
                np.testing.assert_allclose(decisions[agent].probabilities, expected, atol=1e-6)
                assert decisions[agent].value == pytest.approx(float(network.values(batch)), rel=1e-4, abs=1e-4)
        observations, *_ = env.step({agent: decision.action for agent, decision in decisions.items()})


def test_it_acts_without_the_state(trained):
    policy = load_policy(trained[1])
    env = subgoal_env(observe=["entities"], action_level="goal_cell")
    observations, _ = env.reset(seed=0)
    assert all(np.isnan(decision.value) for decision in policy.act(observations).values())
    lacking = {"alice": {name: value for name, value in observations["alice"].items() if name != "subgoal"}}
    with pytest.raises(UserError, match="has no `subgoal`"):
        policy.act(lacking)


def test_same_seed_same_curve(trained):
    with running(config()) as algo:
        assert curve(algo) == [float(one["policy_loss"]) for one in trained[0]]


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"width": 0}, ("width", "range")), ({"text_encoder": "no/where/at-all"}, ("text_encoder",)),
        ({"text_encoders": "x"}, ("text_encoders", "unknown", "Did you mean 'text_encoder'")),
    ],
)  # fmt: skip
def test_bad_settings_are_told(settings, why):
    with refused(*why):
        config().update_from_dict(settings).validate()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_it_learns_to_follow_words(tmp_path):
    """Sampled subgoals: an untrained policy does some by chance, a trained one twice as many."""
    algo = EMMAConfig().debugging(seed=0).build_algo()
    done = []
    with running(algo):
        for rounds in (0, 26):
            for _ in range(rounds):
                algo.train()
            policy = load_policy(algo.save_to_path(str(tmp_path / str(rounds))))
            result = evaluate(policy, episodes=10, seed=100)
            done.append(result.metrics["subgoals_completed"])
    assert done[1] > 1.8 * done[0], done
