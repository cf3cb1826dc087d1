"""The layers below the adapters, computed once per text, change nothing but the time."""

import copy
import functools

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.language.adapters import AdaptedModel, AdapterConfig
from rllib_llm_comm.language.base_model import check_lora_layers, wrap_base_model
from rllib_llm_comm.language.engines import plain_features, plain_messages, plain_scores, require_fast
from rllib_llm_comm.language.generation import draw_messages
from rllib_llm_comm.language.scoring import encode_candidates, prompt_features, score_candidates
from rllib_llm_comm.language.trunk import NONE, TokenTrie
from rllib_llm_comm.verco.encoding import encode_examples
from rllib_llm_comm.verco.language_network import label_logits
from tests.language.random_models import arrays, randomised
from tools.embedded_model.train import build_model

LAYERS, TOP = 5, 2
PHRASES = ["get the raw kale from the shelf", "wait", "chop the leek"]
TEXTS = [
    "make a kale leek bowl wait i am bob",
    "make a kale leek bowl wait i am here at the first board",
    "make a kale leek bowl wait i am here at the shelf now",
    "make a kale leek bowl get the raw kale",
    "chop",
]
ROLES = (None, "message", "action")


@pytest.fixture(scope="module")
def deep_base(random_base):
    """As `random_base`, with more layers and fewer heads of keys than of queries."""
    torch.manual_seed(0)
    model = build_model(random_base.tokenizer, layers=LAYERS, hidden=32, heads=4)
    config = copy.deepcopy(model.config)
    config.num_key_value_heads = 2
    model = type(model)(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.normal_(std=0.2)
    return wrap_base_model("deep", model, random_base.tokenizer)


@functools.cache
def adapted(base, layers=TOP, *, merges=True, **settings_):
    torch.manual_seed(1)
    model = AdaptedModel(base, AdapterConfig(r=4, alpha=8, layers=layers), **settings_)
    for adapter in model.llama_adapters.values():  # small models merge their adapters, large ones do not
        adapter.merges = adapter._merges_in_updates = merges
    return randomised(model)


def encoded(base, texts, left=False):
    return arrays(base, [(text, PHRASES) for text in texts], left)


def close(got, want, tolerance=1e-4):
    torch.testing.assert_close(got, want, atol=tolerance, rtol=tolerance)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["scores", "features", "messages", "drawn", "gradients", "labels"]),
        st.sampled_from(ROLES),
        st.lists(st.sampled_from(TEXTS), min_size=1, max_size=6),
        st.booleans(),
        st.sampled_from([(1, 0, 0), (0, 1, 1), (1, 1, 1)]),
    ),
    min_size=2, max_size=6,
)  # fmt: skip
# Bytes of everything, of a few tokens' keys and values, of a few hidden states, of nothing.
BYTES = st.sampled_from([2**24, 16_384, 2048, 0])


def check(model, what, role, texts, left, allowed):
    """Compares one computation with the plain engine, which knows of no trunk."""
    base = model.base
    heads, tails = encoded(base, texts, left)
    mask = torch.tensor([allowed] * len(heads), dtype=torch.bool)
    mask[::2, 2] = True
    if what == "scores":
        with torch.no_grad():
            close(score_candidates(model, heads, tails, mask, role=role), plain_scores(model, heads, tails, mask,
                                                                                       role=role))  # fmt: skip
    elif what == "features":
        close(prompt_features(model, heads), plain_features(model, heads))
    elif what in ("messages", "drawn"):
        how = {"max_words": 3, "temperature": float(what == "drawn"), "seed": 3, "role": role}
        assert draw_messages(model, texts, **how) == plain_messages(model, texts, **how)
    elif what == "gradients":
        role = role or "action"
        parameters = [p for _, p in model.named_adapter_parameters(role)]
        ours, plain = (
            torch.autograd.grad(scores(model, heads, tails, mask, role=role).logsumexp(1).sum(), parameters)
            for scores in (score_candidates, plain_scores)
        )
        largest = max(float(p.abs().max()) for p in plain)
        for a, b in zip(ours, plain, strict=True):
            close(a / largest, b / largest)
    else:
        role = role or "message"
        rows = {k: torch.from_numpy(v) for k, v in encode_examples(base, texts, ["the first board"] * len(texts),
                                                                   99).items()}  # fmt: skip
        with torch.no_grad():
            got = label_logits(model, *rows.values(), role)[2]
            with model.use(role):
                ids = rows["label_ids"].long().clamp(min=0)
                states = model.model.base_model(input_ids=ids, use_cache=False).last_hidden_state
        row, column = torch.nonzero(rows["label_targets"] != -100, as_tuple=True)
        close(got, model.token_logits(states[row, column - 1]))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=10)
