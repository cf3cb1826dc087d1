"""The plain version of scoring, features and messages: slow, short, and what the quick versions are tested against.

Every candidate is written behind its own copy of the prompt, adapters run as PEFT runs them, the vocabulary is
normalised everywhere, messages are written row by row without a cache. Nothing is shared, packed, folded or remembered.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from rllib_llm_comm.language.adapters import ACTION, MESSAGE, AdaptedModel
from rllib_llm_comm.language.generation import Written, as_written, choose_token, is_open, row_generator
from rllib_llm_comm.language.message_words import TOKENS_PER_WORD
from rllib_llm_comm.language.packing import compact
from rllib_llm_comm.language.scoring import MASKED


def plain_scores(
    model: AdaptedModel,
    prompt_ids: torch.Tensor,
    candidate_ids: torch.Tensor,
    candidate_mask: torch.Tensor,
    *,
    normalization: str = "sum",
    candidate_words: torch.Tensor | None = None,
    role: str | None = ACTION,
) -> torch.Tensor:
    """Scores of candidates; arguments and result as of `score_candidates`."""
    model.base.require_positions(prompt_ids.shape[1] + candidate_ids.shape[2])
    mask = candidate_mask.bool().cpu()
    places = mask.nonzero().tolist()
    heads = [_tokens(model, prompt_ids[b]) for b, _ in places]
    tails = [_tokens(model, candidate_ids[b, k]) for b, k in places]
    ids, _ = _padded(model, [[*head, *tail] for head, tail in zip(heads, tails, strict=True)])
    log_probs = model.logits(_hidden(model, ids, role)).log_softmax(-1)
    scores = torch.full(mask.shape, MASKED, device=model.device)
    for row, ((b, k), head, tail) in enumerate(zip(places, heads, tails, strict=True)):
        before = torch.arange(len(head) - 1, len(head) + len(tail) - 1)
        total = log_probs[row, before, ids[row, before + 1]].sum()
        divisor = {"sum": 1, "token": len(tail)}.get(normalization)
        if divisor is None:
            assert candidate_words is not None
            divisor = int(candidate_words[b, k])
        scores[b, k] = total / divisor
    return scores


@torch.no_grad()
def plain_features(model: AdaptedModel, prompt_ids: torch.Tensor) -> torch.Tensor:
    """The critic's features; arguments and result as of `prompt_features`."""
    rows = [_tokens(model, row) for row in prompt_ids]
    ids, lengths = _padded(model, rows)
    hidden = _hidden(model, ids, None).float()
    return torch.stack(
        [torch.cat([row[length - 1], row[:length].mean(0)]) for row, length in zip(hidden, lengths, strict=True)]
    )


@torch.no_grad()
def plain_messages(
    model: AdaptedModel,
    prompts: Sequence[str],
    *,
    max_words: int = 10,
    temperature: float = 0.0,
    seed: int | None = None,
    role: str | None = MESSAGE,
) -> list[Written]:
    """Messages; arguments and result as of `draw_messages`."""
    seen: dict[str, int] = {}
    messages = []
    for prompt in prompts:
        draws: list[np.random.Generator] | None = None
        if temperature > 0:
            draws = [row_generator(seed, (prompt, seen.get(prompt, 0)))]
            seen[prompt] = seen.get(prompt, 0) + 1
        ids, written = model.base.encode(prompt), []  # type: tuple[list[int], list[int]]
        model.base.require_positions(len(ids) + max_words * TOKENS_PER_WORD)
        while len(written) < max_words * TOKENS_PER_WORD:
            row = torch.tensor([[*ids, *written]], device=model.device)
            token = int(choose_token(model.logits(_hidden(model, row, role)[:, -1]), temperature, draws))
            written.append(token)
            if token == model.base.eos_id or not is_open(model.base.decode(written), max_words):
                break
        messages.append(as_written(model.base, written, max_words))
    return messages


def _tokens(model: AdaptedModel, row: torch.Tensor) -> list[int]:
    ids, count = compact(row.long().cpu())
    return [int(token) for token in ids[: int(count)]]


def _padded(model: AdaptedModel, rows: Sequence[list[int]]) -> tuple[torch.Tensor, list[int]]:
    lengths = [len(row) for row in rows]
    width = max(lengths)
    # Padding stands behind the text, where causal attention does not look.
    ids = [row + [0] * (width - len(row)) for row in rows]
    return torch.tensor(ids, device=model.device), lengths


def _hidden(model: AdaptedModel, ids: torch.Tensor, role: str | None) -> torch.Tensor:
    with model.use(role):
        hidden: torch.Tensor = model.model.get_decoder()(input_ids=ids, use_cache=False).last_hidden_state
    return hidden
