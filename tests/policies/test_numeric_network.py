"""Numeric networks and their layers: columns of zeros that are left out, normalised values, CommNet."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rllib_llm_comm.envs.interface import ACTION_MASK
from rllib_llm_comm.policies.numeric_network import (
    BY_STATE,
    CRITIC_STATE,
    TEAM_VECTORS,
    VECTOR,
    CommNetNetwork,
    NumericNetwork,
    NumericSettings,
    ValueNorm,
    moments,
    team_vectors,
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


def mean_and_std(batches, beta):
    mean = square = weight = 0.0
    for batch in batches:
        mean = beta * mean + (1 - beta) * batch.mean()
        square = beta * square + (1 - beta) * (batch**2).mean()
        weight = beta * weight + (1 - beta)
    mean, square = mean / weight, square / weight
    return mean, max(1e-2, square - mean**2) ** 0.5


@given(
    beta=st.sampled_from([0.0, 0.5, 0.99, 0.99999]), count=st.integers(1, 30),
    centre=st.sampled_from([0.0, -3.0, 1000.0]), size=st.sampled_from([1e-3, 1.0, 50.0]), seed=st.integers(0, 99),
)  # fmt: skip
def test_it_is_the_debiased_average(beta, count, centre, size, seed):
    rng = np.random.default_rng(seed)
    batches = [rng.normal(centre + k * size / 10, size, rng.integers(1, 20)).astype(np.float32) for k in range(count)]
    norm = ValueNorm(beta)
    for batch in batches:
        norm.update(moments(torch.from_numpy(batch)))
    mean, std = mean_and_std([batch.astype(np.float64) for batch in batches], beta)
    assert float(norm.mean) == pytest.approx(mean, rel=1e-5, abs=1e-5 * size)
    assert float(norm.std) == pytest.approx(std, rel=1e-3)
    values = torch.from_numpy(rng.normal(centre, size, 7).astype(np.float32))
    np.testing.assert_allclose(norm.normalize(values).numpy(), (values.numpy() - mean) / std, rtol=1e-2, atol=2e-3)
    torch.testing.assert_close(norm.denormalize(norm.normalize(values)), values, rtol=1e-5, atol=1e-5)


def test_parts_of_a_batch_add_up_and_before_the_first_update_values_are_small():
    values = torch.randn(30) * 4 + 7
    whole, parts = ValueNorm(), ValueNorm()
    assert whole.denormalize(torch.tensor([1.0])).item() == pytest.approx(0.1)  # as in the original: the least variance
    whole.update(moments(values))
    parts.update(moments(values[:11]) + moments(values[11:]))
    for norm in (whole, parts):
        assert float(norm.mean) == pytest.approx(float(values.mean()), rel=1e-5)
        assert float(norm.std) == pytest.approx(float(values.std(unbiased=False)), rel=1e-5)


def test_all_of_it_is_in_the_state_and_nothing_is_trained():
    norm = ValueNorm()
    for _ in range(3):
        norm.update(moments(torch.randn(8) * 5))
    other = ValueNorm()
    other.load_state_dict(norm.state_dict())
    for one in (norm, other):
        one.update(moments(torch.arange(8.0)))
    assert all(torch.equal(value, other.state_dict()[name]) for name, value in norm.state_dict().items())
    assert not list(norm.parameters()) and int(norm.updates) == 4


def by_hand(net: CommNetNetwork, team: np.ndarray) -> np.ndarray:
    """One team, agent by agent, pass by pass, as the paper writes it."""
    encoder, head = (
        lambda x, layer=layer: layer.weight.detach().numpy() @ x + layer.bias.detach().numpy()
        for layer in (net.encoder, net.head)
    )
    encoded = [np.tanh(encoder(o)) for o in team]
    hidden = list(encoded)
    for k in range(net.passes):
        own, heard = net.own[k % len(net.own)], net.heard[k % len(net.heard)]
        new = []
        for i in range(len(team)):
            others = [hidden[j] for j in range(len(team)) if j != i]
            mean = np.mean(others, axis=0) if others else np.zeros_like(hidden[i])
            total = encoded[i]
            for layer, x in ((own, hidden[i]), (heard, mean)):
                total = total + layer.weight.detach().numpy() @ x + layer.bias.detach().numpy()
            new.append(np.tanh(total))
        hidden = new
    return head(hidden[0])


@given(agents=st.integers(1, 4), passes=st.integers(1, 3), share=st.booleans(), seed=st.integers(0, 99))
def test_commnet_is_the_loop_over_agents(agents, passes, share, seed):
    torch.manual_seed(seed)
    net = CommNetNetwork(5, 7, 3, passes, share, 1.0)
    team = torch.randn(2, agents, 5)
    out = net(team).detach().numpy()
    for row in range(2):
        np.testing.assert_allclose(out[row], by_hand(net, team[row].numpy()), atol=1e-5)


def test_without_hidden_messages_what_others_see_matters():
    net = NumericNetwork(NumericSettings(network="commnet", communication="observations", init_seed=0), 4, 3)
    team = torch.randn(1, 3, 4, requires_grad=True)
    net.logits({TEAM_VECTORS: team, ACTION_MASK: torch.ones(1, 3)}).square().sum().backward()
    assert (team.grad.abs().sum(-1) > 0).all()  # gradients reach every agent's observation


def test_team_vectors_own_first():
    latest = {"a": np.ones(2), "b": np.full(2, 2.0)}
    assert team_vectors("b", ["a", "b", "c"], latest).tolist() == [[2, 2], [1, 1], [0, 0]]


@pytest.mark.parametrize(("critic", "seen"), [("state", torch.randn(6, 9)), ("team", torch.randn(6, 3, 4))])
def test_a_central_critic_sees_what_the_actor_does_not(critic, seen):
    net = NumericNetwork(NumericSettings(critic_observation=critic, init_seed=0), 4, 3, seen[0].numel())
    name = {"state": CRITIC_STATE, "team": TEAM_VECTORS}[critic]
    seen.requires_grad_()
    batch = {VECTOR: torch.randn(6, 4), ACTION_MASK: torch.ones(6, 3), name: seen}
    values = net.values(batch)
    assert values.shape == (6,)
    values.sum().backward()
    assert (seen.grad.flatten(1).abs().sum(0) > 0).all()  # all of it, and nothing of the actor
    assert all(parameter.grad is None for parameter in net.actor.parameters())
    assert torch.equal(net.values({name: seen}), values)
    other = {**batch, name: seen + 1.0}
    assert torch.equal(net.logits(other), net.logits(batch)) and not torch.equal(net.values(other), values)


def test_values_are_in_units_of_reward():
    net = NumericNetwork(NumericSettings(use_value_norm=True, init_seed=0), 4, 3)
    net.value_norm.update(moments(torch.tensor([90.0, 110.0])))
    seen = {VECTOR: torch.randn(6, 4)}
    torch.testing.assert_close(net.values(seen), net.critic_outputs(seen) * 10 + 100)


def test_layers_of_mappo():
    net = NumericNetwork(NumericSettings(hiddens=[8, 6], activation="relu", layer_norm=True, init_seed=0), 4, 3)
    kinds = [type(layer).__name__ for layer in net.actor]
    assert kinds == ["LayerNorm", "Linear", "ReLU", "LayerNorm", "Linear", "ReLU", "LayerNorm", "Linear"]
    for layer, gain in ((net.actor[1], 2**0.5), (net.actor[-1], 0.01), (net.critic[-1], 1.0)):
        weight = layer.weight if len(layer.weight) < layer.weight.shape[1] else layer.weight.T
        torch.testing.assert_close(weight @ weight.T, gain**2 * torch.eye(len(weight)), atol=1e-5, rtol=1e-4)
