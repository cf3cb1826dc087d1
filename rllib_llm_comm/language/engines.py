"""Two ways to compute the same: the quick one, and the plain one that it is measured and tested against.

In the plain one every candidate is written behind its own copy of the prompt, adapters run as PEFT runs them, the
vocabulary is normalised everywhere, messages are written row by row without a cache. Nothing is shared, packed, folded
or remembered.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.language.adapters import ACTION, MESSAGE, AdaptedModel
from rllib_llm_comm.language.base_model import BaseModel
from rllib_llm_comm.language.generation import Written, as_written, choose_token, draw_messages, is_open, row_generator
from rllib_llm_comm.language.packing import compact
from rllib_llm_comm.language.prompts import most_tokens
from rllib_llm_comm.language.scoring import MASKED, prompt_features, score_candidates

# ---- the plain way ----------------------------------------------------------------------------------------------


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
    log_probs = model.token_logits(_hidden(model, ids, role)).log_softmax(-1)
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
    seed: int | Sequence[int] | None = None,
    role: str | None = MESSAGE,
) -> list[Written]:
    """Messages; arguments and result as of `draw_messages`."""
    seen: Counter[tuple[str, int | None]] = Counter()
    seeds = [seed] * len(prompts) if seed is None or isinstance(seed, int) else seed
    messages = []
    for prompt, own in zip(prompts, seeds, strict=True):
        draws: list[np.random.Generator] | None = None
        if temperature > 0:
            draws = [row_generator(own, (prompt, seen[prompt, own]))]
            seen[prompt, own] += 1
        ids, written = model.base.encode(prompt), []  # type: tuple[list[int], list[int]]
        model.base.require_positions(len(ids) + most_tokens(max_words))
        while len(written) < most_tokens(max_words):
            row = torch.tensor([[*ids, *written]], device=model.device)
            token = int(choose_token(model.token_logits(_hidden(model, row, role)[:, -1]), temperature, draws))
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


# ---- both -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Engine:
    """Interface of the engines that run a language model.

    Attributes:
        scores: As `score_candidates`.
        features: As `prompt_features`.
        messages: As `draw_messages`.
        remembers: Whether results are kept while the weights that they depend on stand still.
    """

    scores: Callable[..., torch.Tensor]
    features: Callable[..., torch.Tensor]
    messages: Callable[..., list[Written]]
    remembers: bool


ENGINES = {
    "fast": Engine(score_candidates, prompt_features, draw_messages, remembers=True),
    "plain": Engine(plain_scores, plain_features, plain_messages, remembers=False),
}

_SHORT, _LONG, _CANDIDATES = 8, 12, 32
_TOLERANCE, _TOLERANCE_OF_HALF, _TOLERANCE_OF_QUANTIZED = 1e-3, 0.05, 0.2  # shares of the largest number
_TRIED: weakref.WeakKeyDictionary[BaseModel, set[Any]] = weakref.WeakKeyDictionary()


def require_fast(model: AdaptedModel, longest: int) -> None:
    """Refuses a base model with which the fast engine does not compute what the plain one does.

    A few tokens are read both ways, then a few more behind the keys and values that are kept of them. A base is tried
    once per process.

    Args:
        longest: Most tokens of a prompt with a candidate.

    Raises:
        UserError: If the two differ, the fast one fails, or the model looks back over fewer tokens.
    """
    base = model.base
    window = _window(base.config)
    if window is not None and window < longest:
        raise UserError(
            f"`base_model` {base.name!r} looks back over {window} tokens (`sliding_window`), but a prompt with a "
            f"candidate may have {longest} (`max_prompt_tokens` and `max_candidate_tokens`); lower them, set `engine` "
            "to 'plain', or take another model."
        )
    tried = _TRIED.setdefault(base, set())
    kind = (model.config.layers, model.autocast, _kept(model))
    if kind in tried:
        return
    # GPT-Neo's own windows count places in a row, where candidates stand side by side.
    windows = "local" in getattr(base.config, "attention_layers", ())
    reason = "its layers have windows of their own" if windows else _difference(model)
    if reason:
        raise UserError(
            f"`base_model` {base.name!r} ({type(base.model).__name__}) cannot be computed by `engine` 'fast' "
            f"({reason}); set `engine` to 'plain', or take a model of the LLaMA kind."
        )
    tried.add(kind)


def _window(config: Any) -> int | None:
    """Tokens over which a model looks back, where it does not see all."""
    kinds = getattr(config, "layer_types", None)
    if getattr(config, "use_sliding_window", True) is False or (kinds and set(kinds) == {"full_attention"}):
        return None
    windows = [getattr(config, name, None) for name in ("sliding_window", "attention_chunk_size")]
    return min((int(window) for window in windows if window is not None), default=None)


def _kept(model: AdaptedModel) -> str:
    """Format in which the model's trunk is kept, a name of `KEPT_DTYPES`."""
    return "same" if model.trunk is None else model.trunk.kept


@torch.no_grad()
def _difference(model: AdaptedModel) -> str:
    """The way in which the fast engine differs on a few tokens; empty if it does not."""
    base = model.base
    # Not the first tokens, many of which are marks that no text has: SmolLM2 reads them with numbers so large that half
    # precision leaves nothing of the others.
    ids = (torch.arange(_LONG + _CANDIDATES + 2) + base.vocab_size // 2) % base.vocab_size
    # Side by side the last ones stand far from the prompt; some models weigh by that, and not by positions.
    candidates = ids[_LONG:].unfold(0, 3, 1)[None]
    known = torch.ones(1, _CANDIDATES, dtype=torch.bool)
    exact = base.model.dtype == torch.float32 and model.autocast == "none" and _kept(model) == "same"
    allowed = _TOLERANCE if exact else _TOLERANCE_OF_HALF
    allowed = _TOLERANCE_OF_QUANTIZED if base.is_quantized or _kept(model) == "int8" else allowed
    fast, plain = ENGINES["fast"], ENGINES["plain"]
    try:
        for length in (_SHORT, _LONG):
            prompt = ids[None, :length]
            pairs = [
                (fast.scores(model, prompt, candidates, known, role=None),
                 plain.scores(model, prompt, candidates, known, role=None)),
                (fast.features(model, prompt), plain.features(model, prompt)),
            ]  # fmt: skip
            for own, other in pairs:
                apart = float((own.float() - other.float().to(own.device)).abs().max())
                if not apart <= allowed * max(1.0, float(other.abs().max())):
                    return f"it differs from 'plain' by {apart:.2g}"
    except (RuntimeError, ValueError, TypeError, LookupError, AttributeError, AssertionError) as error:
        return f"{type(error).__name__}: {(str(error) or '?').splitlines()[0]}"
    finally:
        model.forget()
    return ""
