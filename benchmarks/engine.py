"""The engine for models of the LLaMA kind beside Hugging Face's model with one prompt per row, on a CPU.

    python benchmarks/engine.py --threads 2 --json docs/results/benchmarks/engine.json

Messages, scores, updates and supervised steps on the textual kitchen's own texts: the shape of SmolLM2-135M with random
weights, and the embedded model. Both sides have the same weights, and scores are compared before anything is timed.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable
from dataclasses import replace

import torch
from gpu import SHAPES, TINY, Work, build

from harness import Row, compare, main
from rllib_llm_comm.language import llama, scoring
from rllib_llm_comm.language.base_model import BaseModel, load_base_model, wrap_base_model
from rllib_llm_comm.language.packing import PAD, distinct_rows, rows_of_prompts
from rllib_llm_comm.language.scoring import score_candidates
from rllib_llm_comm.verco.language_network import LanguageNetwork
from rllib_llm_comm.verco.settings import ModuleSettings

GOALS = {"scores": 1.3, "update": 1.3}


def copied(base: BaseModel, name: str) -> BaseModel:
    """A model with the same weights, which Hugging Face's forward pass computes."""
    other = wrap_base_model(name, copy.deepcopy(base.model), base.tokenizer)
    llama.compute_by_hugging_face(other)
    return other


def of(base: BaseModel, rows: int) -> Work:
    """The steps of training with adapters that are not the identity."""
    network = LanguageNetwork(ModuleSettings(init_seed=0), base)
    generator = torch.Generator().manual_seed(0)
    for _, parameter in network.lm.named_adapter_parameters():
        parameter.data.add_(0.01 * torch.randn(parameter.shape, generator=generator))
        parameter.requires_grad_(True)
    return Work.of_the_kitchen(network, rows)


def apart(step: Callable[[], None]) -> Callable[[], None]:
    """A step in which no two prompts share a row."""

    def whole() -> None:
        shared, scoring._ROW_TOKENS = scoring._ROW_TOKENS, 0
        try:
            step()
        finally:
            scoring._ROW_TOKENS = shared

    return whole


def rows_of(name: str, base: BaseModel, rows: int, rounds: int, goals: dict[str, float]) -> list[Row]:
    """A row per step."""
    works = of(base, rows), of(copied(base, f"{name}, copied"), rows)
    with torch.no_grad():
        ours, theirs = (score_candidates(work.model, work.heads, work.tails, work.mask) for work in works)
    allowed = works[0].mask.bool()
    torch.testing.assert_close(ours[allowed], theirs[allowed], atol=1e-3, rtol=1e-4)
    settings = {"rows": rows, "texts": "textual kitchen", "dtype": "float32", "kept from before": "nothing",
                "reference": "one prompt per row, Hugging Face's forward pass with PEFT's layers"}  # fmt: skip
    found = []
    for label, step in (
        ("messages", "messages"),
        ("scores", "scores"),
        ("update", "ppo"),
        ("supervised", "supervised"),
    ):
        seconds, other = compare(getattr(works[0], step), apart(getattr(works[1], step)), rounds)
        rates = rows / seconds, rows / other
        found.append(Row(f"engine/{name}, {label}", *rates, "rows/s", goals.get(label), settings))
    return found


def in_parts(name: str, base: BaseModel, rows: int, rounds: int) -> Row:
    """An update in four parts whose gradients are added up, and one that computes each part again for its gradient."""
    work = of(base, rows)
    most = int((work.heads != PAD).sum() + (work.tails != PAD).sum()) // 4
    work.network.micro_batch_tokens = most

    def loss(part: torch.Tensor) -> torch.Tensor:
        observations = {name: column[part] for name, column in work.observations.items()}
        distribution = torch.distributions.Categorical(logits=work.network.logits(observations))
        chosen = torch.zeros(len(part), dtype=torch.long)
        return (-distribution.log_prob(chosen) - distribution.entropy()).sum() / rows

    def once() -> None:
        work.optimizers["action"].zero_grad()
        for part in work.network.micro_batches(work.observations):
            loss(part).backward()
        work.optimizers["action"].step()

    seconds, other = compare(once, work.ppo, rounds, time.process_time)
    settings = {"rows": rows, "micro_batch_tokens": most, "texts": "textual kitchen", "dtype": "float32",
                "reference": "each part once more in the backward pass", "clock": "CPU seconds"}  # fmt: skip
    return Row(f"engine/{name}, update in parts", rows / seconds, rows / other, "rows/s", None, settings)


def tokens(base: BaseModel, rows: int) -> Row:
    """Tokens that are computed for decisions, in shared rows and with one prompt per row."""
    work = Work.of_the_kitchen(LanguageNetwork(ModuleSettings(), base), rows)
    order = distinct_rows(work.heads)[0]
    lengths, behind = (order != PAD).sum(1), torch.zeros(len(order), dtype=torch.long)
    ours, apart_ = (rows_of_prompts(order, lengths, behind, most)[1].sum() for most in (scoring._ROW_TOKENS, 0))
    settings = {"rows": rows, "distinct": len(order), "reference": "one prompt per row"}
    return Row(f"engine/tokens of {rows} prompts", float(ours), float(apart_), "tokens", None, settings, True)


def measure(options: argparse.Namespace) -> list[Row]:
    """Rows of both models."""
    shape = replace(SHAPES[0], sizes=TINY) if options.smoke else SHAPES[0]
    big = build("cpu", shape)
    big.model.float()
    rows = rows_of("135M shape", big, 4 if options.smoke else 24, options.rounds, GOALS)
    rows += rows_of("embedded", load_base_model(), 4 if options.smoke else 256, options.rounds, {})
    rows.append(in_parts("135M shape", big, 8 if options.smoke else 24, options.rounds))
    rows.append(in_parts("embedded", load_base_model(), 8 if options.smoke else 256, options.rounds))
    return rows + [tokens(load_base_model(), count) for count in ((8,) if options.smoke else (24, 128, 512))]


if __name__ == "__main__":
    main(__doc__.splitlines()[0], measure)
