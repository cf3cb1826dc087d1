"""The policy with which labels are collected: the base model before any training (Verco Algorithm 1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from rllib_llm_comm.language.adapters import AdaptedModel
from rllib_llm_comm.language.base_model import BaseModel
from rllib_llm_comm.language.prompt_sets import DEFAULT, read_prompts
from rllib_llm_comm.language.prompts import Prompt, PromptTemplates
from rllib_llm_comm.language.scoring import score_texts


class InitialPolicy:
    """Samples actions by the base model's candidate scores, without messages.

    Scores of a text are computed once: the base model never changes.
    """

    def __init__(self, base: BaseModel, prompts: Mapping[str, str] | None = None, temperature: float = 1.0) -> None:
        """Keeps the model.

        Args:
            base: The model.
            prompts: Texts of its templates, as of `read_prompts`; `None` for the default ones.
            temperature: Scores are divided by it before the softmax.
        """
        self._model = AdaptedModel(base)
        self._templates = PromptTemplates(prompts or read_prompts(DEFAULT))
        self._temperature = temperature
        self._known: dict[tuple[Any, ...], np.ndarray] = {}

    def __call__(self, observations: Sequence[Mapping[str, Any]], rng: np.random.Generator) -> list[int]:
        """One action per observation.

        Args:
            observations: Each with `text`, `candidates` and `action_mask`.
            rng: Source of randomness.
        """
        keys = [(str(o["text"]), tuple(o["candidates"]), tuple(int(m) for m in o["action_mask"])) for o in observations]
        new = [key for key in dict.fromkeys(keys) if key not in self._known]
        if new:
            self._score(new)
        return [int(rng.choice(len(p), p=p)) for p in (self._known[key] for key in keys)]

    def _score(self, keys: Sequence[tuple[Any, ...]]) -> None:
        with torch.no_grad():
            rows = [(self._prompt(text, phrases, mask), phrases, mask) for text, phrases, mask in keys]
            scores = score_texts(self._model, rows, role=None)
        for key, row in zip(keys, (scores.double() / self._temperature).softmax(-1).cpu().numpy(), strict=True):
            chances = row[: len(key[1])]
            self._known[key] = chances / chances.sum()

    def _prompt(self, text: str, phrases: tuple[str, ...], mask: tuple[int, ...]) -> Prompt:
        allowed = [phrase for phrase, flag in zip(phrases, mask, strict=True) if flag]
        return self._templates.action(text, options=allowed)
