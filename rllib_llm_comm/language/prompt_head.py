"""The words with which all prompts begin: their keys and values are computed once and used in every forward pass."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from rllib_llm_comm.language.adapters import AdaptedModel

_LEAST_TOKENS = 4  # a shorter head costs more to attach than to compute


@dataclass(frozen=True)
class PromptHead:
    """The beginning that prompts share.

    Attributes:
        ids: (P,) token ids.
        hidden: (P, hidden_size) last hidden states.
        layers: Keys and values (1, heads, P, size) of every layer.
    """

    ids: torch.Tensor
    hidden: torch.Tensor
    layers: tuple[tuple[torch.Tensor, torch.Tensor], ...]

    def __len__(self) -> int:
        return len(self.ids)

    def to_cache(self, config: Any, batch: int) -> Any:
        """A key-value cache in which every row of a batch has read the head."""
        from transformers import DynamicCache

        cache = DynamicCache(config=config)
        for index, (keys, values) in enumerate(self.layers):
            cache.update(keys.expand(batch, -1, -1, -1), values.expand(batch, -1, -1, -1), index)
        return cache

    def cut(self, length: int) -> PromptHead:
        """Its first `length` tokens: what stands behind them has no influence on them."""
        layers = tuple((keys[:, :, :length], values[:, :, :length]) for keys, values in self.layers)
        return PromptHead(self.ids[:length], self.hidden[:length], layers)


class PromptHeads:
    """The heads of an adapted model, one per role.

    What all prompts of a role have had in common so far is its head: it gets shorter when a prompt begins otherwise and
    never longer. It is computed again when the role's weights have changed. Without gradients only: keys and values
    that were kept carry none.

    Args:
        model: The adapted model.
    """

    def __init__(self, model: AdaptedModel) -> None:
        self._model = model
        self._heads: dict[str | None, tuple[Hashable, PromptHead]] = {}
        self._ids: dict[str | None, torch.Tensor] = {}

    def find(self, role: str | None, prompts: torch.Tensor, lengths: torch.Tensor) -> PromptHead | None:
        """The head of these prompts.

        Args:
            role: The adapter in use.
            prompts: (B, P) token ids, left-aligned, on the CPU; at least one row.
            lengths: (B,) tokens per prompt. At least one of each stays behind the head.

        Returns:
            The head, or `None` where gradients are wanted or prompts have nothing in common.
        """
        if torch.is_grad_enabled():
            return None
        ids = self._ids.get(role, prompts[0])[: int(lengths.min()) - 1]
        differs = (prompts[:, : len(ids)] != ids).any(0).nonzero()
        if len(differs):
            ids = ids[: int(differs[0])]
        self._ids[role] = ids
        if len(ids) < _LEAST_TOKENS:
            return None
        stamp, head = self._heads.get(role, (None, None))
        if head is None or stamp != self._model.stamp(role) or len(head) < len(ids):
            head = self._compute(role, ids)
        elif len(head) > len(ids):
            head = head.cut(len(ids))
        self._heads[role] = (self._model.stamp(role), head)
        return head

    def _compute(self, role: str | None, ids: torch.Tensor) -> PromptHead:
        from transformers import DynamicCache

        cache: Any = DynamicCache(config=self._model.model.config)
        with self._model.use(role):
            output = self._model.decoder(
                input_ids=ids[None].to(self._model.device), past_key_values=cache, use_cache=True
            )
        layers = tuple((layer.keys, layer.values) for layer in cache.layers)
        return PromptHead(ids, output.last_hidden_state[0], layers)
