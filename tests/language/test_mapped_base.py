"""Weights whose file has the asked dtype stay mapped pages of the file, which processes of a node share."""

from __future__ import annotations

import sys

import pytest
import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from rllib_llm_comm.language.adapters import AdaptedModel
from rllib_llm_comm.language.base_model import embedded_model_path, load_base_model


def lies_in(address):
    """Path of the file of which an address is a mapped page; empty for the process' own memory."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        for line in maps:
            first, last = (int(end, 16) for end in line.split()[0].split("-"))
            if first <= address < last:
                return line.split(maxsplit=5)[5].strip() if len(line.split()) > 5 else ""
    raise AssertionError("no such address")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(("stored", "mapped"), [(torch.bfloat16, True), (torch.float32, False)])
def test_pages_of_the_file_are_the_weights(stored, mapped, tmp_path):
    shape = LlamaConfig(
        vocab_size=768, hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4
    )
    LlamaForCausalLM(shape).to(stored).save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(embedded_model_path()).save_pretrained(tmp_path)
    base = AdaptedModel(load_base_model(str(tmp_path), dtype="bfloat16")).base
    places = {lies_in(part.data_ptr()) for name, part in base.model.named_parameters() if "lora" not in name}
    assert all(place.endswith(".safetensors") == mapped for place in places), places
