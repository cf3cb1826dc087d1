"""MAPPO's learner on real roll-outs: statistics, targets and losses against plain loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from loop import Loop
from toys import ColourTalk, Luck

from rllib_llm_comm import MAPPOConfig
from rllib_llm_comm.rl.rllib_adapter import register_parallel_env
from rllib_llm_comm.rl.train_batch import semi_markov_gae


def config(entry=Luck, env_config=None, **training):
    register_parallel_env("toys/mappo", entry=entry)
    return (
        MAPPOConfig()
        .environment("toys/mappo", env_config=env_config or {}, disable_env_checking=True)
        .policy_network(hiddens=[16])
        .env_runners(num_envs_per_env_runner=3, rollout_fragment_length=12)
        .training(**{"train_batch_size_per_learner": 72, "num_epochs": 3, "lr": 1e-3, **training})
        .debugging(seed=0)
    )


def critic_column(rows):
    names = {"critic_state", "team_vectors"} & set(rows)
    return {name: torch.from_numpy(rows[name]) for name in names}


@pytest.mark.parametrize("told", [True, False])
def test_advantages_are_of_real_values_and_old_values_stay_normalised(told):
    loop = Loop(config(env_config={"state": told, "length": 5}, gamma=0.9, lambda_=0.8))
    for _ in range(2):
        loop.update()
    norm = loop.module.value_norm
    assert float(norm.std) > 5  # far from 1, so that mistakes show
    episodes = loop.runner.sample()
    targets, advantages, outputs = [], [], []
    for episode in episodes:
        for _, single in sorted(episode.agent_episodes.items()):
            with torch.no_grad():
                said = loop.module.network.critic_outputs(
                    critic_column(single.get_observations(slice(0, len(single) + 1)))
                )
            values = (said * norm.std + norm.mean).numpy()
            advantage, target = semi_markov_gae(
                np.array(single.get_rewards()), np.ones(len(single)), values, single.is_terminated, 0.9, 0.8
            )
            targets.append(target)
            advantages.append(advantage)
            outputs.append(said[:-1].numpy())
    batch = loop.batch(episodes)
    advantages = np.concatenate(advantages)
    np.testing.assert_allclose(batch["value_targets"].numpy(), np.concatenate(targets), atol=1e-3)
    np.testing.assert_allclose(batch["vf_preds"].numpy(), np.concatenate(outputs), atol=1e-5)
    np.testing.assert_allclose(
        batch["advantages"].numpy(), (advantages - advantages.mean()) / advantages.std(), atol=1e-3
    )


def test_statistics_take_in_every_minibatch_before_its_loss_and_runners_get_the_actor_alone():
    loop = Loop(config(value_norm_beta=0.5, num_epochs=1))
    seen = []
    for number in range(1, 4):
        results = loop.update()
        batch = loop.trained
        seen.append(batch["value_targets"].double().numpy())
        weights = np.array([0.5 ** (number - k) for k in range(number)])
        mean, square = (np.average([np.mean(targets**power) for targets in seen], weights=weights) for power in (1, 2))
        std = np.sqrt(square - mean**2)
        assert results["value_norm_mean"] == pytest.approx(mean, rel=1e-4, abs=1e-4)
        assert results["value_norm_std"] == pytest.approx(std, rel=1e-4)
        # One minibatch, one epoch: the critic has not moved, so its loss is that of its old outputs.
        errors = np.abs(batch["vf_preds"].numpy() - (seen[-1] - mean) / std)
        loss = np.where(errors <= 10.0, errors**2 / 2, 10.0 * (errors - 5.0)).mean()
        assert results["vf_loss"] == pytest.approx(loss, rel=1e-4)
    assert int(loop.module.value_norm.updates) == 3
    whole, sent = (loop.learner.get_state(components="rl_module", inference_only=only) for only in (False, True))
    assert {"value_norm.mean", "value_norm.variance", "value_norm.updates"} < set(whole["rl_module"]["shared"])
    assert sent["rl_module"]["shared"] and all(name.startswith("actor.") for name in sent["rl_module"]["shared"])


def test_without_value_norm_the_critic_learns_returns():
    loop = Loop(config(use_value_norm=False, num_epochs=1, huber_delta=None, vf_clip_param=None))
    assert loop.module.value_norm is None
    results = loop.update()
    batch = loop.trained
    assert "value_norm_mean" not in results
    assert results["vf_loss"] == pytest.approx(
        float((batch["vf_preds"] - batch["value_targets"]).square().mean()), rel=1e-4
    )


def test_forbidden_actions_are_never_taken_and_busy_agents_count():
    loop = Loop(config(ColourTalk, {"busy": (1, 3), "length": 9}))
    forbidden = 0
    for _ in range(3):
        assert loop.update()["ratio_first_minibatch"] < 1e-5
        for episode in loop.episodes:
            for single in episode.agent_episodes.values():  # each with the row for bootstrapping
                masks = single.get_observations(slice(0, len(single)))["action_mask"]
                forbidden += int((masks == 0).sum())
                assert (np.take_along_axis(masks, single.get_actions()[:, None].astype(int), 1) == 1).all()
    assert forbidden > 0
