"""Kitchens as arrays for value decomposition: the same episodes as the environment plays."""

from __future__ import annotations

import numpy as np
import pytest

from rllib_llm_comm import QMIXConfig, load_policy, make_env
from rllib_llm_comm.baselines.value.joint_game import JointGame
from tests.refusal import refused
from tests.running import running

pytestmark = pytest.mark.usefixtures("small_ray")

ENV = "rllib_llm_comm/overcooked_ai-v0"


def config(**env_config):
    return (
        QMIXConfig()
        .environment(ENV, env_config={"layout": "forced_coordination", "horizon": 25, "shaping": 0.5, **env_config})
        .env_runners(num_envs_per_env_runner=3)
        .policy_network(width=8)
        .training(array_games=True, train_batch_size_per_learner=3, buffer_episodes=10, epsilon=[(0, 1.0), (150, 0.5)])
        .reporting(min_sample_timesteps_per_iteration=75)
        .debugging(seed=0)
    )


@pytest.fixture(scope="module")
def algo(small_ray):
    with running(config()) as algo:
        yield algo


def test_arrays_hold_what_the_environment_plays(algo, tmp_path):
    results = algo.train()
    assert np.isfinite(float(results["learners"]["default_policy"]["td_loss"]))
    assert results["num_env_steps_sampled_lifetime"] == 75 and results["env_runners"]["episode_len_mean"] == 25
    assert {"score", "soups", "shaped"} <= set(results["env_runners"])
    game = JointGame(make_env(ENV, **algo.config.env_config))
    paid = 0.0
    for episode in algo.local_replay_buffer._episodes:
        seen, _ = game.reset(seed=0)
        for step in range(25):
            for name in ("seen", "state", "action_mask", "active"):
                np.testing.assert_array_equal(seen[name], episode[name][step], err_msg=name)
            seen, reward, terminated, truncated, _ = game.step(episode["actions"][step])
            assert reward == pytest.approx(float(episode["rewards"][step]))
            paid += reward
        np.testing.assert_array_equal(seen["seen"], episode["seen"][25])
        assert truncated and not terminated and not episode["terminated"].any()
    policy = load_policy(algo.save_to_path(str(tmp_path / "checkpoint")))
    env = policy.env()
    seen, _ = env.reset(seed=0)
    assert set(policy.act(seen)) == {"alice", "bob"}


def test_epsilon_follows_the_game_steps_within_an_iteration(algo, monkeypatch):
    module, asked = algo.env_runner.module.unwrapped(), []
    plain = module.epsilon_at
    monkeypatch.setattr(module, "epsilon_at", lambda step: asked.append(step) or plain(step))
    before = algo._game_steps()
    algo.training_step()
    algo.training_step()  # RLlib tells runners the steps behind an iteration, which has many of these
    assert asked == list(range(before, before + 150, 3))


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        (lambda c: c.environment("rllib_llm_comm/overcooked_text-v0"), ("array_games",)),
        (lambda c: c.environment(ENV, env_config={"swap_roles": True}), ("env_config.swap_roles",)),
        (lambda c: c.environment(ENV, env_config={"vector": "features"}), ("env_config.vector",)),
        (lambda c: c.training(mixer_state="team"), ("mixer_state",)),
    ],
)
def test_what_arrays_do_not_know_is_refused(change, wrong):
    with refused(*wrong):
        change(config()).validate()
