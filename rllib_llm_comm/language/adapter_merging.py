"""Adapters merged (folded) into the weights of small models, where thin LoRA products take longer than they help."""

from __future__ import annotations

import copy
from collections.abc import Hashable, Sequence
from typing import Any

import torch
from torch import nn

_UP_TO_HIDDEN_SIZE = 512

NamedLayers = Sequence[tuple[str, Any]]
"""PEFT's LoRA layers with their names inside the decoder."""


def pays_to_fold(hidden_size: int) -> bool:
    """True if a model is so small that folding is quicker than PEFT's way."""
    return hidden_size <= _UP_TO_HIDDEN_SIZE


def folded_weights(layers: NamedLayers, role: str) -> dict[str, torch.Tensor]:
    """The corrected weights W + (alpha / r) B A of one role; gradients flow through them.

    Args:
        layers: The LoRA layers.
        role: The adapter.

    Returns:
        Weights by the names that they have under PEFT.
    """
    return {f"{name}.base_layer.weight": _folded(layer, role) for name, layer in layers}


def _folded(layer: Any, role: str) -> torch.Tensor:
    weight: torch.Tensor = layer.base_layer.weight
    # The adapter is float32 also on a base in half precision, whose inputs the corrected weights have to fit.
    return weight + (layer.scaling[role] * (layer.lora_B[role].weight @ layer.lora_A[role].weight)).to(weight.dtype)


class FoldedDecoder:
    """A decoder without PEFT's layers for inference with one role; folded anew when the adapter has changed.

    Shares every weight that no adapter corrects.

    Args:
        decoder: The bare decoder.
        layers: The LoRA layers of the adapted one.
        role: The adapter.
    """

    def __init__(self, decoder: nn.Module, layers: NamedLayers, role: str) -> None:
        shared: dict[int, Any] = {id(p): p for p in decoder.parameters()}
        shared.update({id(b): b for b in decoder.buffers()})
        self._decoder = copy.deepcopy(decoder, shared)
        self._role, self._layers = role, layers
        for name, layer in layers:
            weight = torch.empty_like(layer.base_layer.weight)
            self._decoder.get_submodule(name).weight = nn.Parameter(weight, requires_grad=False)
        self._stamp: Hashable = None

    @torch.no_grad()
    def __call__(self, stamp: Hashable, **inputs: Any) -> Any:
        """Runs the decoder.

        Args:
            stamp: Changes with the adapter's weights.
            **inputs: As of the Hugging Face model.
        """
        if stamp != self._stamp:
            for name, layer in self._layers:
                self._decoder.get_submodule(name).weight.copy_(_folded(layer, self._role))
            self._stamp = stamp
        return self._decoder(**inputs)
