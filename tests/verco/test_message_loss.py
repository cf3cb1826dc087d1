"""Log-probabilities of label messages against a plain loop."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from toys import language_model, randomise

from rllib_llm_comm.core.phases import phase
from rllib_llm_comm.language.generation import Written
from rllib_llm_comm.language.prompts import message_prompt
from rllib_llm_comm.verco.encoding import IGNORED, MESSAGE_IDS, MessageEncoder, TextObservation, encode_examples
from rllib_llm_comm.verco.language_network import LanguageNetwork, label_log_probs
from rllib_llm_comm.verco.settings import ModuleSettings
from tests.refusal import refused

PROMPTS = ["you see red. i say:", "you are alice in the left room. i say:", "i say:"]
MESSAGES = ["i see red", "please bring the tomato", ""]


def test_log_probs_equal_a_plain_loop(adapted):
    arrays = encode_examples(adapted.base, PROMPTS, MESSAGES, 64)
    ids, labels = (torch.from_numpy(arrays[name]) for name in ("label_ids", "label_targets"))
    log_probs, hits = label_log_probs(adapted, ids, labels)
    for row in range(len(ids)):
        length = int((labels[row] != IGNORED).nonzero().max()) + 1
        with adapted.use("message"), torch.no_grad():
            hidden = adapted.hidden_states(ids[row : row + 1, :length].long(), torch.ones(1, length).long())
            plain = adapted.token_logits(hidden)[0].log_softmax(-1)
        for column in range(ids.shape[1]):
            if labels[row, column] == IGNORED:
                assert log_probs[row, column] == 0 and not hits[row, column]
            else:
                expected = plain[column - 1, labels[row, column].long()]
                torch.testing.assert_close(log_probs[row, column], expected, atol=1e-4, rtol=1e-4)
                assert bool(hits[row, column]) == (int(plain[column - 1].argmax()) == int(labels[row, column]))


def test_labels_are_no_longer_than_messages_that_can_be_written(random_base):
    whole, cut = (encode_examples(random_base, PROMPTS, MESSAGES, 64, most)["label_targets"] for most in (None, 3))
    learned = (whole != IGNORED).sum(1)
    assert learned.max() > 3 and ((cut != IGNORED).sum(1) == learned.clip(max=3)).all()


def test_too_long_rows_are_refused(random_base):
    with refused("max_prompt_tokens"):
        encode_examples(random_base, PROMPTS, MESSAGES, 3)


MENU = ("i see red", "i see blue", "i see green")


@pytest.fixture(scope="module")
def network():
    made = LanguageNetwork(ModuleSettings(**language_model(init_seed=0, trainable_roles=("action", "message"))))
    randomise(made, "message", std=0.3, seed=4)
    return made


def views():
    return [TextObservation(f"you are {who}. you see {hue}.", ("name red",), (True,)) for who, hue in
            (("alice", "red"), ("bob", "blue"), ("alice", "green"))]  # fmt: skip


def written(network, text):
    """A message whose tokens are those of its text."""
    prompt = message_prompt(views()[0].text)
    base = network.lm.base
    return Written(text, (*base.encode(f"{prompt} {text}")[len(base.encode(prompt)) :], base.eos_id))


def batch(network, encoder, said):
    messages = [None if text is None else written(network, text) for text in said]
    rows = [encoder.encode(view, message) for view, message in zip(views(), messages, strict=True)]
    return {name: torch.from_numpy(np.stack([row[name] for row in rows])) for name in rows[0]}


def log_prob(network, prompt, text):
    """Token by token through the whole vocabulary."""
    base, lm = network.lm.base, network.lm
    head, ids = base.encode(prompt), base.encode(f"{prompt} {text}")
    with torch.no_grad(), lm.use("message"):
        logits = lm.token_logits(lm.hidden_states(torch.tensor([ids]), torch.ones(1, len(ids), dtype=torch.long)))[0]
    chances = logits.log_softmax(-1)
    return float(sum(chances[k - 1, ids[k]] for k in range(len(head), len(ids))))


def test_menu(network):
    said = ["i see blue", "i see green", None]
    encoder = MessageEncoder(network.lm.base, 160, 5, MENU)
    terms = network.message_terms(batch(network, encoder, said))
    table = torch.tensor(
        [[log_prob(network, message_prompt(view.text), phrase) for phrase in MENU] for view in views()]
    ).log_softmax(-1)
    np.testing.assert_allclose(terms.log_probs.detach(), [table[0, 1], table[1, 2], 0.0], atol=1e-4)
    entropies = -(table.exp() * table).sum(-1)[:2]
    np.testing.assert_allclose(terms.entropy.detach(), [*entropies.tolist(), 0.0], atol=1e-4)
    assert float(terms.mean(terms.entropy).detach()) == pytest.approx(float(entropies.mean()), abs=1e-4)


def test_nobody_spoke(network):
    for menu in ((), MENU):
        terms = network.message_terms(batch(network, MessageEncoder(network.lm.base, 160, 5, menu), [None] * 3))
        assert terms.log_probs.tolist() == terms.entropy.tolist() == [0, 0, 0]
        assert float(terms.mean(terms.entropy)) == 0 and not terms.spoke.any()


def test_menu_is_drawn_as_often_as_likely(network):
    prompt = message_prompt(views()[0].text)
    table = torch.tensor([log_prob(network, prompt, phrase) for phrase in MENU]).softmax(-1).numpy()
    drawn = network.write_messages([prompt] * 3000, menu=MENU, temperature=1.0, seed=0)
    shares = [drawn.count(phrase) / 3000 for phrase in MENU]
    np.testing.assert_allclose(shares, table, atol=0.03)
    assert network.write_messages([prompt], menu=MENU) == [MENU[int(table.argmax())]]
    assert drawn == network.write_messages([prompt] * 3000, menu=MENU, temperature=1.0, seed=0)


def test_a_menu_is_scored_once_while_the_adapter_stands_still():
    network = LanguageNetwork(ModuleSettings(**language_model(init_seed=0)))
    encoder = MessageEncoder(network.lm.base, network.settings.max_prompt_tokens, 5, MENU)
    for seed in (4, 5):
        randomise(network, "message", std=0.3, seed=seed)
        said = network.write_messages(
            [message_prompt(view.text) for view in views()], menu=MENU, temperature=1.0, seed=0
        )
        arrays, before = batch(network, encoder, said), phase.tokens
        with torch.no_grad():
            known = network.message_terms(arrays).log_probs
        assert phase.tokens == before
        torch.testing.assert_close(known, network.message_terms(arrays).log_probs.detach(), atol=1e-4, rtol=1e-4)


def test_arrays_fit_their_spaces(network):
    for menu in ((), MENU):
        encoder = MessageEncoder(network.lm.base, 160, 5, menu)
        for said in (written(network, "i see red"), None):
            row = encoder.encode(views()[0], said)
            for name, space in encoder.space().items():
                assert space.contains(row[name]), name
    with refused("max_prompt_tokens"):
        MessageEncoder(network.lm.base, 4, 5).encode(views()[0], written(network, "i see red"))[MESSAGE_IDS]
