"""Updates of teams under RLlib: what is optimised, how gradients are clipped, how many updates there are."""

from __future__ import annotations

import copy

import pytest
import torch
from ray.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch
from test_value_decomposition import echo, learned

from rllib_llm_comm import LDSAConfig, MASERConfig, QMIXConfig, ROMAConfig
from tests.running import running

pytestmark = pytest.mark.usefixtures("small_ray")


def with_games(config):
    """An algorithm with games to learn from, and a batch of them."""
    algo = config.build_algo()
    while len(algo.local_replay_buffer) < 4:
        algo.training_step()
    return algo, algo.local_replay_buffer.sample(4)


def update(algo, batch):
    rows = MultiAgentBatch({"default_policy": SampleBatch(copy.deepcopy(batch))}, env_steps=24)
    algo.learner_group.update(batch=rows, timesteps={"num_env_steps_sampled_lifetime": algo._game_steps()})


@pytest.mark.parametrize(
    ("kind", "optimizer"),
    [
        (QMIXConfig, "rmsprop"),
        (QMIXConfig, "adam"),
        (LDSAConfig, "rmsprop"),
        (ROMAConfig, "rmsprop"),
        (MASERConfig, "rmsprop"),
    ],
)
def test_an_update_moves_the_weights_of_agents_and_mixer_and_none_of_the_target(kind, optimizer):
    algo, batch = with_games(echo(kind, optimizer_name=optimizer, target_network_update_freq=10**6))
    with running(algo):
        module = learned(algo)
        before = copy.deepcopy(module.state_dict())
        update(algo, batch)
        weights = {name: one for name, one in module.team.named_parameters() if name.endswith("weight")}
        # Not all biases: those before a batch normalisation and those of the distance network's end cancel out.
        assert not [name for name, one in weights.items() if torch.equal(one, before[f"team.{name}"])]
        assert sum(name.startswith("mixer.") for name in weights) == 7
        assert all(torch.equal(weights, before[f"target.{name}"]) for name, weights in module.target.named_parameters())


def test_gradients_are_clipped_by_the_norm_of_all_weights_together(monkeypatch):
    algo, batch = with_games(echo(grad_clip=None))
    with running(algo):
        learner, team, seen = algo.learner_group._learner, learned(algo).team, []

        def look(gradients):  # and apply nothing, so that both updates have the same gradients
            seen.append({name: gradients[weights].clone() for name, weights in team.named_parameters()})

        monkeypatch.setattr(learner, "apply_gradients", look)
        update(algo, batch)
        most = float(torch.stack([gradient.norm() for gradient in seen[0].values()]).norm()) / 3
        for config in (learner.config, learner.config.get_config_for_module("default_policy")):
            monkeypatch.setitem(config.__dict__, "grad_clip", most)
        update(algo, batch)
        free, clipped = seen
        for name, gradient in free.items():
            torch.testing.assert_close(clipped[name], gradient / 3, rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize("episodes_per_update", [1, 3, 5])
def test_there_is_one_update_for_so_many_episodes(episodes_per_update, monkeypatch):
    # A batch of one episode, so that learning begins at once.
    with running(echo(episodes_per_update=episodes_per_update, train_batch_size_per_learner=1)) as algo:
        episodes, updates = [], []
        add, learn = algo.local_replay_buffer.add, algo.learner_group.update
        monkeypatch.setattr(algo.local_replay_buffer, "add", lambda played: episodes.extend(played) or add(played))
        monkeypatch.setattr(algo.learner_group, "update", lambda **told: updates.append(1) or learn(**told))
        for _ in range(7):
            algo.training_step()
            assert len(updates) == len(episodes) // episodes_per_update
        assert len(episodes) >= 7 * episodes_per_update
