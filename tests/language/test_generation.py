from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rllib_llm_comm.language.base_model import load_base_model
from rllib_llm_comm.language.generation import generate_messages, is_open, up_to_end
from rllib_llm_comm.language.prompts import limit_words
from tests.refusal import refused

PROMPTS = ["next i", "get the raw kale from the shelf", "bob says wait", "next i", "put the leek on the counter"]


def test_sampling_is_fixed_by_the_seed_and_free_of_batch_mates(adapted):
    settings = {"max_words": 6, "temperature": 1.0}
    whole = generate_messages(adapted, PROMPTS, seed=3, **settings)
    assert whole == generate_messages(adapted, PROMPTS, seed=3, **settings)
    assert whole[1] == generate_messages(adapted, PROMPTS[1:2], seed=3, **settings)[0]
    assert whole != generate_messages(adapted, PROMPTS, seed=4, **settings)


@pytest.mark.parametrize("max_words", [1, 3, 10])
def test_word_limit_is_enforced(adapted, max_words):
    texts = generate_messages(adapted, PROMPTS * 3, max_words=max_words, temperature=2.0, seed=0)
    assert all(len(t.split()) <= max_words and "\n" not in t for t in texts)


@given(st.text(max_size=200), st.integers(1, 12))
def test_limit_words_gives_one_short_printable_line(text, max_words):
    line = limit_words(text, max_words)
    assert len(line.split()) <= max_words
    assert line.isprintable()


def test_bad_settings_are_refused(adapted):
    with refused("max_message_words"):
        generate_messages(adapted, PROMPTS, max_words=0)
    with refused("message_temperature"):
        generate_messages(adapted, PROMPTS, temperature=-1.0)


@given(
    st.lists(st.text(alphabet="ab .\n\u00e9\u3000", min_size=1, max_size=6), min_size=1, max_size=8),
    st.integers(1, 4),
    st.booleans(),
)
def test_a_message_ends_where_it_would_token_by_token(parts, max_words, ends):
    base = load_base_model()
    ids = [token for part in parts for token in base.encode(part)] + [base.eos_id] * ends
    count = 1
    while count < len(ids) and ids[count - 1] != base.eos_id and is_open(base.decode(ids[:count]), max_words):
        count += 1
    assert up_to_end(base, ids, max_words) == ids[:count]
