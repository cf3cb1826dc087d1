"""Small language models of any architecture, with random weights."""

from __future__ import annotations

import torch
from transformers import AutoModelForCausalLM, PretrainedConfig

from rllib_llm_comm.language.base_model import BaseModel, load_base_model, wrap_base_model


def base(config: PretrainedConfig, seed: int = 0) -> BaseModel:
    """A model of the config with the embedded model's tokenizer; every token matters."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.2)
    return wrap_base_model(config.model_type, model, load_base_model().tokenizer)
