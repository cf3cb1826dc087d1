"""Trained messages are scored as they were drawn: with a byte-level tokenizer their text alone would not do."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from byte_level import byte_level_model
from toys import language_model, randomise

from rllib_llm_comm.language.adapters import MESSAGE, REFERENCE
from rllib_llm_comm.language.generation import Written
from rllib_llm_comm.language.prompts import message_prompt
from rllib_llm_comm.verco.encoding import MESSAGE_IDS, MESSAGE_TARGETS, MessageEncoder, TextObservation
from rllib_llm_comm.verco.language_network import LanguageNetwork
from rllib_llm_comm.verco.settings import ModuleSettings

HUES = ("red", "blue", "green")
MENU = ("i see red", "i see blue", "i see green")
WORDS = 3


@pytest.fixture(scope="module")
def network():
    settings = ModuleSettings(**language_model(init_seed=0, trainable_roles=("action", "message")))
    base = byte_level_model()
    with torch.no_grad():  # ends are drawn now and then, so that there are messages with an end and messages cut
        base.model.get_output_embeddings().weight[base.eos_id] *= 10
    made = LanguageNetwork(settings, base, reference=True)
    randomise(made, "message", std=0.2, seed=4)
    return made


@pytest.fixture(scope="module")
def views():
    return [TextObservation(f"you see {HUES[k % 3]}. {k}.", ("name red",), (True,)) for k in range(24)]


@pytest.fixture(scope="module")
def drawn(network, views):
    prompts = [message_prompt(view.text) for view in views]
    return network.draw_messages(prompts, max_words=WORDS, temperature=1.0, seed=3)


def arrays_of(network, views, messages, menu=()):
    encoder = MessageEncoder(network.lm.base, 160, WORDS, menu)
    rows = [encoder.encode(view, message) for view, message in zip(views, messages, strict=True)]
    return {name: torch.from_numpy(np.stack([row[name] for row in rows])) for name in rows[0]}


def path_of(network, view, ids, role=MESSAGE):
    """log p(. | prompt, tokens before) at every token of a message, by one plain pass: (T, V)."""
    prompt = network.lm.base.encode(message_prompt(view.text))
    row = torch.tensor([[*prompt, *ids]])
    with torch.no_grad(), network.lm.use(role):
        logits = network.lm.token_logits(network.lm.hidden_states(row, torch.ones_like(row)))[0]
    return logits.log_softmax(-1)[len(prompt) - 1 : -1].double()


def test_the_ids_are_those_that_were_drawn(network, views, drawn):
    base = network.lm.base
    ended = [message for message in drawn if message.ids[-1] == base.eos_id]
    cut = [message for message in drawn if message.ids[-1] != base.eos_id]
    assert ended and cut
    for message in ended:
        assert base.eos_id not in message.ids[:-1]
    for message in cut:  # the token that went too far is there, or there were too many
        text = base.decode(message.ids)
        assert len(text.split()) > WORDS or "\n" in text or len(message.ids) == 12
    assert all(len(message.text.split()) <= WORDS for message in drawn)
    others = 0  # that would be, read from their text alone
    for view, message in zip(views, drawn, strict=True):
        prompt = message_prompt(view.text)
        again = base.encode(f"{prompt} {message.text}".rstrip())[len(base.encode(prompt)) :]
        others += (*again, base.eos_id) != message.ids
    assert others > len(drawn) / 2


def test_probability_entropy_and_drift_of_what_was_drawn(network, views, drawn):
    said = [None, *drawn[1:]]
    terms = network.message_terms(arrays_of(network, views, said))
    assert terms.spoke.tolist() == [False] + [True] * (len(said) - 1)
    for row, (view, message) in enumerate(zip(views, said, strict=True)):
        if message is None:
            assert terms.log_probs[row] == terms.entropy[row] == terms.kl[row] == 0
            continue
        path, reference = path_of(network, view, message.ids), path_of(network, view, message.ids, REFERENCE)
        expected = path[range(len(message.ids)), list(message.ids)].sum()
        assert float(terms.log_probs[row].detach()) == pytest.approx(float(expected), abs=1e-3)
        assert float(terms.entropy[row].detach()) == pytest.approx(float(-(path.exp() * path).sum()), abs=1e-3)
        kl = (path.exp() * (path - reference)).sum()
        assert float(terms.kl[row].detach()) == pytest.approx(float(kl), abs=1e-3) and kl > 0


def gradients(network, loss):
    parameters = dict(network.lm.named_adapter_parameters())
    for parameter in parameters.values():
        parameter.requires_grad_(True)
        parameter.grad = None
    loss().backward()
    return {name: None if p.grad is None else p.grad.clone() for name, p in parameters.items()}


@pytest.mark.parametrize("menu", [(), MENU])
@pytest.mark.parametrize("term", ["log_probs", "entropy", "kl"])
def test_every_term_has_a_gradient_for_the_message_adapter_only(network, views, drawn, term, menu):
    said = [Written(MENU[k % 3]) for k in range(len(views))] if menu else drawn
    arrays = arrays_of(network, views, said, menu)
    found = gradients(network, lambda: getattr(network.message_terms(arrays), term).sum())
    moved = {
        name.split(".")[0] for name, gradient in found.items() if gradient is not None and gradient.abs().sum() > 0
    }
    assert moved == {MESSAGE}


def test_the_longest_prompt_leaves_room_for_any_message(network, views, drawn):
    longest = len(network.lm.base.encode(message_prompt(views[0].text)))
    encoder = MessageEncoder(network.lm.base, longest, WORDS)
    message = max(drawn, key=lambda one: len(one.ids))
    row = encoder.encode(views[0], message, moment=7)
    assert row[MESSAGE_IDS].shape == (longest + 4 * WORDS,)
    assert row[MESSAGE_TARGETS][longest : longest + len(message.ids)].tolist() == list(message.ids)
    assert all(space.contains(row[name]) for name, space in encoder.space().items())
