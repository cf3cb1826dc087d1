"""The fast engine: windows, number formats, and where its messages end."""

import numpy as np
import pytest
import torch
from transformers import MistralConfig

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.language.adapters import AdaptedModel
from rllib_llm_comm.language.base_model import load_base_model
from rllib_llm_comm.language.engines import ENGINES, require_fast
from rllib_llm_comm.language.generation import _unfinished, is_open
from tests.language.random_models import base

MISTRAL = MistralConfig(
    vocab_size=4096, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, sliding_window=16,
)  # fmt: skip


def test_a_window_that_is_shorter_than_the_texts_is_refused():
    model = AdaptedModel(base(MISTRAL))
    with pytest.raises(UserError, match="16 tokens .* 17"):
        require_fast(model, 17)
    require_fast(model, 16)


@pytest.mark.parametrize(("device", "dtype"), [("cpu", "float32"), ("cuda", "bfloat16")])
def test_auto_is_the_format_for_the_device(device, dtype):
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("there is no GPU")
    assert load_base_model(dtype="auto", device=device) is load_base_model(dtype=dtype, device=device)


def test_what_is_drawn_behind_a_line_break_ends_a_message():
    """As in the plain engine, which decodes all that is written."""
    other = load_base_model()
    word, newline = other.encode("tomato")[-1], other.tokenizer.convert_tokens_to_ids("Ċ")
    for before in ([word], [word, newline]):
        written = [list(before)]
        alive = _unfinished(other, written, np.array([0]), [word], 10)
        assert written == [[*before, word]]
        assert bool(alive) == is_open(other.decode(written[0]), 10) == (newline not in before)


def test_a_window_does_not_cut_candidates_that_stand_side_by_side():
    """They take more places than the window has, though no text is longer than it; behind a beginning that is known."""
    model = AdaptedModel(base(MISTRAL))
    candidates = (100 + torch.arange(36)).reshape(1, 12, 3)
    for length in (9, 13):
        prompt = torch.arange(20, 20 + length)[None]
        with torch.no_grad():
            fast, plain = (
                ENGINES[name].scores(model, prompt, candidates, torch.ones(1, 12, dtype=torch.bool), role=None)
                for name in ("fast", "plain")
            )
        torch.testing.assert_close(fast, plain, atol=1e-4, rtol=1e-4)


@pytest.mark.slow
def test_a_real_model_in_half_precision_is_accepted():
    """Its special tokens have numbers so large that any two ways of computing them in bfloat16 differ."""
    require_fast(AdaptedModel(load_base_model("smollm2", "bfloat16")), 100)
