"""Two ways to compute the same: the quick one, and the plain one that it is measured and tested against."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

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
