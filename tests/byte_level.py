"""A small tokenizer of the byte-level kind, and a random LLaMA with it, as chat-tuned models have them."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from rllib_llm_comm.language.base_model import BaseModel, wrap_base_model

CHATML = (
    "{% if messages[0]['role'] != 'system' %}<|im_start|>system\nbe brief<|im_end|>\n{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
MERGES = [("Ġ", "t"), ("Ġt", "o"), ("t", "o"), ("to", "m"), ("a", "t"), ("Ġ", "w"), ("e", "e"), ("Ġto", "m")]


def byte_level_tokenizer(chat_template: str | None = CHATML) -> PreTrainedTokenizerFast:
    """Merges over blanks and letters; a turn ends with the token that also pads, as in SmolLM2."""
    letters = {byte: number for number, byte in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    vocabulary = {**letters, **{left + right: len(letters) + k for k, (left, right) in enumerate(MERGES)}}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=MERGES))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<|im_start|>", "<|im_end|>", "<|file_sep|>"])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<|im_end|>", pad_token="<|im_end|>", bos_token="<|im_start|>"
    )
    tokenizer.chat_template = chat_template
    return tokenizer


def tokenizer_alone() -> BaseModel:
    """A base without a model, for what only the tokenizer does."""
    tokenizer = byte_level_tokenizer()
    embedding = torch.nn.Embedding(len(tokenizer), 1)
    model = SimpleNamespace(get_input_embeddings=lambda: embedding)
    return BaseModel("byte-level", model, tokenizer, eos_id=tokenizer.eos_token_id)


def byte_level_model() -> BaseModel:
    """A random LLaMA of two layers behind the tokenizer."""
    tokenizer = byte_level_tokenizer()
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=512, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.normal_(std=0.25)
    return wrap_base_model("random byte-level", model, tokenizer)
