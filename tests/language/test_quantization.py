"""A base in 8 or 4 bits: smaller, nearly the same policy, trainable adapters."""

import importlib.util
import sys

import pytest
import torch

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.language.adapters import AdaptedModel
from rllib_llm_comm.language.base_model import load_base_model
from rllib_llm_comm.language.generation import generate_messages
from rllib_llm_comm.language.scoring import score_candidates
from tests.language.random_models import arrays
from tests.refusal import refused

PROMPTS = [
    "make a lettuce tomato salad. i am bob in the right room. i hold nothing. counter: empty. alice says: please bring "
    "the tomato. next i",
    "make a lettuce tomato salad. i am alice in the left room. i hold raw tomato. first board: empty. next i",
]
PHRASES = ["wait", "get the raw tomato from the shelf", "put the raw tomato on the first board"]


def scores_of(model):
    heads, tails = arrays(model.base, [(prompt, PHRASES) for prompt in PROMPTS])
    return score_candidates(model, heads, tails, torch.ones(tails.shape[:2]))


def bytes_of(model):
    return sum(p.numel() * p.element_size() for p in model.base.model.parameters())


@pytest.mark.skipif(importlib.util.find_spec("bitsandbytes") is None, reason="the extra `quantized` is not installed")
@pytest.mark.filterwarnings("ignore:MatMul8bitLt")
@pytest.mark.parametrize(("quantization", "tolerance"), [("8bit", 0.1), ("4bit", 0.3)])
def test_quantized_base(quantization, tolerance):
    plain, small = (AdaptedModel(load_base_model(quantization=q)) for q in ("none", quantization))
    assert bytes_of(small) < 0.6 * bytes_of(plain)  # the embedded model's tied embedding stays as it is
    ours, theirs = ((scores_of(model) / 1.5).softmax(-1) for model in (small, plain))
    assert float((ours - theirs).abs().max()) < tolerance
    parameters = [p.requires_grad_(True) for _, p in small.named_adapter_parameters("action")]
    gradients = torch.autograd.grad(scores_of(small).sum(), parameters)
    assert any(float(gradient.abs().sum()) > 0 for gradient in gradients)
    assert all(generate_messages(small, PROMPTS))


def test_missing_extra_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    with pytest.raises(UserError, match=r"`quantization` is '8bit'.*rllib_llm_comm\[quantized\]"):
        load_base_model("embedded", "float16", "cpu", "8bit")
    with refused("quantization", "choice"):
        load_base_model(quantization="2bit")
