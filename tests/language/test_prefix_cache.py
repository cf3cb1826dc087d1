"""Keys and values that are kept change nothing but the time."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rllib_llm_comm.language.engines import plain_scores
from rllib_llm_comm.language.generation import generate_messages
from rllib_llm_comm.language.packing import PAD
from rllib_llm_comm.language.prefix_cache import PrefixCache, split_by_size
from rllib_llm_comm.language.scoring import prompt_features, score_candidates
from tests.language.random_models import arrays

HEAD = "make a kale leek bowl wait i am"
BATCHES = [
    [f"{HEAD} bob", f"{HEAD} here at the first board", f"{HEAD} by the shelf"],
    [f"{HEAD} bob", f"{HEAD} wait"],
    ["make a kale leek bowl get the raw kale", "make a kale leek bowl wait i go"],  # a shorter head
    ["chop", "make a kale leek bowl"],  # none
]


def encoded(base, prompts):
    heads, tails = arrays(base, [(prompt, ["get the kale", "get the leek", "wait"]) for prompt in prompts])
    return heads, tails, torch.ones(tails.shape[:2], dtype=torch.bool)


@torch.no_grad()
def test_scores_and_features_are_those_without_a_cache(adapted):
    for prompts in BATCHES:
        heads, tails, mask = encoded(adapted.base, prompts)
        torch.testing.assert_close(
            score_candidates(adapted, heads, tails, mask),
            plain_scores(adapted, heads, tails, mask), atol=1e-4, rtol=1e-4,
        )  # fmt: skip
        features = prompt_features(adapted, heads)
        for row, feature in zip(heads, features, strict=True):
            ids = row[row != PAD]
            with adapted.use(None):
                hidden = adapted.hidden_states(ids[None], torch.ones_like(ids)[None])[0]
            torch.testing.assert_close(feature, torch.cat([hidden[-1], hidden.mean(0)]), atol=1e-4, rtol=1e-4)
    assert adapted.prefixes("action").nbytes > 0


@torch.no_grad()
def test_the_cache_follows_the_weights(adapted):
    heads, tails, mask = encoded(adapted.base, BATCHES[0])
    before = score_candidates(adapted, heads, tails, mask)
    for _, parameter in adapted.named_adapter_parameters("action"):
        parameter.add_(0.05)
    after = score_candidates(adapted, heads, tails, mask)
    assert not torch.allclose(before, after)
    torch.testing.assert_close(after, plain_scores(adapted, heads, tails, mask), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_messages_are_the_same_with_a_cache(adapted, temperature):
    alone = []
    for prompt in BATCHES[0]:
        adapted.forget()
        alone += generate_messages(adapted, [prompt], temperature=temperature, seed=3)
    assert generate_messages(adapted, BATCHES[0], temperature=temperature, seed=3) == alone
    assert generate_messages(adapted, [*BATCHES[0], "chop"], temperature=temperature, seed=3)[:3] == alone


@torch.no_grad()
def test_beginnings_are_found_and_bytes_are_bounded(adapted):
    base = adapted.base
    heads, _, _ = encoded(base, [f"{HEAD} bob", f"{HEAD} here at the first board"])
    lengths = (heads != PAD).sum(1)
    cache = adapted.prefixes(None)
    assert cache.find(heads, lengths, None).lengths.tolist() == [0, 0]
    prompt_features(adapted, heads)
    found = cache.find(heads, lengths, None)
    known = found.lengths
    assert found.totals.abs().sum() > 0
    assert all(0 < n - k <= 4 for n, k in zip(lengths.tolist(), known.tolist(), strict=True))
    assert cache.rests(heads, lengths, None).tolist() == (lengths - known).tolist()
    other, _, _ = encoded(base, [f"{HEAD} wait wait wait"])
    shared = int(cache.find(other, (other != PAD).sum(1), None).lengths)
    assert shared >= len(base.encode(HEAD)) // 4 * 4
    most = cache.nbytes // 2
    small = PrefixCache(adapted, max_bytes=most)
    adapted._prefixes[None] = small
    for prompts in BATCHES:
        ids, _, _ = encoded(base, prompts)
        prompt_features(adapted, ids)
        assert small.nbytes + cache.nbytes + adapted._prefixes["action"].nbytes <= most, "one bound for all"
    assert torch.is_grad_enabled() or adapted.prefixes("action") is not None
    with torch.enable_grad():
        assert adapted.prefixes("action") is None


@given(st.lists(st.integers(0, 60), min_size=1, max_size=40), st.integers(1, 300))
def test_rows_are_split_without_loss_and_within_bounds(sizes, most):
    parts = split_by_size(torch.tensor(sizes), most)
    assert sorted(int(row) for part in parts for row in part) == list(range(len(sizes)))
    for part in parts:
        longest = max(1, max(sizes[int(row)] for row in part))
        assert len(part) == 1 or len(part) * longest <= most
    if len(set(sizes)) == 1 and len(sizes) * max(1, sizes[0]) <= most:
        assert len(parts) == 1
