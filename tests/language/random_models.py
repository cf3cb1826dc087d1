"""Small language models of any architecture, with random weights."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PretrainedConfig

from rllib_llm_comm.language.adapters import AdaptedModel
from rllib_llm_comm.language.base_model import BaseModel, load_base_model, wrap_base_model
from rllib_llm_comm.language.packing import PAD
from rllib_llm_comm.language.scoring import encode_candidates


def base(config: PretrainedConfig, seed: int = 0) -> BaseModel:
    """A model of the config with the embedded model's tokenizer; every token matters."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.2)
    return wrap_base_model(config.model_type, model, load_base_model().tokenizer)


def randomised(model: AdaptedModel, std: float = 0.2) -> AdaptedModel:
    """The model, whose adapters get random weights that can be trained."""
    with torch.no_grad():
        for _, parameter in model.named_adapter_parameters():
            parameter.requires_grad_(True).normal_(std=std)
    return model


def arrays(base: BaseModel, cases: Iterable[tuple[str, list[str]]], left: bool = False) -> tuple[Tensor, Tensor]:
    """Padded ids of prompts and of the candidates of each, with room to spare at the right or left."""
    pairs = [encode_candidates(base, prompt, candidates) for prompt, candidates in cases]

    def padded(rows: list[list[int]], width: int) -> list[list[int]]:
        pads = [[PAD] * (width - len(row)) for row in rows]
        return [[*pad, *row] if left else [*row, *pad] for row, pad in zip(rows, pads, strict=True)]

    wide = max(len(head) for head, _ in pairs) + 2
    long = max(len(tail) for _, tails in pairs for tail in tails) + 1
    heads = padded([head for head, _ in pairs], wide)
    return torch.tensor(heads), torch.tensor([padded(tails, long) for _, tails in pairs])
