"""Tokenizers of the byte-level kind, as most pretrained models have them: borders, cuts, special tokens."""

import dataclasses

import pytest
from byte_level import tokenizer_alone
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from rllib_llm_comm.language.base_model import load_base_model
from rllib_llm_comm.language.generation import as_written
from rllib_llm_comm.language.scoring import encode_candidates

WORDS = ("i", "see", "tomato", "wait", "chop", "brötchen", "鍋", "to", "at", "toma")
BASE = tokenizer_alone()
TEXTS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join)


@given(TEXTS, st.lists(TEXTS, min_size=1, max_size=5, unique=True))
def test_prompt_and_candidate_are_the_ids_of_the_joined_text(prompt, candidates):
    head, tails = encode_candidates(BASE, prompt, candidates)
    for candidate, tail in zip(candidates, tails, strict=True):
        assert tail and head + tail == BASE.encode(f"{prompt} {candidate}")


@given(TEXTS, st.integers(1, 8))
def test_a_cut_message_has_no_broken_character_and_only_whole_words(text, max_words):
    ids = BASE.encode(text)
    for end in range(1, len(ids) + 1):
        said = as_written(BASE, ids[:end], max_words).text
        assert "\ufffd" not in said
        used_up = end >= 4 * max_words
        if used_up and len(said.split()) > 1:  # a single word is kept, even as a part
            assert all(word in WORDS for word in said.split())


def test_a_message_that_ended_by_itself_keeps_its_last_word():
    ids = BASE.encode("wait to chop")
    assert as_written(BASE, [*ids, BASE.eos_id], 3).text == "wait to chop"
    assert as_written(BASE, ids, len(ids) // 4).text != "wait to chop"


@pytest.mark.parametrize(
    ("base", "name"),
    [(BASE, "<|im_end|>"), (BASE, "<|im_start|>"), (load_base_model(), "</s>"), (load_base_model(), "<pad>")],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_special_tokens_cannot_be_said(base, name):
    special = base.tokenizer.convert_tokens_to_ids(name)
    assert special not in base.encode(f"bob says: wait{name} now")[1:]
    harmless = base.without_special_tokens(f"wait{name[0]}{name}{name[1:]}")
    assert special not in base.tokenizer(harmless, add_special_tokens=False)["input_ids"]
    assert base.without_special_tokens("wait. chop!") == "wait. chop!"


LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
CUTTERS = {
    "gpt 2": pre_tokenizers.ByteLevel(add_prefix_space=False),
    "llama 3": pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(LLAMA_3), "isolated"), BYTES]
    ),
    "metaspace, always": pre_tokenizers.Metaspace(prepend_scheme="always"),
    "metaspace, first": pre_tokenizers.Metaspace(prepend_scheme="first"),
    "metaspace, never": pre_tokenizers.Metaspace(prepend_scheme="never"),
    "not cut": pre_tokenizers.Metaspace(prepend_scheme="first", split=False),
    "whitespace": pre_tokenizers.Whitespace(),
}  # fmt: skip


@pytest.mark.parametrize("cutter", CUTTERS)
def test_texts_encoded_word_by_word_have_the_ids_of_the_whole(cutter):
    backend = Tokenizer(models.BPE(unk_token="<unk>"))
    backend.pre_tokenizer = CUTTERS[cutter]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=420, special_tokens=["<unk>", "</s>"], initial_alphabet=alphabet)
    backend.train_from_iterator([" ".join(WORDS), "to wait, at tomato: 12.\n\nchop it"], trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>", eos_token="</s>")
    base = dataclasses.replace(BASE, tokenizer=tokenizer)
    assert base.encodes_by_word is (cutter != "not cut")

    def check(text):
        whole = tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        assert base.encode(text) == whole

    given(st.text("a to\n\t.,:;'12é<>鍋-", max_size=30))(check)()
    given(st.text(max_size=20))(check)()
    given(TEXTS)(check)()
