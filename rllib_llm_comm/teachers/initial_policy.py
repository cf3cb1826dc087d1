"""The policy with which labels are collected: the base model before any training (Verco Algorithm 1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from rllib_llm_comm.language.adapters import AdaptedModel
from rllib_llm_comm.language.base_model import load_base_model, resolve_device
from rllib_llm_comm.language.prompts import action_prompt
from rllib_llm_comm.language.scoring import score_texts


class InitialPolicy:
    """Samples actions by the base model's candidate scores, without messages.

    Scores of a text are computed once: the base model never changes.
    """

    def __init__(
        self, base_model: str = "embedded", temperature: float = 1.0, dtype: str = "float32", device: str = "cpu"
    ) -> None:
        """Loads the base model.

        Args:
            base_model: `"embedded"`, a path or a hub id.
            temperature: Scores are divided by it before the softmax.
            dtype: As of `LanguageModelSettings`, like the next one.
            device: A torch device, or `"auto"`.
        """
        self._model = AdaptedModel(load_base_model(base_model, dtype, resolve_device(device)))
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
            scores = score_texts(self._model, [(action_prompt(t), c, m) for t, c, m in keys], role=None)
        for key, row in zip(keys, (scores.double() / self._temperature).softmax(-1).cpu().numpy(), strict=True):
            chances = row[: len(key[1])]
            self._known[key] = chances / chances.sum()
