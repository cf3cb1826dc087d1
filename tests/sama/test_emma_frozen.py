"""What EMMA remembers of texts: the same as computed anew, and forgotten when weights change."""

from __future__ import annotations

import numpy as np
import torch

from rllib_llm_comm.envs.interface import ACTION_MASK
from rllib_llm_comm.language.text_encoder import load_text_encoder
from rllib_llm_comm.sama.emma import policy as emma_frozen
from rllib_llm_comm.sama.emma.network import FRAMES, MANUAL, EmmaEncoder
from rllib_llm_comm.sama.emma.policy import FrozenActor
from tests.sama.test_emma_network import SETTINGS, batch_of, network, rows_of

SUBGOALS = ["", "go to floor 1:1", "fetch a dish from the dish stack", "go to floor 1:1", "deliver the soup"]


def test_a_frozen_actor_has_the_networks_chances(monkeypatch):
    env, _, net = network()
    encoder = EmmaEncoder(load_text_encoder(), SETTINGS)
    manual = env.reset(seed=0)[0]["alice"][MANUAL]
    rows = rows_of(env)
    for place, row in enumerate(rows):
        row |= encoder.texts(SUBGOALS[place % len(SUBGOALS)], manual)
    batch = batch_of(rows)
    with torch.no_grad():
        expected = net.logits(batch).double().softmax(-1).numpy()
    told = [SUBGOALS[place % len(SUBGOALS)] for place in range(len(rows))]
    frozen = FrozenActor(net, encoder, manual)
    frames, allowed = batch[FRAMES].numpy(), batch[ACTION_MASK].numpy()
    assert np.allclose(frozen.chances(frames, told, allowed), expected, atol=1e-6)
    monkeypatch.setattr(emma_frozen, "_REMEMBERED", 4)  # what is known is thrown away in between
    for part in (slice(0, 3), slice(3, 5), slice(5, 7)):
        found = frozen.chances(frames[part], told[part], allowed[part])
        assert np.allclose(found, expected[part], atol=1e-6)


def test_a_manual_is_read_anew_when_weights_have_changed():
    env, _, net = network()
    batch = batch_of(rows_of(env, steps=2))
    with torch.no_grad():
        first = net.logits(batch)
        assert torch.equal(net.logits(batch), first) and len(net._manuals) == 1
        net.actor.grounding.value.project.weight += 0.5
        changed = net.logits(batch)
    assert not torch.equal(changed, first)
    assert torch.equal(net.logits(batch), changed)  # with gradients nothing is remembered
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    net.logits(batch).max().backward()
    assert net.actor.grounding.key.project.weight.grad.abs().sum() > 0
    optimizer.step()
    with torch.no_grad():
        remembered = net.logits(batch)
    assert torch.equal(remembered, net.logits(batch)) and not torch.equal(remembered, changed)
