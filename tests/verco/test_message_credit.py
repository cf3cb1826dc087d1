"""Who is paid for a message: by hand, and in a game in which only the listener earns."""

from __future__ import annotations

import numpy as np
import pytest
from loop import Loop
from toys import door_talkers

from rllib_llm_comm.verco.advantages import MESSAGE_ADVANTAGES, message_advantages

MOMENTS = {"a": np.array([0, 2, 4, 5]), "b": np.array([0, 3]), "c": np.array([1, 5])}
AGENTS = ("alice", "bob")
GAINS = {"a": np.array([1.0, 2.0, 3.0, 4.0]), "b": np.array([10.0, 20.0]), "c": np.array([100.0, 200.0])}


def test_listeners():
    found = message_advantages(MOMENTS, GAINS, "listeners")
    # At 0 both hear a (b at once, c at 1); at 2 only b does, at 3; at 4 nobody before a speaks again; at 5 c.
    np.testing.assert_array_equal(found["a"], [(10 + 100) / 2, 20, np.nan, 200])
    np.testing.assert_array_equal(found["b"], [(1 + 100) / 2, (3 + 200) / 2])
    np.testing.assert_array_equal(found["c"], [(2 + 20) / 2, 4])


def test_team():
    found = message_advantages(MOMENTS, GAINS, "team")
    np.testing.assert_array_equal(found["a"], [(1 + 10 + 100) / 3, (2 + 20 + 200) / 3, (3 + 200) / 2, (4 + 200) / 2])
    np.testing.assert_array_equal(found["b"], [(1 + 10 + 100) / 3, (20 + 3 + 200) / 3])


def config(credit, **training):
    talk = {"messages": "menu", "message_menu": ["red", "blue"], "train_messages": True, "message_temperature": 1.0}
    return (
        door_talkers(**{"train_batch_size_per_learner": 256, "message_credit": credit, **training})
        .communication(**talk, max_message_words=1)
        .env_runners(num_envs_per_env_runner=8, rollout_fragment_length=16)
    )


@pytest.mark.parametrize("credit", ["team", "listeners"])
@pytest.mark.parametrize("groups", [{}, {"advantages": "rloo", "group_size": 4}])
def test_the_batch_holds_them(credit, groups):
    """Against the definition, over episodes that roll-outs may cut, with agents that are busy for a while."""
    settings = config(credit, **groups).environment(env_config={"busy": (1, 3), "length": 11})
    loop = Loop(settings.env_runners(batch_mode="complete_episodes") if groups else settings)
    for _ in range(2):
        episodes = loop.runner.sample()
        moments, owners = [], []
        for episode in episodes:  # before the batch is made: it adds a row to each
            for agent, single in sorted(episode.agent_episodes.items()):
                rows = single.get_observations(slice(0, len(single)))["message_moment"][:, 0] if len(single) else []
                moments += list(rows)
                owners += [(episode.id_, agent)] * len(single)
        batch = loop.batch(episodes)
        raw = batch["advantages"].double().numpy()  # an affine map of the raw ones
        expected = np.full(len(raw), np.nan)
        for episode in {episode for episode, _ in owners}:
            rows = {agent: [k for k, owner in enumerate(owners) if owner == (episode, agent)] for agent in AGENTS}
            times = {agent: np.array([moments[k] for k in own]) for agent, own in rows.items()}
            found = message_advantages(times, {agent: raw[own] for agent, own in rows.items()}, credit)
            for agent, own in rows.items():
                expected[own] = found[agent]
        known = ~np.isnan(expected)
        expected = np.where(known, (expected - expected[known].mean()) / expected[known].std(), 0.0)
        np.testing.assert_allclose(batch[MESSAGE_ADVANTAGES], expected, atol=1e-4)
        assert known.all() == (credit == "team")
        assert "raw_advantages" not in batch
    assert np.isfinite(loop.update()["policy_loss"])


def shares_of(credit, iterations):
    """The share of doors that Bob names right, per iteration until he does in nearly all of them."""
    rates = {"lr": 1e-2, "message_lr": 5e-3, "critic_lr": 5e-3, "gamma": 0.0, "target_kl": None}
    weights = {"entropy_coeff": 0.05, "message_entropy_coeff": 0.1, "message_kl_coeff": 0.0}
    loop = Loop(config(credit, num_epochs=2, minibatch_size=64, **rates, **weights))
    shares: list[float] = []
    for _ in range(iterations):
        episodes = loop.runner.sample()
        rewards = [episode.agent_episodes["bob"].get_rewards() for episode in episodes]
        shares.append(float(np.mean(np.concatenate(rewards))))
        loop.update(episodes)  # which adds a row to each episode
        if np.mean(shares[-3:]) > 0.9:
            break
    return shares


def test_only_the_listener_is_paid_so_a_speaker_learns_to_tell_by_its_listeners_advantage_and_not_by_its_own():
    by_listeners = shares_of("listeners", 24)
    assert np.mean(by_listeners[-3:]) > 0.9
    by_speaker = shares_of("speaker", len(by_listeners))
    assert np.mean(by_speaker[-3:]) < 0.65  # chance: one half
