"""CommNet and the MLP: against a plain loop over agents, and gradients across agents."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.interface import ACTION_MASK
from rllib_llm_comm.policies.numeric_network import (
    CRITIC_STATE,
    TEAM_VECTORS,
    VECTOR,
    CommNet,
    NumericNetwork,
    NumericSettings,
    moments,
    team_vectors,
)


def by_hand(net: CommNet, team: np.ndarray) -> np.ndarray:
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


@settings(max_examples=25, deadline=None)
@given(agents=st.integers(1, 4), passes=st.integers(1, 3), share=st.booleans(), seed=st.integers(0, 99))
def test_commnet_is_the_loop_over_agents(agents, passes, share, seed):
    torch.manual_seed(seed)
    net = CommNet(5, 7, 3, passes, share, 1.0)
    team = torch.randn(2, agents, 5)
    out = net(team).detach().numpy()
    for row in range(2):
        np.testing.assert_allclose(out[row], by_hand(net, team[row].numpy()), atol=1e-5)


@pytest.mark.parametrize("communication", ["hidden", "observations"])
def test_what_others_see_matters(communication):
    config = NumericSettings(network="commnet", hiddens=[8], communication=communication, init_seed=0)
    net = NumericNetwork(config, 4, 3)
    team = torch.randn(1, 3, 4, requires_grad=True)
    net.logits({TEAM_VECTORS: team, ACTION_MASK: torch.ones(1, 3)}).square().sum().backward()
    assert (team.grad.abs().sum(-1) > 0).all()  # gradients reach every agent's observation


def test_the_others_are_a_set():
    net = NumericNetwork(NumericSettings(network="commnet", init_seed=0), 4, 3)
    team = torch.randn(1, 3, 4)
    mask = torch.ones(1, 3)
    swapped = team[:, [0, 2, 1]]
    assert torch.allclose(
        net.logits({TEAM_VECTORS: team, ACTION_MASK: mask}),
        net.logits({TEAM_VECTORS: swapped, ACTION_MASK: mask}),
        atol=1e-6,
    )


def test_forbidden_actions_and_seeds():
    config = NumericSettings(init_seed=3)
    one, two = NumericNetwork(config, 4, 3), NumericNetwork(config, 4, 3)
    seen = {VECTOR: torch.randn(6, 4), ACTION_MASK: torch.tensor([[1, 0, 1]] * 6)}
    chances = one.logits(seen).softmax(-1)
    assert (chances[:, 1] == 0).all() and torch.equal(one.logits(seen), two.logits(seen))
    assert one.values(seen).shape == (6,)


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


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"critic_observation": "all"}, "`critic_observation` is 'all'"),
        ({"activation": "gelu"}, "`activation` is 'gelu'"),
        ({"layer_norm": "yes"}, "`layer_norm` is 'yes'"),
        ({"use_value_norm": 2}, "`use_value_norm` is 2"),
        ({"value_norm_beta": 1.0}, "`value_norm_beta` is 1.0"),
        ({"value_norm_beta": "0.9"}, "`value_norm_beta` is '0.9'"),
        ({"network": "cnn"}, "`network` is 'cnn'"),
        ({"communication": "words"}, "`communication` is 'words'"),
        ({"communication_passes": 0}, "`communication_passes` is 0"),
        ({"hiddens": []}, "`hiddens` is"),
        ({"hiddens": [0]}, "`hiddens.0` is 0"),
        ({"width": 3}, "`width` is no known key"),
    ],
)
def test_settings_are_checked(values, says):
    with pytest.raises(UserError, match=says):
        NumericSettings.from_mapping(values)
