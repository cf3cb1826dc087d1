"""Roles in the posts: with ids all five learn to part; without ids only what is drawn can part equal agents."""

from __future__ import annotations

import pytest
from posts import earned, train

from rllib_llm_comm.agents.q_settings import QSettings
from rllib_llm_comm.learners.q_auxiliary_losses import LDSALoss, MASERLoss, ROMALoss
from rllib_llm_comm.learners.q_losses import TeamLoss

SYSTEMS = {
    "VDN": ({"mixer": "vdn"}, TeamLoss),
    "QMIX": ({}, TeamLoss),
    "LDSA": ({"kind": "ldsa"}, LDSALoss),
    "ROMA": ({"kind": "roma"}, ROMALoss),
    "MASER": ({"distance_width": 32}, MASERLoss),
}


@pytest.mark.parametrize("name", ["QMIX", "LDSA"])
def test_without_ids_teams_that_take_their_best_never_part(name):
    settings, loss = SYSTEMS[name]
    team = train(QSettings(agent_ids=False, width=32, init_seed=0, **settings), loss(), rounds=20)
    assert earned(team) == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("name", SYSTEMS)
def test_with_ids_all_learn_to_part(name):
    settings, loss = SYSTEMS[name]
    reached = earned(train(QSettings(width=32, init_seed=0, **settings), loss()), sample=False)
    assert reached >= 0.95, f"{name} earns {reached:.3f} per step"
