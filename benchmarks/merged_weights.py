"""What half precision makes of an adapter that is added to the weights, and of one that stays beside them.

    python benchmarks/merged_weights.py --json docs/results/benchmarks/merged_weights.json

SmolLM2-135M's own weights in bfloat16; a LoRA adapter on all maps, trained for some steps of AdamW in float32 on the
textual kitchen's texts. Scores of candidates that it was not trained on, against those of the same weights computed in
float32. `reference` is the adapter beside the weights; how much of what the adapter does to scores is left is told
beside it. A CPU rounds as a GPU does, so no GPU is needed.
"""

from __future__ import annotations

import argparse
import copy
from dataclasses import replace

import torch
from gpu import SHAPES, TINY, Work, build

from harness import Row, main
from rllib_llm_comm.language.base_model import BaseModel, load_base_model, wrap_base_model
from rllib_llm_comm.language.scoring import score_candidates
from rllib_llm_comm.rl.multi_agent_ppo_learner import adamw
from rllib_llm_comm.verco.language_agent import LLMCommCore
from rllib_llm_comm.verco.settings import LanguageModelSettings

LEARNING_RATE = 3e-4
STEPS = (1, 10)


def cast(base: BaseModel, dtype: torch.dtype) -> BaseModel:
    """A copy of a model in another format."""
    return wrap_base_model(base.name, copy.deepcopy(base.model).to(dtype), base.tokenizer)


def train(work: Work, steps: int) -> None:
    """Steps of the action adapter towards each row's last allowed candidate."""
    optimizer = adamw([p for _, p in work.model.named_adapter_parameters("action")], LEARNING_RATE)
    wanted = work.mask.shape[1] - 1 - work.mask.flip(1).long().argmax(1)
    for _ in range(steps):
        optimizer.zero_grad()
        (
            -torch.distributions.Categorical(logits=work.core.logits(work.observations)).log_prob(wanted).mean()
        ).backward()
        optimizer.step()


@torch.no_grad()
def scores(work: Work, merged: bool = False, role: str | None = "action") -> torch.Tensor:
    """Scores of the allowed candidates, with the adapter in or beside the weights."""
    work.model.forget()
    if role is not None:
        work.model._llama_adapters[role]._merges = merged
    found = score_candidates(work.model, work.heads, work.tails, work.mask, role=role)
    return found[work.mask.bool()].double()


def measure(options: argparse.Namespace) -> list[Row]:
    """Two rows per number of steps."""
    tiny = replace(SHAPES[0], sizes=TINY)
    half = build("cpu", tiny) if options.smoke else load_base_model("smollm2", "bfloat16")
    bases = cast(half, torch.float32), half
    exact, rounded = (LLMCommCore(LanguageModelSettings(init_seed=0), base) for base in bases)
    for _, parameter in exact.lm.named_adapter_parameters():
        parameter.requires_grad_(True)
    rows = 4 if options.smoke else 8
    known, seen = Work.of_the_kitchen(exact, rows), Work.of_the_kitchen(exact, 2 * rows)
    texts = {name: array[rows:] for name, array in seen.observations.items()}
    true, own = (Work(core, seen.prompts[rows:], texts) for core in (exact, rounded))
    bare, apart = scores(true, role=None), float((scores(own, role=None) - scores(true, role=None)).abs().mean())
    found, done = [], 0
    for steps in STEPS:
        train(known, steps - done)
        done = steps
        mine, theirs = (dict(core.lm.named_adapter_parameters()) for core in (rounded, exact))
        with torch.no_grad():
            for name, parameter in theirs.items():
                mine[name].copy_(parameter)
        wanted = scores(true)
        effect = wanted - bare
        errors, kept = {}, {}
        for merged in (True, False):
            got = scores(own, merged)
            errors[merged] = float((got - wanted).abs().mean())
            moved = got - scores(own, role=None)
            kept[merged] = float((moved * effect).sum() / (effect * effect).sum())
        settings = {"steps": steps, "lr": LEARNING_RATE, "lora_r": 8, "rows": rows, "dtype": "bfloat16",
                    "effect of the adapter, mean": float(effect.abs().mean()), "error without an adapter": apart,
                    "reference": "adapter beside the weights"}  # fmt: skip
        after = "step" if steps == 1 else "steps"
        found.append(Row(f"merged_weights/error of scores after {steps} {after}", errors[True], errors[False], "nats",
                         None, settings, True))  # fmt: skip
        found.append(Row(f"merged_weights/share of the effect left after {steps} {after}", kept[True], kept[False],
                         "share", None, settings))  # fmt: skip
    return found


if __name__ == "__main__":
    main(__doc__.splitlines()[0], measure)
