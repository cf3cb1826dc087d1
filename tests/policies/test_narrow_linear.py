"""Networks that learn from observations without their columns of zeros, beside the same on all columns."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rllib_llm_comm.envs.interface import ACTION_MASK
from rllib_llm_comm.policies.numeric_network import (
    BY_STATE,
    CRITIC_STATE,
    TEAM_VECTORS,
    VECTOR,
    NumericNetwork,
    NumericSettings,
)

ACTIONS = 3


def planes(rows, size, live, seed=0, dtype=torch.uint8):
    """Rows of which only the first `live` of some shuffled columns hold anything."""
    generator = torch.Generator().manual_seed(seed)
    seen = torch.zeros(rows, size, dtype=dtype)
    columns = torch.randperm(size, generator=generator)[:live]
    seen[:, columns] = torch.randint(0, 3, (rows, live), generator=generator).to(dtype)
    return seen


def loss_of(network, batch):
    return network.logits(batch).logsumexp(-1).sum() + (network.values(batch) ** 2).sum()


def gradients(network, batch):
    network.zero_grad()
    loss = loss_of(network, batch)
    loss.backward()
    return loss.detach(), {name: one.grad.clone() for name, one in network.named_parameters()}


def same(network, batch):
    """The narrow batch, after a check that losses and gradients are those of the whole one."""
    loss, wanted = gradients(network, batch)
    narrow = network.narrow(batch)
    told, found = gradients(network, narrow)
    assert torch.allclose(loss, told, rtol=1e-5, atol=1e-5)
    for name, gradient in wanted.items():
        assert torch.allclose(gradient, found[name], rtol=1e-4, atol=1e-4), name
    return narrow


@settings(max_examples=30, deadline=None)
@given(rows=st.integers(1, 9), size=st.integers(1, 40), share=st.floats(0.0, 1.0), seed=st.integers(0, 99))
def test_losses_and_gradients_are_those_of_all_columns(rows, size, share, seed):
    network = NumericNetwork(NumericSettings(hiddens=[8], init_seed=seed), size, ACTIONS)
    seen = planes(rows, size, round(share * size), seed)
    narrow = same(network, {VECTOR: seen, ACTION_MASK: torch.ones(rows, ACTIONS)})
    left = int(seen.any(0).sum())
    assert narrow[VECTOR].shape[1] == (size if left > 0.75 * size else left)


def test_a_narrow_batch_may_be_cut_and_a_whole_one_follow():
    network = NumericNetwork(NumericSettings(hiddens=[8], init_seed=0), 30, ACTIONS)
    batch = {VECTOR: planes(6, 30, 5), ACTION_MASK: torch.ones(6, ACTIONS)}
    other = {VECTOR: planes(6, 30, 5, seed=1), ACTION_MASK: torch.ones(6, ACTIONS)}
    whole, later = network.logits(batch), network.logits(other)
    narrow = network.narrow(batch)
    part = {name: column[2:4] for name, column in narrow.items()}
    assert torch.allclose(network.logits(part), whole[2:4], atol=1e-6)
    assert torch.equal(network.logits(other), later)  # of other columns, and whole: as in a roll-out between updates
    same(network, other)


def test_a_critic_that_sees_the_state_has_columns_of_its_own():
    network = NumericNetwork(NumericSettings(hiddens=[8], critic_observation=BY_STATE, init_seed=0), 20, ACTIONS, 50)
    batch = {VECTOR: planes(4, 20, 3), CRITIC_STATE: planes(4, 50, 7, seed=2), ACTION_MASK: torch.ones(4, ACTIONS)}
    narrow = same(network, batch)
    assert narrow[VECTOR].shape[1] <= 3 and narrow[CRITIC_STATE].shape[1] <= 7


@pytest.mark.parametrize(
    ("how", "name"), [({"layer_norm": True}, VECTOR), ({"network": "commnet", "hiddens": [8]}, TEAM_VECTORS)]
)
def test_networks_that_need_all_columns_get_them(how, name):
    network = NumericNetwork(NumericSettings(init_seed=0, **how), 20, ACTIONS)
    seen = planes(4, 20, 3).float()
    seen = seen[:, None].repeat(1, 2, 1) if name == TEAM_VECTORS else seen
    narrow = same(network, {name: seen, ACTION_MASK: torch.ones(4, ACTIONS)})
    assert narrow[name].shape == seen.shape
