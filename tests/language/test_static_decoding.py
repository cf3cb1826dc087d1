"""Messages written with a cache of fixed size are those that are written with a growing one, to the token."""

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, Qwen3Config

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.language import generation, static_decoding
from rllib_llm_comm.language.adapters import AdaptedModel, AdapterConfig
from rllib_llm_comm.language.base_model import load_base_model
from rllib_llm_comm.language.generation import draw_messages
from rllib_llm_comm.language.llama import llama_weights
from rllib_llm_comm.language.static_decoding import StaticWriters, stop_table
from tests.language.random_models import base, randomised

PROMPTS = [
    "alice stands at the board. She says:",
    "bob waits. He says:",
    "alice sees a tomato and a long counter, and",
    "x",
]
CONFIGS = {
    "llama": LlamaConfig(vocab_size=600, hidden_size=48, intermediate_size=80, num_hidden_layers=3,
                         num_attention_heads=4, num_key_value_heads=2),
    "qwen3": Qwen3Config(vocab_size=600, hidden_size=48, intermediate_size=80, num_hidden_layers=2,
                         num_attention_heads=4, num_key_value_heads=1, head_dim=16),
}  # fmt: skip


def model_of(name, layers="all"):
    model = AdaptedModel(load_base_model() if name == "embedded" else base(CONFIGS[name]), AdapterConfig(layers=layers))
    torch.manual_seed(1)
    return randomised(model, std=0.05 if name == "embedded" else 0.2)


def statically(model):
    model.static_writers = StaticWriters(model.base, llama_weights(model.base))
    return model


@pytest.mark.parametrize("name", ["embedded", "llama", "qwen3"])
@pytest.mark.parametrize("role", ["message", None])
def test_messages_are_the_same_to_the_token(name, role):
    dynamic, static = model_of(name), statically(model_of(name))
    drawn = {"temperature": 1.0, "seed": 3}
    for how in ({"max_words": 1}, {"max_words": 10}, {"max_words": 1, **drawn}, {"max_words": 6, **drawn}):
        own, other = (draw_messages(model, [*PROMPTS, PROMPTS[0]], role=role, **how) for model in (static, dynamic))
        assert own == other


def test_a_change_of_the_adapter_is_heard_and_a_trunk_changes_nothing():
    dynamic, static = model_of("llama", 1), statically(model_of("llama", 1))
    before = draw_messages(static, PROMPTS)
    assert before == draw_messages(dynamic, PROMPTS)
    for model in (dynamic, static):
        torch.manual_seed(5)
        with torch.no_grad():
            for _, parameter in model.named_adapter_parameters("message"):
                parameter.normal_(std=0.3)
    assert before != draw_messages(static, PROMPTS) == draw_messages(dynamic, PROMPTS)


def test_words_are_counted_as_in_the_whole_text():
    known = load_base_model()
    table = stop_table(known)
    random = np.random.default_rng(0)
    for _ in range(300):
        ids = random.integers(known.vocab_size, size=12).tolist()
        text = known.tokenizer.decode([*known.encode("a")[-1:], *ids])
        words, inside = 1, True
        for token in ids:
            goes_on = inside and not table.opens[token] and table.words[token] > 0
            words += int(table.words[token]) - int(goes_on)
            if not table.empty[token]:
                inside = not bool(table.closes[token])
        # The bytes of a character may be apart; then what they mean is known with the last one.
        if "\ufffd" not in text:
            assert words == len(text.split()), (ids, text)


def test_too_little_memory_lowers_the_rows_and_is_told_once(caplog, monkeypatch):
    """A GPU that is full, played by a writer that refuses more than one row, as CUDA's allocator would."""
    whole = static_decoding.StaticWriter

    def full(base, weights, shape, temperature, lora):
        if shape[0] > 1:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory.")
        return whole(base, weights, shape, temperature, lora)

    model = statically(model_of("embedded"))
    expected = draw_messages(model_of("embedded"), PROMPTS, max_words=2)
    monkeypatch.setattr(static_decoding, "StaticWriter", full)
    for _ in range(2):
        assert draw_messages(model, PROMPTS, max_words=2) == expected
    assert [record.getMessage().split(" rows")[0].rsplit(" ", 1)[1] for record in caplog.records] == ["2", "1"]


def test_a_device_that_cannot_do_it_writes_as_before_in_rows_that_a_growing_cache_has_room_for(monkeypatch, caplog):
    def fails(*_):
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    model, rows = statically(model_of("embedded")), list[int]()
    monkeypatch.setattr(static_decoding, "StaticWriter", fails)
    decoder = model.decoder
    monkeypatch.setattr(
        model, "decoder", lambda **given: rows.append(len(given["input_ids"])) or decoder(**given), raising=False
    )
    prompts = [f"cook {number} says:" for number in range(static_decoding.ROWS_PER_BATCH + 60)]
    how = {"max_words": 1, "temperature": 1.0, "seed": 2}
    assert draw_messages(model, prompts, **how) == draw_messages(model_of("embedded"), prompts, **how)
    assert len(caplog.records) == 1 and "not permitted when stream is capturing" in caplog.text
    assert max(rows) == generation._ROWS_PER_BATCH < static_decoding.ROWS_PER_BATCH


def test_a_device_that_does_not_hold_one_text_is_refused():
    small = model_of("llama").base
    assert small.kept_bytes_per_token == 2 * 3 * 24 * 4  # keys and values, layers, heads times size, float32
    small.require_room(100, 100 * small.kept_bytes_per_token)
    with pytest.raises(UserError, match="`max_prompt_tokens`"):
        small.require_room(101, 100 * small.kept_bytes_per_token)
