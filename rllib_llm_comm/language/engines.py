"""Two ways to compute the same: the quick one, and the plain one that it is measured and tested against."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.language.adapters import AdaptedModel
from rllib_llm_comm.language.base_model import BaseModel
from rllib_llm_comm.language.features import prompt_features
from rllib_llm_comm.language.generation import Written, draw_messages
from rllib_llm_comm.language.plain_scoring import plain_features, plain_messages, plain_scores
from rllib_llm_comm.language.scoring import score_candidates


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
        model: The adapted model.
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
    if model.config.layers in tried:
        return
    # GPT-Neo's own windows count places in a row, where candidates stand side by side.
    windows = "local" in getattr(base.config, "attention_layers", ())
    reason = "its layers have windows of their own" if windows else _difference(model)
    if reason:
        raise UserError(
            f"`base_model` {base.name!r} ({type(base.model).__name__}) cannot be computed by `engine` 'fast' "
            f"({reason}); set `engine` to 'plain', or take a model of the LLaMA kind."
        )
    tried.add(model.config.layers)


def _window(config: Any) -> int | None:
    """Tokens over which a model looks back, where it does not see all."""
    kinds = getattr(config, "layer_types", None)
    if getattr(config, "use_sliding_window", True) is False or (kinds and set(kinds) == {"full_attention"}):
        return None
    windows = [getattr(config, name, None) for name in ("sliding_window", "attention_chunk_size")]
    return min((int(window) for window in windows if window is not None), default=None)


@torch.no_grad()
def _difference(model: AdaptedModel) -> str:
    """The way in which the fast engine differs on a few tokens; empty if it does not."""
    base = model.base
    ids = torch.arange(_LONG + _CANDIDATES + 2) % base.vocab_size
    # Side by side the last ones stand far from the prompt; some models weigh by that, and not by positions.
    candidates = ids[_LONG:].unfold(0, 3, 1)[None]
    known = torch.ones(1, _CANDIDATES, dtype=torch.bool)
    allowed = _TOLERANCE if base.model.dtype == torch.float32 else _TOLERANCE_OF_HALF
    allowed = _TOLERANCE_OF_QUANTIZED if base.is_quantized else allowed
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
