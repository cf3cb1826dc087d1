"""Verco and TWOSOME without a critic: training, runners, checkpoints, policies."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest
from ray.rllib.examples.envs.classes.multi_agent import MultiAgentCartPole
from toys import talkers

from rllib_llm_comm import TWOSOMEConfig, VercoConfig, load_policy
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.evaluation.rollout import evaluate, record
from rllib_llm_comm.rl.rllib_adapter import START, StartAlike
from tests.running import running

pytestmark = pytest.mark.usefixtures("small_ray")


def config(kind=VercoConfig, games=4, **training):
    groups = {"advantages": "rloo", "group_size": 2, "train_batch_size_per_learner": 60}
    runners = {"num_envs_per_env_runner": games, "batch_mode": "complete_episodes"}
    return talkers(kind, **{**groups, **training}).env_runners(**runners)


@pytest.mark.parametrize(
    ("settings", "runners"),
    [
        (config(), 0),
        # In the suite it waits for the cores of two more processes: up to three minutes.
        pytest.param(config(advantages="grpo", minibatch_size=16), 2, marks=pytest.mark.slow),
        (config(TWOSOMEConfig, advantages="grpo", minibatch_size=16, group_by="prompt"), 0),
    ],
    ids=["rloo", "grpo-two-runners", "twosome-grpo-prompts"],
)
def test_trains_and_its_checkpoint_plays_without_a_critic(settings, runners, tmp_path):
    with running(settings.env_runners(num_env_runners=runners)) as algo:
        for _ in range(2):
            results = algo.train()
            learned = results["learners"]["shared"]
            assert float(learned["ratio_first_minibatch"]) < 1e-5 and np.isfinite(float(learned["policy_loss"]))
            assert "vf_loss" not in learned and "critic_learning_rate" not in learned
            assert settings.group_by == "prompt" or float(learned["group_alone"]) == 0
            # A round is one episode of each game, and rounds follow until the batch is full.
            assert results["env_runners"]["num_episodes"] % (4 * max(1, runners)) == 0
        path = algo.save_to_path(str(tmp_path / "checkpoint"))
        algo.restore_from_path(path)
        algo.train()
    assert not list((tmp_path / "checkpoint" / "policy").rglob("critic*"))
    policy = load_policy(path)
    assert policy.network.settings.critic_hiddens is None
    observations, _ = policy.env().reset(seed=0)
    decisions = policy.act(observations)
    assert decisions and all(np.isnan(decision.value) for decision in decisions.values())
    played = evaluate(policy, episodes=2, seed=0)
    assert played.episodes == 2 and np.isfinite(played.return_mean)
    shown = record(policy, episodes=1, seed=0)[0]
    assert "NaN" not in json.dumps(shown.frames)


def test_each_agent_can_have_a_policy_of_its_own(tmp_path):
    with running(config(group_by="prompt").multi_agent(policies="per_agent")) as algo:
        learned = algo.train()["learners"]
        assert all(0 <= float(learned[agent]["group_alone_share"]) < 1 for agent in ("alice", "bob"))
        path = algo.save_to_path(str(tmp_path / "checkpoint"))
    policy = load_policy(path)
    observations, _ = policy.env().reset(seed=0)
    assert all(np.isnan(decision.value) for decision in policy.act(observations).values())


def test_evaluation_during_training_has_starts_of_its_own():
    with running(
        config().evaluation(evaluation_interval=1, evaluation_num_env_runners=0, evaluation_duration=4)
    ) as algo:
        results = algo.train()
        assert results["evaluation"]["env_runners"]["num_episodes"] == 4
        seen = [runner.env.unwrapped.envs[0].unwrapped for runner in (algo.env_runner, algo.eval_env_runner)]
        alike = [START in next(iter(adapter.reset()[1].values()), {}) for adapter in seen]
        assert alike == [True, False]


def test_other_environments_are_refused():
    runner = SimpleNamespace(config=config(), worker_index=0)
    games = SimpleNamespace(envs=[MultiAgentCartPole({"num_agents": 2}) for _ in range(4)])
    with pytest.raises(UserError, match="PettingZoo"):
        StartAlike().on_environment_created(env_runner=runner, env=games)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("training", [{"advantages": "rloo"}, {"advantages": "grpo"}, {"group_by": "prompt"}], ids=str)
def test_learns_to_do_what_the_text_says(training):
    """Both agents name the colour that their text tells: one in three at first, most at the end."""
    with running(
        config(TWOSOMEConfig, games=16, **training)
        .environment(env_config={"length": 4, "obvious": True, "busy": (1, 1)})
        .language_model(temperature=1.0)
        .training(train_batch_size_per_learner=512, group_size=8, num_epochs=4, lr=5e-3, target_kl=None)
    ) as algo:
        returns = [algo.train()["env_runners"]["episode_return_mean"] / 8 for _ in range(20)]
    assert returns[0] < 0.5 and max(returns) > 0.8, returns