@given(steps=STEPS, size=BYTES, large=st.booleans())
def test_everything_is_as_the_plain_engine_has_it(deep_base, steps, size, large):
    model = adapted(deep_base, trunk_cache_bytes=size, prefix_cache_bytes=0 if large else 2**20, merges=not large)
    model.forget()
    for step in steps:
        check(model, *step)
        assert model.trunk.nbytes <= size


@torch.no_grad()
def test_candidates_that_come_later_do_not_see_those_that_are_kept(deep_base):
    model = adapted(deep_base)
    model.forget()
    heads, tails = encoded(deep_base, TEXTS[:2])
    for allowed in ([1, 0, 0], [1, 1, 0], [1, 1, 1]):
        mask = torch.tensor([allowed] * 2)
        close(score_candidates(model, heads, tails, mask), plain_scores(model, heads, tails, mask))


@torch.no_grad()
def test_a_text_is_computed_once_for_all_roles_and_once_for_roll_out_and_update(deep_base):
    model, other = adapted(deep_base), AdaptedModel(deep_base, AdapterConfig(r=2, layers=TOP))
    assert other.trunk is model.trunk  # of another policy in this process, such as the learner's
    model.forget()
    heads, tails = encoded(deep_base, TEXTS[1:2])
    mask = torch.ones(tails.shape[:2])
    head, phrases = encode_candidates(deep_base, TEXTS[1], PHRASES)
    tokens = len({tuple([*head, *tail[:end]]) for tail in phrases for end in range(len(tail))}) - 1 + len(head)
    counts = [model.trunk.computed_tokens]
    for step in (
        lambda: draw_messages(model, TEXTS[1:2], max_words=5),
        lambda: score_candidates(model, heads, tails, mask),
        lambda: prompt_features(model, heads),
    ):
        step()
        counts.append(model.trunk.computed_tokens)
    assert np.diff(counts)[1:].tolist() == [tokens - len(head), 0] and tokens > len(head) + 4
    before = model.trunk.computed_tokens
    with torch.enable_grad():
        for _, parameter in other.named_adapter_parameters("action"):
            parameter.requires_grad_(True)
        score_candidates(other, heads, tails, mask).sum().backward()
    assert model.trunk.computed_tokens == before


@torch.no_grad()
@pytest.mark.parametrize(("kept", "error"), [("bfloat16", 0.05), ("int8", 0.1)])
def test_smaller_formats_are_near_and_hold_more(deep_base, kept, error):
    model, exact = adapted(deep_base, trunk_cache_dtype=kept), adapted(deep_base)
    heads, tails = encoded(deep_base, TEXTS)
    mask = torch.ones(tails.shape[:2])
    score_candidates(model, heads, tails, mask, role=None)
    again = score_candidates(model, heads, tails, mask)  # from what is kept
    want = score_candidates(exact, heads, tails, mask)
    apart = ((again - want) / want).abs().max()
    assert 0 < apart < error
    assert model.trunk.nbytes < 0.8 * exact.trunk.nbytes


