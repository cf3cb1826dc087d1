"""ROMA's distributions of roles, beside layers written out in numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rllib_llm_comm.baselines.value.joint_game import last_actions
from rllib_llm_comm.baselines.value.q_network import QSettings, QTeam

GAMES, STEPS, AGENTS, ACTIONS, SIZE, WIDTH, FLOOR = 3, 6, 2, 4, 5, 8, 0.8


def team(**settings):
    made = QTeam(
        QSettings(kind="roma", width=WIDTH, role_variance_floor=FLOOR, init_seed=3, **settings),
        SIZE, ACTIONS, AGENTS, 7,
    )  # fmt: skip
    torch.manual_seed(1)
    for network in (made.agents.encoder, made.agents.inference):
        for weights in network[1].parameters():  # of ones and zeros nothing would be seen
            torch.nn.init.uniform_(weights, 0.5, 1.5)
    return made.train()


def views():
    """What three games of different length show, with agents that are not asked in some steps."""
    torch.manual_seed(0)
    active = torch.ones(GAMES, STEPS, AGENTS)
    active[0, 2:4, 1] = active[1, 0, 0] = active[2, 1:, 0] = 0
    actions = torch.randint(0, ACTIONS, (GAMES, STEPS - 1, AGENTS))
    valid = torch.tensor([[1.0] * STEPS, [1] * 4 + [0] * 2, [1] * 5 + [0]])
    return torch.randn(GAMES, STEPS, AGENTS, SIZE), last_actions(actions, active), active, valid


def remembered(players, seen, last, active):
    """What agents remember before each step, carried along one step at a time."""
    memory, states = players.initial_memory(GAMES), []
    for step in range(STEPS):
        states.append(memory.numpy())
        with torch.no_grad():
            here = slice(step, step + 1)
            memory = players.unroll(seen[:, here], last[:, here], memory, active=active[:, here]).memory
    return np.stack(states, 1)


def gaussian(network, rows):
    """Means and variances of a linear layer, batch normalisation over these rows, a leaky ReLU and a linear layer."""
    first, norm, _, second = network
    weights = {name: value.detach().numpy() for name, value in network.named_parameters()}
    hidden = rows @ weights["0.weight"].T + weights["0.bias"]
    hidden = (hidden - hidden.mean(0)) / np.sqrt(hidden.var(0) + norm.eps)
    hidden = hidden * weights["1.weight"] + weights["1.bias"]
    hidden = np.where(hidden > 0, hidden, 0.01 * hidden)
    means, logs = np.split(hidden @ weights["3.weight"].T + weights["3.bias"], 2, -1)
    return means, np.maximum(np.exp(logs), FLOOR)


def told(players, seen, last, active, valid):
    with torch.no_grad():
        out = players.unroll(seen, last, active=active, valid=valid)
    rows = (valid > 0).numpy()
    return {name: values.numpy()[rows].reshape(-1, values.shape[-1]) for name, values in out.more.items()}


@pytest.mark.parametrize("recurrent", [True, False])
def test_roles_are_inferred_from_the_memory_that_is_kept(recurrent):
    players, (seen, last, active, valid) = team(recurrent=recurrent), views()
    rows = (valid > 0).numpy()
    ids = np.broadcast_to(np.eye(AGENTS), (GAMES, STEPS, AGENTS, AGENTS))
    acted = np.eye(ACTIONS + 1)[last.numpy()][..., :ACTIONS]  # -1, none, is the column that is cut off
    inputs = np.concatenate([seen.numpy(), acted, ids], -1)
    if recurrent:
        before = remembered(players, seen, last, active)
        np.testing.assert_array_equal(before[0, 3:5, 1], before[0, [2, 2], 1])
    else:  # what stands in the GRU's place, of this very step
        layer = players.agents.memory
        with torch.no_grad():
            whole = torch.tensor(inputs, dtype=torch.float32)
            before = torch.relu(layer.layer(torch.relu(layer.encode(whole)))).numpy()
    found = told(players, seen, last, active, valid)
    means, variances = gaussian(players.agents.encoder, inputs[rows].reshape(-1, inputs.shape[-1]))
    np.testing.assert_allclose(found["role_means"], means, atol=1e-5)
    np.testing.assert_allclose(found["role_variances"], variances, rtol=1e-4)
    assert (variances == FLOOR).any() and (variances > FLOOR).any()
    with_memory = np.concatenate([before, inputs], -1)[rows]
    means, variances = gaussian(players.agents.inference, with_memory.reshape(-1, with_memory.shape[-1]))
    np.testing.assert_allclose(found["inferred_means"], means, atol=1e-5)
    np.testing.assert_allclose(found["inferred_variances"], variances, rtol=1e-4)


def test_nobody_idle_is_as_if_nothing_were_told_of_it():
    seen, last, active, valid = views()
    one = told(team(), seen, last, None, valid)
    other = told(team(), seen, last, torch.ones_like(active), valid)
    for name in ("inferred_means", "inferred_variances"):
        np.testing.assert_allclose(one[name], other[name], atol=1e-6)


def test_what_is_remembered_learns_nothing_from_inferring():
    players, (seen, last, active, valid) = team(), views()
    out = players.unroll(seen, last, active=active, valid=valid)
    out.more["inferred_means"].sum().backward()
    assert all(parameter.grad is None for parameter in players.agents.memory.parameters())
    assert players.agents.inference[0].weight.grad.abs().max() > 0


def test_roles_spread_about_their_means_by_their_variances():
    players, (seen, last, active, valid) = team(), views()
    drawn = []
    for _ in range(100):
        found = told(players, seen, last, active, valid)
        drawn.append((found["roles"] - found["role_means"]) / np.sqrt(found["role_variances"]))
    # 100 draws of 90 numbers: the standard deviation's error is 0.008.
    assert abs(np.mean(drawn)) < 0.03 and np.std(drawn) == pytest.approx(1.0, abs=0.03)
