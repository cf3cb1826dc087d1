"""LLaMA-7B on one GPU: peak memory and rate of roll-out, supervised step and PPO step, with random weights.

    python benchmarks/gpu.py --json docs/results/benchmarks/gpu.json

Speed and memory do not ask what the weights know, so nothing is downloaded: the architecture is built on the GPU in
bfloat16. Without a GPU there is nothing to measure, and the script says so. `--smoke` runs every step with a model of
two small layers wherever it is.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch
from scoring import padded, questions

from harness import Row, main
from rllib_llm_comm.agents.encoding import CANDIDATE_IDS, CANDIDATE_WORDS, PROMPT_IDS
from rllib_llm_comm.agents.label_loss import MESSAGE_IDS, MESSAGE_LABELS, encode_examples, message_log_probs
from rllib_llm_comm.agents.language_agent import LLMCommCore
from rllib_llm_comm.agents.settings import LanguageModelSettings
from rllib_llm_comm.envs.interface import ACTION_MASK
from rllib_llm_comm.language.base_model import load_base_model, wrap_base_model
from rllib_llm_comm.language.features import prompt_features
from rllib_llm_comm.language.generation import generate_messages
from rllib_llm_comm.language.scoring import score_candidates
from rllib_llm_comm.learners.optimizers import adamw

GOAL_GB = 24.0
ROWS = 32
MICRO_BATCH_TOKENS = 2048
LLAMA_7B = {"hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32,
            "vocab_size": 32000}  # fmt: skip
TINY = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
        "vocab_size": 4096}  # fmt: skip


def build(device: str, sizes: dict[str, int]) -> LLMCommCore:
    """Model, adapters and critic with random weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = load_base_model().tokenizer
    config = LlamaConfig(**sizes, max_position_embeddings=2048, eos_token_id=tokenizer.eos_token_id)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device(device):
            model = LlamaForCausalLM(config)
    finally:
        torch.set_default_dtype(before)
    settings = LanguageModelSettings(
        dtype="bfloat16", device=device, micro_batch_tokens=MICRO_BATCH_TOKENS, gradient_checkpointing=True
    )
    core = LLMCommCore(settings, wrap_base_model("random LLaMA", model, tokenizer))
    for _, parameter in core.lm.named_adapter_parameters():
        parameter.data = parameter.data.to(device)
        parameter.requires_grad_(True)
    return core


def timed(device: str, work: Callable[[], Any]) -> tuple[float, float]:
    """Seconds and peak GB of the second run of some work."""
    work()
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    work()
    if device == "cuda":
        torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    return seconds, torch.cuda.max_memory_allocated() / 1e9 if device == "cuda" else 0.0


def matmul_rate(device: str, size: int) -> float:
    """Multiplications and additions per second of a large product in bfloat16: the roof."""
    left, right = (torch.randn(size, size, dtype=torch.bfloat16, device=device) for _ in range(2))
    seconds, _ = timed(device, lambda: [left @ right for _ in range(8)])
    return 8 * 2 * size**3 / seconds


def steps(core: LLMCommCore, rows: int) -> dict[str, Callable[[], Any]]:
    """Roll-out, supervised step and PPO step as functions."""
    model = core.lm
    prompts, candidates = questions(model, rows, 30)
    heads, tails, mask = padded(model, prompts, candidates)
    observations = {
        PROMPT_IDS: heads, CANDIDATE_IDS: tails, ACTION_MASK: mask, CANDIDATE_WORDS: torch.ones(tails.shape[:2])
    }  # fmt: skip
    words = encode_examples(model.base, prompts, ["please bring the tomato"] * rows, 512)
    messages = {name: torch.from_numpy(array).long() for name, array in words.items()}
    optimizers = {role: adamw([p for _, p in model.named_adapter_parameters(role)], 1e-6) for role in model.roles}

    @torch.no_grad()
    def rollout() -> None:
        """Messages, scores and features."""
        generate_messages(model, prompts)
        score_candidates(model, heads, tails, mask)
        prompt_features(model, heads)

    def supervised() -> None:
        """A step on labels."""
        optimizers["message"].zero_grad()
        log_probs, _ = message_log_probs(model, messages[MESSAGE_IDS], messages[MESSAGE_LABELS])
        (-log_probs.sum() / rows).backward()
        optimizers["message"].step()

    def ppo() -> None:
        """A step of PPO."""
        optimizers["action"].zero_grad()
        distribution = torch.distributions.Categorical(logits=core.logits(observations))
        (-distribution.log_prob(torch.zeros(rows, dtype=torch.long)).mean() - distribution.entropy().mean()).backward()
        optimizers["action"].step()

    return {"roll-out": rollout, "supervised step": supervised, "PPO step": ppo}


def measure(options: argparse.Namespace) -> list[Row]:
    """All rows; none without a GPU."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu" and not options.smoke:
        print("This machine shows no GPU to torch, so LLaMA-7B is not measured here.")
        return []
    rows = 4 if options.smoke else ROWS
    core = build(device, TINY if options.smoke else LLAMA_7B)
    work = steps(core, rows)
    settings = {"rows": rows, "prompt_tokens": 90, "candidates": 8, "dtype": "bfloat16", "lora_r": 8,
                "micro_batch_tokens": MICRO_BATCH_TOKENS, "gradient_checkpointing": True,
                "device": torch.cuda.get_device_name() if device == "cuda" else "cpu"}  # fmt: skip
    found: list[Row] = []
    for name, step in work.items():
        seconds, peak = timed(device, step)
        found.append(Row(f"gpu/{name}", rows / seconds, None, "decisions/s", None, settings))
        if device == "cuda":
            found.append(Row(f"gpu/peak memory, {name}", peak, GOAL_GB, "GB", 1.0, settings, lower_is_better=True))
    found.append(_roofline(core, device, rows, settings, 512 if options.smoke else 8192))
    return found


def _roofline(core: LLMCommCore, device: str, rows: int, settings: dict[str, Any], size: int) -> Row:
    heads, tails, mask = padded(core.lm, *questions(core.lm, rows, 0))
    with torch.no_grad():
        seconds, _ = timed(device, lambda: score_candidates(core.lm, heads, tails, mask))
    # What the bare linear maps need for prompts and inner candidate tokens, which is what has to be computed.
    tokens = int((heads != core.lm.base.pad_id).sum() + ((tails != core.lm.base.pad_id).sum(2) - 1).clamp(min=0).sum())
    weights = sum(p.numel() for name, p in core.lm.model.named_parameters() if "lora_" not in name and p.dim() == 2)
    weights -= core.lm.base.model.get_input_embeddings().weight.numel()
    needed = 2.0 * weights * tokens
    return Row("gpu/scoring, share of the roofline", needed / seconds / 1e12, matmul_rate(device, size) / 1e12,
               "TFLOP/s", None, settings)  # fmt: skip


if __name__ == "__main__":
    main(__doc__.splitlines()[0], measure)
