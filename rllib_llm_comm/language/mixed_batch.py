"""One batch whose rows belong to the adapters of several models on one base."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.language.adapters import ACTION, MESSAGE, AdaptedModel
from rllib_llm_comm.language.generation import Written, draw_messages
from rllib_llm_comm.language.multi_lora import AdapterPool, Rows
from rllib_llm_comm.language.prefix_cache import PrefixCache
from rllib_llm_comm.language.scoring import prompt_features, score_candidates

RowRoles = str | Sequence[str | None] | None
"""The role of all rows, or of each; `None` is the bare base."""


class MixedBatch:
    """Models on one base, asked together: rows of a batch are read by adapters of different models and roles.

    The base's products are computed once for all rows, those of the adapters for the rows of each; gradients flow to
    every adapter's own parameters. Rows of one adapter share what they have in common at their beginning, as elsewhere.
    Where Hugging Face's model computes the base, each adapter has a pass of its own, and so it has on a GPU for
    messages, whose CUDA graphs have one adapter each.

    Args:
        models: At least one; owners of rows are numbers in this sequence.

    Raises:
        UserError: If they have different bases, tokenizers, formats of prompts, or shapes of adapters.
    """

    def __init__(self, models: Sequence[AdaptedModel]) -> None:
        for number, model in enumerate(models):
            if difference := _difference(models[0], model):
                raise UserError(
                    f"member {number} has {difference} than member 0, so that their rows cannot share a batch; give "
                    "members with adapters of one shape on one base model, or ask them one by one."
                )
        self.models = tuple(models)
        self._pools: dict[Any, AdapterPool | None] = {}

    def scores(
        self,
        owners: Sequence[int],
        prompt_ids: torch.Tensor,
        candidate_ids: torch.Tensor,
        candidate_mask: torch.Tensor,
        *,
        normalization: str = "sum",
        candidate_words: torch.Tensor | None = None,
        role: RowRoles = ACTION,
    ) -> torch.Tensor:
        """Scores of candidates, as of `score_candidates`; differentiable with respect to every adapter.

        Args:
            owners: (B,) number of each row's model.
            prompt_ids: As of `score_candidates`, and so are the others.
            candidate_ids: (B, K, C).
            candidate_mask: (B, K).
            normalization: `"sum"`, `"token"` or `"word"`.
            candidate_words: (B, K).
            role: The adapter of all rows, or of each.
        """

        def ask(model: AdaptedModel, who: Any, rows: torch.Tensor) -> torch.Tensor:
            words = None if candidate_words is None else candidate_words[rows]
            return score_candidates(
                model, prompt_ids[rows], candidate_ids[rows], candidate_mask[rows],
                normalization=normalization, candidate_words=words, role=who,
            )  # fmt: skip

        order, parts = self._asked(owners, role, ask)
        return torch.cat(parts)[torch.argsort(order).to(parts[0].device)]

    def messages(
        self,
        owners: Sequence[int],
        prompts: Sequence[str],
        *,
        max_words: int = 10,
        temperature: float = 0.0,
        seed: int | Sequence[int] | None = None,
        role: RowRoles = MESSAGE,
    ) -> list[Written]:
        """Messages behind prompts, as of `draw_messages`.

        Args:
            owners: (B,) number of each row's model.
            prompts: Texts.
            max_words: Upper bound on a message's words.
            temperature: 0 for greedy decoding.
            seed: Fixes sampled words; of all rows, or of each.
            role: The adapter of all rows, or of each.
        """

        def ask(model: AdaptedModel, who: Any, rows: torch.Tensor) -> list[Written]:
            own = seed if seed is None or isinstance(seed, int) else [seed[row] for row in rows]
            texts = [prompts[row] for row in rows]
            return draw_messages(model, texts, max_words=max_words, temperature=temperature, seed=own, role=who)

        order, parts = self._asked(owners, role, ask, apart=self.models[0].static_writers is not None)
        written = dict(zip(order.tolist(), [message for part in parts for message in part], strict=True))
        return [written[row] for row in range(len(prompts))]

    def features(self, prompt_ids: torch.Tensor) -> torch.Tensor:
        """Features of the bare base, as of `prompt_features`: the same for all members."""
        return prompt_features(self.models[0], prompt_ids)

    def rows(self, owners: Sequence[int], role: RowRoles) -> Rows | None:
        """The adapter of each row, to stand where the first model's role does.

        Args:
            owners: (B,) number of each row's model.
            role: The adapter of all rows, or of each.

        Returns:
            `None` where Hugging Face's model computes the base, or rows are all of one adapter.
        """
        numbers, readers = self._numbered(owners, role)
        pool = self._pool(tuple(readers))
        return None if pool is None or len(np.unique(numbers)) == 1 else pool.rows(numbers)

    def _numbered(self, owners: Sequence[int], role: RowRoles) -> tuple[np.ndarray, list[tuple[int, str | None]]]:
        """Number of each row's reader, and the readers: models with a role."""
        if role is None or isinstance(role, str):
            return np.asarray(owners, np.int64), [(number, role) for number in range(len(self.models))]
        roles = sorted(set(role), key=str)
        numbers = [owner * len(roles) + roles.index(one) for owner, one in zip(owners, role, strict=True)]
        return np.asarray(numbers, np.int64), [(number, one) for number in range(len(self.models)) for one in roles]

    def _pool(self, readers: tuple[tuple[int, str | None], ...]) -> AdapterPool | None:
        if readers not in self._pools:
            pool, first = None, self.models[0]
            if first.llama_adapters:
                most = max(model.prefix_cache_bytes for model in self.models)
                adapters = [None if role is None else self.models[i].llama_adapters[role] for i, role in readers]
                pool = AdapterPool(adapters, PrefixCache(first, most))
            self._pools[readers] = pool
        return self._pools[readers]

    def _asked(
        self, owners: Sequence[int], role: RowRoles, ask: Callable[..., Any], apart: bool = False
    ) -> tuple[torch.Tensor, list[Any]]:
        """The answers of one pass of all rows, or of one per adapter, and the rows that they are of."""
        if not apart and (rows := self.rows(owners, role)) is not None:
            everything = torch.arange(len(owners))
            return everything, [ask(self.models[0], rows, everything)]
        numbers, readers = self._numbered(owners, role)
        parts, found = [], []
        for number in np.unique(numbers):
            own = torch.from_numpy(np.flatnonzero(numbers == number))
            model, who = readers[number]
            parts.append(own)
            found.append(ask(self.models[model], who, own))
        return torch.cat(parts), found


def _difference(one: AdaptedModel, other: AdaptedModel) -> str:
    """What a model has otherwise than another one; empty if their rows can share a batch."""
    ours, theirs = one.base, other.base
    if ours.model is not theirs.model:
        return f"another base model ({theirs.name!r}, not {ours.name!r})"
    if ours.tokenizer is not theirs.tokenizer:
        return "another tokenizer"
    for name in ("prompt_format", "prompt_date"):
        if getattr(ours, name) != getattr(theirs, name):
            return f"another `{name}` ({getattr(theirs, name)!r}, not {getattr(ours, name)!r})"
    for field in dataclasses.fields(one.config):
        own, its = getattr(one.config, field.name), getattr(other.config, field.name)
        if own != its:
            return f"adapters of another `{field.name}` ({its!r}, not {own!r})"
    if one.trunk is not other.trunk:  # which may keep what it has read in fewer bytes, and less exactly
        return "another `trunk_cache_mb` or `trunk_cache_dtype`"
    if one.autocast != other.autocast:
        return f"another `autocast` ({other.autocast!r}, not {one.autocast!r})"
    return ""
