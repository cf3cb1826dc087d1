"""Key-value cache of a decoder that is computed in two parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from transformers import DynamicCache

if TYPE_CHECKING:
    from rllib_llm_comm.language.prefix_cache import Prefixes


class CutCache(DynamicCache):  # type: ignore[misc]  # transformers has no types
    """Keys and values above the cut, and of texts that go on growing also those below it.

    Args:
        depth: Number of layers below the cut; the others count themselves from the bottom.
        known: Prefixes that have been read above the cut.
        grows: True if tokens are added after the first pass.
    """

    def __init__(self, depth: int, known: Prefixes, *, grows: bool) -> None:
        super().__init__()
        self._depth = depth
        self.known, self.grows = known, grows
        self.lower: DynamicCache | None = None
        self.lower_mask: torch.Tensor | None = None
        if known.mask.shape[1]:
            for index, (keys, values) in enumerate(known.layers):
                self.update(keys, values, depth + index)

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """As of `DynamicCache`, by the layer's number in the whole model."""
        both: tuple[torch.Tensor, torch.Tensor] = super().update(
            key_states, value_states, layer_idx - self._depth, *args, **kwargs
        )
        return both

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keeps some rows, above and below the cut."""
        super().batch_select_indices(indices)
        if self.lower is not None and self.lower_mask is not None:
            self.lower.batch_select_indices(indices)
            self.lower_mask = self.lower_mask[indices]
