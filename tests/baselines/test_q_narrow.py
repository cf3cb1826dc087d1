"""Losses of teams on batches without columns of zeros, beside those on all columns."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from team_games import episode, tensors

from rllib_llm_comm.baselines.value.joint_game import SEEN, STATE, joined
from rllib_llm_comm.baselines.value.ldsa import LDSALoss
from rllib_llm_comm.baselines.value.maser import MASERLoss
from rllib_llm_comm.baselines.value.q_network import QSettings, QTeam
from rllib_llm_comm.baselines.value.roma import ROMALoss
from rllib_llm_comm.baselines.value.value_decomposition import TeamLoss, ValueTraining, narrow
from rllib_llm_comm.policies import numeric_network

AGENTS, SIZE, ACTIONS = 2, 12, 3


def team(seed, **settings):
    return QTeam(QSettings(**{"width": 8, "init_seed": seed, **settings}), SIZE, ACTIONS, AGENTS, AGENTS * SIZE)


def batch(seed=0):
    """Two episodes in which a third of the columns hold anything."""
    rng = np.random.default_rng(seed)
    games = []
    for steps in (4, 6):
        seen = rng.normal(size=(steps + 1, AGENTS, SIZE))
        seen[..., rng.permutation(SIZE)[: 2 * SIZE // 3] if not games else games[0][1]] = 0.0
        empty = np.flatnonzero((seen == 0).all((0, 1)))
        actions = rng.integers(0, ACTIONS, (steps, AGENTS))
        games.append((episode(seen, actions, rng.normal(size=steps), True, ACTIONS), empty))
    return tensors(joined([game for game, _ in games]))


def gradients(loss, live, target, rows):
    live.zero_grad()
    torch.manual_seed(7)  # subtasks and roles are drawn
    value, _ = loss(live, target, rows)
    value.backward()
    return value.detach(), {name: one.grad for name, one in live.named_parameters() if one.grad is not None}


@pytest.mark.parametrize(
    ("loss", "settings"),
    [
        (TeamLoss(), {"mixer": "vdn"}),
        (TeamLoss(ValueTraining(td_lambda=0.6)), {"mixer": "qmix"}),
        (TeamLoss(), {"mixer": "qmix", "hypernet_layers": 1, "recurrent": False}),
        (LDSALoss(), {"kind": "ldsa"}),
        (ROMALoss(), {"kind": "roma"}),
        (MASERLoss(), {"distance_width": 16}),
    ],
)
def test_losses_and_gradients_are_those_of_all_columns(loss, settings, monkeypatch):
    live, target, rows = team(0, **settings).train(), team(1, **settings).eval(), batch()
    found = gradients(loss, live, target, rows)
    monkeypatch.setattr(numeric_network, "WORTH_IT", -1.0)
    live.load_state_dict(team(0, **settings).state_dict())  # running means have moved
    wanted = gradients(loss, live, target, rows)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def test_only_columns_that_hold_something_are_left():
    live, target, rows = team(0, mixer="qmix"), team(1, mixer="qmix"), batch()
    cut = narrow(live, target, rows)
    assert cut[SEEN].shape[-1] == SIZE // 3 and cut[STATE].shape[-1] == AGENTS * SIZE // 3
    torch.testing.assert_close(cut[SEEN].abs().sum(-1), rows[SEEN].abs().sum(-1))
    values = live.unroll(rows[SEEN][:, :1], torch.full((2, 1, AGENTS), -1)).values
    alone = team(0, mixer="qmix").unroll(rows[SEEN][:, :1], torch.full((2, 1, AGENTS), -1)).values
    assert torch.equal(values, alone)  # who acts between updates sees all columns
