"""LDSA, ROMA and MASER in plain torch: their terms, their ablations, and what cannot be learned without ids."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from team_games import episode, tensors, train

from rllib_llm_comm.baselines.value.joint_game import joined
from rllib_llm_comm.baselines.value.ldsa import LDSALoss, LDSATraining
from rllib_llm_comm.baselines.value.maser import MASERLoss, MASERTraining
from rllib_llm_comm.baselines.value.q_network import QSettings, QTeam, epsilon_greedy
from rllib_llm_comm.baselines.value.roma import ROMALoss, ROMATraining
from rllib_llm_comm.baselines.value.value_decomposition import TeamLoss

POSTS = 4


def team(**settings):
    return QTeam(QSettings(**{"width": 8, "init_seed": 3, "agent_ids": False, **settings}), 3, POSTS, POSTS, 12)


def games(count=4, steps=5, seed=0):
    rng = np.random.default_rng(seed)
    return [
        episode(rng.normal(size=(k + 1, POSTS, 3)), rng.integers(0, POSTS, (k, POSTS)), rng.normal(size=k), True, POSTS)
        for k in range(steps - count + 1, steps + 1)
    ]


def posts_played(players, steps=10, sample=False):
    """Share of steps in which four equal agents, who see nothing, stand at four different posts."""
    memory, last, different = players.initial_memory(8), torch.full((8, 1, POSTS), -1), []
    for _ in range(steps):
        with torch.no_grad():
            out = players.unroll(torch.zeros(8, 1, POSTS, 3), last, memory, sample=sample)
        memory, last = out.memory, epsilon_greedy(out.values, torch.ones_like(out.values), 0.0)
        different.append((last[:, 0].sort(-1).values == torch.arange(POSTS)).all(-1).float().mean())
    return float(torch.stack(different).mean())


@pytest.mark.parametrize("kind", ["plain", "ldsa"])
def test_equal_agents_without_ids_never_part_in_a_test(kind):
    for seed in range(5):
        assert posts_played(team(kind=kind, init_seed=seed).eval()) == 0.0


def test_roles_that_are_drawn_part_equal_agents():
    players = team(kind="roma", role_variance_floor=1.0)
    torch.manual_seed(0)
    for layer in (players.agents.weight, players.agents.bias):
        torch.nn.init.normal_(layer.weight, std=2.0)
    assert posts_played(players.eval()) > 0.0


def test_ldsas_loss_is_that_of_qmix_and_its_terms():
    live, target = team(kind="ldsa"), team(kind="ldsa", init_seed=4).eval()
    batch = tensors(joined(games()))
    torch.manual_seed(5)
    plain, _ = TeamLoss()(live, target, batch)
    torch.manual_seed(5)
    whole, report = LDSALoss(LDSATraining(subtask_distance=0.5, subtask_change=0.25))(live, target, batch)
    added = report["subtask_distance"] + report["subtask_change"]
    assert float((whole - plain).detach()) == pytest.approx(added, rel=1e-3)


def test_in_a_test_ldsa_takes_the_likeliest_subtask_and_draws_it_otherwise():
    players = team(kind="ldsa").eval()
    seen, last = torch.randn(1, 3, POSTS, 3), torch.full((1, 3, POSTS), -1)
    one, other = (players.unroll(seen, last, sample=False).values for _ in range(2))
    assert torch.equal(one, other)
    drawn = torch.stack([players.unroll(seen, last, sample=True).values for _ in range(8)])
    assert drawn.std(0).max() > 0


def test_romas_ablation_has_the_loss_of_qmix_alone():
    live, target, batch = team(kind="roma").train(), team(kind="roma").eval(), tensors(joined(games()))
    assert set(ROMALoss(ROMATraining(raw_roles=True))(live, target, batch)[1]) == {"td_loss", "q_mean", "target_mean"}


def test_steps_behind_an_episodes_end_leave_roma_s_statistics_alone():
    short = games(1, 2)
    means = []
    for long in ([], [games(1, 6, seed=1)[0]]):
        live = team(kind="roma").train()
        padded = tensors(joined(short + long))
        padded = {name: values[:1] for name, values in padded.items()}
        torch.manual_seed(0)
        ROMALoss()(live, team(kind="roma").eval(), padded)
        means.append(live.agents.encoder[1].running_mean.clone())
    torch.testing.assert_close(*means)


def test_maser_without_its_weights_is_qmix_bit_for_bit():
    nothing = MASERLoss(MASERTraining(subgoal_reward=0.0, individual_weight=0.0, mixed_weight=0.0))
    settings = {"width": 8, "init_seed": 0, "agent_ids": True}
    qmix, _ = train(games(), QSettings(**settings), 15, copy_every=5)
    ours, _ = train(games(), QSettings(**settings, distance_width=16), 15, copy_every=5, loss=nothing)
    own = ours.state_dict()
    assert all(torch.equal(value, own[name]) for name, value in qmix.state_dict().items())
