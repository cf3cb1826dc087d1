"""Decisions per second: candidate scores and values, ours against the plain reference.

    python benchmarks/scoring.py --json docs/results/benchmarks/scoring.json

Three questions: how many times the reference's rate at three model sizes; how near the plain forward pass over the
fewest tokens; and how many times the reference's rate on the prompts of a real roll-out, where many come back.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial

import torch
from torch import nn

from harness import Row, compare, main
from models import SIZES, parameter_count, random_model
from rllib_llm_comm.language.adapters import AdaptedModel
from rllib_llm_comm.language.packing import PAD, pack_candidates
from rllib_llm_comm.language.prompts import action_prompt, critic_prompt
from rllib_llm_comm.language.scoring import encode_candidates, feature_size, prompt_features, score_candidates
from rllib_llm_comm.verco.encoding import ObservationEncoder
from stream import Ask, new_network, record_stream, to_batch
from twosome_reference import TwosomeReference

PROMPT_TOKENS, HEAD_TOKENS, CANDIDATES, ROWS = 90, 30, 8, 64


def questions(model: AdaptedModel, rows: int, head_tokens: int) -> tuple[list[str], list[list[str]]]:
    """Different prompts of 90 tokens made of the game's sentences, eight of its phrases behind each.

    Args:
        model: Gives the tokenizer.
        rows: Number of rows, >= 1.
        head_tokens: Number of tokens at their beginning that are the same, as a manual and a task would be.
    """
    asks = [ask for step in record_stream(rows * 6) for ask in step if len(ask.seen.candidates) >= CANDIDATES]
    phrases = list(dict.fromkeys(phrase for ask in asks for phrase in ask.seen.candidates))
    words = " ".join(dict.fromkeys(ask.seen.text for ask in asks)).split()
    head = _cut(model, "", words, head_tokens) if head_tokens else ""
    prompts, begin = [], 0
    while len(prompts) < rows:
        prompts.append(_cut(model, head, words[begin:], PROMPT_TOKENS))
        begin = (begin + 7) % (len(words) - PROMPT_TOKENS)
    return prompts, [[phrases[(row + k) % len(phrases)] for k in range(CANDIDATES)] for row in range(rows)]


def _cut(model: AdaptedModel, head: str, words: Sequence[str], tokens: int) -> str:
    """A head and so many words behind it that they have at least so many tokens."""
    text = head
    for word in words:
        if len(model.base.encode(text)) >= tokens:
            break
        text = f"{text} {word}".strip()
    return text


def padded(model: AdaptedModel, prompts: Sequence[str], candidates: Sequence[Sequence[str]]) -> list[torch.Tensor]:
    """Token ids of prompts (B, P) and candidates (B, K, C), and the mask (B, K)."""
    pairs = [encode_candidates(model.base, p, c) for p, c in zip(prompts, candidates, strict=True)]
    wide = max(len(head) for head, _ in pairs)
    long = max(len(tail) for _, tails in pairs for tail in tails)
    heads = torch.tensor([head + [PAD] * (wide - len(head)) for head, _ in pairs])
    tails = torch.tensor([[tail + [PAD] * (long - len(tail)) for tail in tails] for _, tails in pairs])
    return [heads, tails, torch.ones(tails.shape[:2], dtype=torch.bool)]


def against_reference(size: str, rows: int, head_tokens: int, rounds: int) -> Row:
    """Decisions per second, text to scores and values."""
    model = random_model(size)
    reference = TwosomeReference(model, nn.Linear(feature_size(model.base), 1))
    prompts, candidates = questions(model, rows, head_tokens)
    heads = padded(model, prompts, candidates)[0]

    @torch.no_grad()
    def ours() -> torch.Tensor:
        """Scores and values by the package."""
        model.forget()  # what a round has read is new to the next one
        prompt_features(model, heads)
        return score_candidates(model, *padded(model, prompts, candidates))

    @torch.no_grad()
    def theirs() -> torch.Tensor:
        """Scores and values by the reference."""
        reference.values(prompts)
        return reference.scores(prompts, candidates)

    difference = float((ours() - theirs()).abs().max())
    assert difference < 1e-3, f"scores differ by {difference}"
    seconds, other = compare(ours, theirs, rounds)
    settings = {"parameters": parameter_count(model), "prompts": rows, "candidates": CANDIDATES,
                "prompt_tokens": int((heads != PAD).sum(1).float().mean()),
                "common_head_tokens": head_tokens, "largest_difference": difference}  # fmt: skip
    name = f"scoring/decisions {size}" + ("" if head_tokens else ", prompts with nothing in common")
    return Row(name, rows / seconds, rows / other, "decisions/s", 10.0 if head_tokens else None, settings)


def of_plain_forward(size: str, rows: int, rounds: int) -> Row:
    """Rows per second against the bare model on as many tokens, without a mask and without a language-model head."""
    model = random_model(size)
    heads, tails, mask = padded(model, *questions(model, rows, 0))
    tokens = pack_candidates(heads, tails, mask).input_ids.shape[1]
    ids = torch.randint(5, 300, (rows, tokens))

    @torch.no_grad()
    def plain() -> None:
        """The bare model's pass."""
        model.model.base_model(input_ids=ids, use_cache=False)

    @torch.no_grad()
    def scores() -> None:
        """Scores of the candidates."""
        model.forget()
        score_candidates(model, heads, tails, mask)

    seconds, least = compare(scores, plain, rounds)
    settings = {"parameters": parameter_count(model), "rows": rows, "row_tokens": tokens}
    return Row(f"scoring/of plain forward {size}", rows / seconds, rows / least, "rows/s", 0.9, settings)


