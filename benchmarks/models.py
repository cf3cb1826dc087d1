"""Language models of stated size with random weights: speed does not ask what they know."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from rllib_llm_comm.language.adapters import AdaptedModel
from rllib_llm_comm.language.base_model import load_base_model, wrap_base_model

sys.path.insert(0, str(Path(__file__).parents[1]))  # `tools` is beside the package, not in it

from tools.embedded_model.train import build_model  # noqa: E402

# Layers, hidden size, heads; the embedded model's vocabulary.
SIZES = {"0.5M": (2, 128, 4), "2.6M": (3, 256, 4), "6M": (6, 288, 6)}


def random_model(size: str, seed: int = 0) -> AdaptedModel:
    """A LLaMA of random weights with two adapters that are not the identity.

    Args:
        size: A key of `SIZES`.
        seed: Fixes the weights.
    """
    torch.manual_seed(seed)
    tokenizer = load_base_model().tokenizer
    layers, hidden, heads = SIZES[size]
    model = build_model(tokenizer, layers=layers, hidden=hidden, heads=heads)
    adapted = AdaptedModel(wrap_base_model(f"random {size}", model, tokenizer))
    with torch.no_grad():
        for _, parameter in adapted.named_adapter_parameters():
            parameter.normal_(std=0.05)
    return adapted


def parameter_count(model: AdaptedModel) -> int:
    """Parameters of the base model."""
    return sum(p.numel() for name, p in model.model.named_parameters() if "lora_" not in name)
