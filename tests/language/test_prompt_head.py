"""A head that is kept changes nothing but the time."""

from __future__ import annotations

import pytest
import torch

from rllib_llm_comm.language.features import prompt_features
from rllib_llm_comm.language.generation import generate_messages
from rllib_llm_comm.language.plain import plain_scores
from rllib_llm_comm.language.scoring import encode_candidates, score_candidates

HEAD = "make a kale leek bowl wait i am"
BATCHES = [
    [f"{HEAD} bob", f"{HEAD} here at the first board", f"{HEAD} by the shelf"],
    [f"{HEAD} bob", f"{HEAD} wait"],
    ["make a kale leek bowl get the raw kale", "make a kale leek bowl wait i go"],  # a shorter head
    ["chop", "make a kale leek bowl"],  # none
]


def arrays(base, prompts):
    rows = [encode_candidates(base, prompt, ["get the kale", "get the leek", "wait"]) for prompt in prompts]
    wide = max(len(head) for head, _ in rows)
    long = max(len(tail) for _, tails in rows for tail in tails)
    heads = torch.tensor([head + [base.pad_id] * (wide - len(head)) for head, _ in rows])
    tails = torch.tensor([[tail + [base.pad_id] * (long - len(tail)) for tail in tails] for _, tails in rows])
    return heads, tails, torch.ones(tails.shape[:2], dtype=torch.bool)


def lengths_of(model):
    return {role: len(ids) for role, ids in model.heads._ids.items()}


@torch.no_grad()
def test_scores_and_features_are_those_without_a_head(adapted):
    seen = []
    for prompts in BATCHES:
        heads, tails, mask = arrays(adapted.base, prompts)
        torch.testing.assert_close(
            score_candidates(adapted, heads, tails, mask),
            plain_scores(adapted, heads, tails, mask), atol=1e-4, rtol=1e-4,
        )  # fmt: skip
        features = prompt_features(adapted, heads)
        for row, feature in zip(heads, features, strict=True):
            ids = row[row != adapted.base.pad_id]
            with adapted.use(None):
                hidden = adapted.hidden_states(ids[None], torch.ones_like(ids)[None])[0]
            torch.testing.assert_close(feature, torch.cat([hidden[-1], hidden.mean(0)]), atol=1e-4, rtol=1e-4)
        seen.append(lengths_of(adapted)["action"])
    assert seen[0] == seen[1] > seen[2] >= 4 > seen[3]


@torch.no_grad()
def test_head_follows_the_weights(adapted):
    heads, tails, mask = arrays(adapted.base, BATCHES[0])
    before = score_candidates(adapted, heads, tails, mask)
    for _, parameter in adapted.named_adapter_parameters("action"):
        parameter.add_(0.05)
    after = score_candidates(adapted, heads, tails, mask)
    assert not torch.allclose(before, after)
    torch.testing.assert_close(after, plain_scores(adapted, heads, tails, mask), atol=1e-4, rtol=1e-4)


def test_gradients_flow_through_the_whole_prompt(adapted):
    heads, tails, mask = arrays(adapted.base, BATCHES[0])
    with torch.no_grad():
        score_candidates(adapted, heads, tails, mask)
    parameters = [p.requires_grad_(True) for _, p in adapted.named_adapter_parameters("action")]
    packed = torch.autograd.grad(score_candidates(adapted, heads, tails, mask).sum(), parameters)
    plain = torch.autograd.grad(plain_scores(adapted, heads, tails, mask).sum(), parameters)
    for ours, theirs in zip(packed, plain, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_messages_are_the_same_with_a_head(adapted, temperature):
    alone = [generate_messages(adapted, [prompt], temperature=temperature, seed=3)[0] for prompt in BATCHES[0]]
    assert lengths_of(adapted)["message"] >= 4
    assert generate_messages(adapted, BATCHES[0], temperature=temperature, seed=3) == alone
    # A model that has never met another prompt computes all of one.
    adapted.heads._ids.clear()
    adapted.heads._heads.clear()
    assert generate_messages(adapted, [*BATCHES[0], "chop"], temperature=temperature, seed=3)[:3] == alone
