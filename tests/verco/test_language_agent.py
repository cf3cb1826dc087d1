"""The network without RLlib."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from toys import batch_of, language_model, randomise

from rllib_llm_comm.core.bounded_cache import Memo
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.language.base_model import resolve_device
from rllib_llm_comm.language.engines import plain_scores
from rllib_llm_comm.language.prompts import message_prompt
from rllib_llm_comm.verco.encoding import ObservationEncoder, TextObservation
from rllib_llm_comm.verco.language_agent import LLMCommCore
from rllib_llm_comm.verco.settings import LanguageModelSettings


@pytest.fixture
def core():
    core = LLMCommCore(LanguageModelSettings.from_mapping(language_model(init_seed=3, temperature=2.0)))
    randomise(core, "action")
    return core


def test_logits_are_the_plain_scores_over_the_temperature(core):
    batch = batch_of(core)
    plain = plain_scores(
        core.lm, batch["prompt_ids"], batch["candidate_ids"], batch["action_mask"], normalization="sum"
    )
    torch.testing.assert_close(core.logits(batch), plain / 2.0, atol=1e-4, rtol=1e-4)


def test_remembered_logits_follow_the_weights(core):
    batch = batch_of(core)
    first = core.remembered_logits(batch)
    torch.testing.assert_close(first, core.logits(batch).detach(), atol=1e-6, rtol=0)
    assert not first.requires_grad
    assert torch.equal(core.remembered_logits(batch), first)
    randomise(core, "action", seed=1)
    second = core.remembered_logits(batch)
    assert not torch.allclose(first, second)
    torch.testing.assert_close(second, core.logits(batch).detach(), atol=1e-6, rtol=0)


def test_what_is_remembered_is_not_computed_again(core, monkeypatch):
    batch = batch_of(core)
    computed = []
    inner = core.logits
    monkeypatch.setattr(core, "logits", lambda rows: (computed.append(len(rows["prompt_ids"])), inner(rows))[1])
    twice = {name: torch.cat([tensor, tensor]) for name, tensor in batch.items()}
    core.remembered_logits(twice)
    core.remembered_logits(batch)
    distinct = len({row.tobytes() for row in torch.cat([batch["prompt_ids"]], 1).numpy()})
    assert computed == [distinct]


def test_messages_follow_the_message_adapter(core):
    prompts = [message_prompt(f"you see {colour}.") for colour in ("red", "blue", "red")]
    first = core.write_messages(prompts, max_words=5)
    assert first[0] == first[2] and all(len(message.split()) <= 5 for message in first)
    assert core.write_messages(prompts, max_words=5) == first
    assert all(len(message.split()) <= 1 for message in core.write_messages(prompts, max_words=1))
    randomise(core, "message", std=0.5)
    assert core.write_messages(prompts, max_words=5) != first


def test_sampled_messages_are_fixed_by_their_seed(core):
    prompts = [message_prompt("you see red.")] * 4
    one = core.write_messages(prompts, temperature=2.0, seed=5)
    assert one == core.write_messages(prompts, temperature=2.0, seed=5)
    assert len(set(one)) > 1


def test_features_do_not_depend_on_adapters(core):
    ids = batch_of(core)["critic_ids"]
    first = core.features(ids)
    randomise(core, "action", seed=7)
    randomise(core, "message", seed=8)
    fresh = LLMCommCore(core.settings).features(ids)
    torch.testing.assert_close(first, fresh)
    assert torch.equal(core.features(ids), first)
    values = core.values({"critic_ids": ids})
    assert values.shape == (len(ids),) and values.requires_grad


def test_same_seed_same_start():
    settings = LanguageModelSettings.from_mapping(language_model(init_seed=3))
    one, other = LLMCommCore(settings), LLMCommCore(settings)
    for (name, a), (_, b) in zip(one.lm.named_adapter_parameters(), other.lm.named_adapter_parameters(), strict=True):
        assert torch.equal(a, b), name
    assert one.lm.base is other.lm.base  # one frozen model per process


def test_memo_forgets_the_oldest_and_on_a_new_stamp():
    memo: Memo[int] = Memo(2)
    memo.require("a")
    memo.put(1, 1)
    memo.put(2, 2)
    assert memo.get(1) == 1
    memo.put(3, 3)
    assert memo.get(2) is None and memo.get(1) == 1 and len(memo) == 2
    memo.require("a")
    assert len(memo) == 2
    memo.require("b")
    assert len(memo) == 0


def test_a_gpu_that_is_not_there_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert resolve_device("auto") == "cpu"
    with pytest.raises(UserError, match="`device` is 'cuda'"):
        resolve_device("cuda")


def _gradients(adapted_settings, observations, kept):
    core = LLMCommCore(LanguageModelSettings(init_seed=0, temperature=1.5, **adapted_settings))
    parameters = []
    torch.manual_seed(5)
    for _, parameter in core.lm.named_adapter_parameters("action"):
        parameters.append(parameter.requires_grad_(True))
        with torch.no_grad():
            parameter.normal_(std=0.05)
    sizes: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (sizes.append(t.nbytes), t)[1], lambda t: t):
        logits = core.logits(observations)
    kept.append(sum(sizes))
    with core.lm.use("message"):  # the adapter in use when gradients are computed does not matter
        gradients = torch.autograd.grad(logits.softmax(-1)[:, 0].sum(), parameters)
    return logits.detach(), gradients


@pytest.mark.parametrize(
    ("memory", "tolerance"),
    [
        ({"micro_batch_tokens": 1}, 1e-5),
        ({"micro_batch_tokens": 25}, 1e-5),
        ({"gradient_checkpointing": True}, 1e-5),
        ({"gradient_checkpointing": True, "micro_batch_tokens": 25}, 1e-5),
        ({"autocast": "bfloat16"}, 0.2),
        ({"dtype": "bfloat16"}, 0.2),
    ],
)
def test_memory_settings_leave_the_gradient_as_it_is(memory, tolerance):
    kept: list[int] = []  # bytes held for the backward pass
    core = LLMCommCore(LanguageModelSettings())
    encoder = ObservationEncoder(core.lm.base, core.settings)
    texts = ["make a tomato salad.", "make a salad. i am bob.", "make a tomato salad.", "i hold a bowl."]
    phrases = ("wait", "get the tomato", "chop")
    rows = [encoder.encode(TextObservation(text, phrases, (True, True, text != texts[1])), {}) for text in texts]
    observations = {name: torch.from_numpy(np.stack([row[name] for row in rows])) for name in rows[0]}
    logits, gradients = _gradients({}, observations, kept)
    got, found = _gradients(memory, observations, kept)
    torch.testing.assert_close(got, logits, atol=tolerance, rtol=tolerance)
    largest = max(float(g.abs().max()) for g in gradients)
    for ours, plain in zip(found, gradients, strict=True):
        assert float((ours - plain).abs().max()) <= tolerance * largest
    if not {"autocast", "dtype"} & set(memory):
        assert kept[1] < kept[0] / 2
