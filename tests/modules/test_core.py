"""The network without RLlib."""

from __future__ import annotations

import pytest
import torch
from toys import batch_of, language_model, randomise

from rllib_llm_comm.errors import UserError
from rllib_llm_comm.language.plain import plain_scores
from rllib_llm_comm.language.prompts import message_prompt
from rllib_llm_comm.modules.core import LLMCommCore, resolve_device
from rllib_llm_comm.modules.memo import Memo
from rllib_llm_comm.modules.settings import LanguageModelSettings


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