def test_who_chose_fewer_bytes_is_not_refused_for_it(deep_base):
    for less in ({"trunk_cache_dtype": "bfloat16"}, {"trunk_cache_dtype": "int8"}, {"autocast": "bfloat16"}):
        require_fast(adapted(deep_base, **less), 100)


@torch.no_grad()
def test_it_is_computed_in_the_format_of_the_matrix_products(deep_base):
    half, exact = adapted(deep_base, autocast="bfloat16"), adapted(deep_base)
    assert half.trunk is not exact.trunk
    heads, tails = encoded(deep_base, TEXTS)
    mask = torch.ones(tails.shape[:2])
    for role in ("action", "message"):
        ours, plain = (score(one, heads, tails, mask, role=role) for score, one in
                       ((score_candidates, half), (plain_scores, exact)))  # fmt: skip
        torch.testing.assert_close(ours, plain, atol=0.5, rtol=0.1)


def test_memory_settings_leave_the_gradient_as_it_is(deep_base):
    heads, tails = encoded(deep_base, TEXTS)
    mask = torch.ones(tails.shape[:2])
    model = adapted(deep_base, gradient_checkpointing=True)
    parameters = [p for _, p in model.named_adapter_parameters("action")]
    ours, plain = (
        torch.autograd.grad(scores(model, heads, tails, mask).logsumexp(1).sum(), parameters)
        for scores in (score_candidates, plain_scores)
    )
    close(ours, plain, 1e-3)


def test_adapters_are_on_the_upper_layers_only(deep_base):
    names = [name for name, _ in adapted(deep_base).named_adapter_parameters("action")]
    layers = {int(name.split("layers.")[1].split(".")[0]) for name in names}
    assert layers == {LAYERS - 2, LAYERS - 1} and len(names) == 2 * 7 * 2
    some = AdaptedModel(deep_base, AdapterConfig(target_modules=("q_proj",), layers=TOP))
    assert len(list(some.named_adapter_parameters("action"))) == 2 * 2


def test_all_layers_have_no_trunk_and_more_than_all_are_refused(deep_base):
    assert adapted(deep_base, layers=LAYERS).trunk is None
    assert adapted(deep_base, layers="all").trunk is None
    with pytest.raises(UserError, match=f"`lora_layers` .* {LAYERS} layers"):
        AdaptedModel(deep_base, AdapterConfig(layers=6))
    with pytest.raises(UserError, match="`lora_layers` .* 2 layers"):
        check_lora_layers("embedded", 3)
    check_lora_layers("embedded", "all")


def test_a_model_that_cannot_be_cut_is_refused(random_base):
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=len(random_base.tokenizer), n_embd=16, n_layer=3, n_head=2, n_positions=64)
    base = wrap_base_model("gpt2", GPT2LMHeadModel(config), random_base.tokenizer)
    with pytest.raises(UserError, match="`base_model` .*GPT2Model"):
        AdaptedModel(base, AdapterConfig(layers=1))


def test_the_oldest_texts_make_room_and_what_lies_below_others_stays():
    trie = TokenTrie(4, 2)
    trie.begin_round()
    first, fresh = trie.add(NONE, 7)
    second, _ = trie.add(first, 8)
    assert fresh and trie.add(first, 8) == (second, False)
    assert [trie.add_kv(node) for node in (first, second)] == [0, 1]
    trie.begin_round()
    third, _ = trie.add(NONE, 9)
    trie.use(np.array([first, NONE]))
    assert trie.find([7, 8, 8], [-1, 0, 1]) == [first, second, NONE]
    assert trie.add_kv(third) == 1 and trie.kv_of[second] == NONE  # the second one's, which is older
    assert trie.add_kv(third) == NONE  # the others are in use
    trie.add(third, 1)
    fifth, fresh = trie.add(third, 2)
    assert fresh and fifth == second and trie.find([7, 8, 9], [-1, 0, -1]) == [first, NONE, third]
    assert trie.add(third, 3) == (NONE, False)