def on_stream(num_envs: int, decisions: int, rounds: int) -> Row:
    """Rate over a recorded roll-out with the embedded model."""
    steps = record_stream(decisions, num_envs)
    network, fresh = new_network(), new_network()
    reference = TwosomeReference(network.lm, network.critic)

    @torch.no_grad()
    def ours() -> None:
        """Scores and values of the whole roll-out."""
        # Nothing is known at the start but single sentences' tokens, as on the other side.
        fresh.forget()
        encoder = ObservationEncoder(network.lm.base, network.settings)
        critic_ids = []
        for asks in steps:
            batch = to_batch(encoder, asks)
            fresh.remembered_logits(batch)
            critic_ids.append(batch["critic_ids"])
        # As in training: values are asked for when the roll-out is complete; the reference needs them at once.
        fresh.values_of(fresh.features(torch.cat(critic_ids)))

    seconds, other = compare(ours, partial(_stream_by_reference, reference, steps), rounds)
    count = sum(map(len, steps))
    distinct = len({(ask.seen, tuple(ask.heard.items())) for asks in steps for ask in asks})
    settings = {"decisions": count, "distinct": distinct, "steps": len(steps), "num_envs": num_envs,
                "base_model": "embedded"}  # fmt: skip
    return Row(
        f"scoring/recorded roll-out of {num_envs} kitchens",
        count / seconds,
        count / other,
        "decisions/s",
        20.0,
        settings,
    )


@torch.no_grad()
def _stream_by_reference(reference: TwosomeReference, steps: list[list[Ask]]) -> None:
    for asks in steps:
        prompts = [action_prompt(ask.seen.text, ask.heard) for ask in asks]
        # As TWOSOME does: every candidate is scored, the mask comes afterwards.
        reference.scores(prompts, [ask.seen.candidates for ask in asks])
        reference.values([critic_prompt(ask.seen.text) for ask in asks])


def measure(options: argparse.Namespace) -> list[Row]:
    """All rows."""
    rows, decisions = (8, 32) if options.smoke else (ROWS, 1024)
    sizes = list(SIZES)[:1] if options.smoke else list(SIZES)
    found = [against_reference(size, rows, head, options.rounds) for size in sizes for head in (HEAD_TOKENS, 0)]
    found += [of_plain_forward(size, rows, options.rounds) for size in sizes]
    return [*found, on_stream(16, decisions, min(options.rounds, 3))]


if __name__ == "__main__":
    main(__doc__.splitlines()[0], measure)
