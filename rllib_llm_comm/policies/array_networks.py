"""Networks of agents that see numbers or maps, built from the settings and weights of a policy folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from rllib_llm_comm.policies.policy_manifest import KINDS


def build_network(kind: str, model_config: Mapping[str, Any], weights: Mapping[str, torch.Tensor]) -> Any:
    """Builds the network of a policy of agents that see numbers or maps.

    Args:
        kind: As of `PolicyManifest`.
        model_config: As of `PolicyManifest`.
        weights: By name.

    Raises:
        UserError: If a setting is missing or out of its range.
        RuntimeError: If the weights have other shapes than the settings want.
    """
    build = KINDS[kind].network_builder(dict(model_config))
    require_shapes(build, weights)
    network = build()
    network.load_state_dict(weights)
    return network.eval()


class _Unfilled(TorchFunctionMode):
    """Draws no weights: on the meta device that imports PyTorch's compiler, which takes seconds, to fill nothing."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = kwargs or {}
        if func in (torch.Tensor.normal_, nn.init.normal_):
            return args[0] if args else named["tensor"]
        return func(*args, **named)


def require_shapes(build: Callable[[], nn.Module], weights: Mapping[str, torch.Tensor]) -> None:
    """Compares what would be built with a file's weights before it takes memory and time: sizes may be anything.

    Names, shapes, and whether they are whole numbers are compared.

    Args:
        build: Makes the network.
        weights: From `read_weights`.

    Raises:
        RuntimeError: As of `Module.load_state_dict`, if they differ.
    """
    with torch.device("meta"), _Unfilled():
        planned = {name: _form(tensor) for name, tensor in build().state_dict().items()}
    held = {name: _form(tensor) for name, tensor in weights.items()}
    for name in {**planned, **held}:
        if planned.get(name) != held.get(name):
            there, wanted = (form.get(name, "nothing") for form in (held, planned))
            raise RuntimeError(f"{name!r} holds {there} but its settings want {wanted}")


def _form(tensor: torch.Tensor) -> str:
    return f"{'' if tensor.is_floating_point() else 'whole '}numbers of shape {tuple(tensor.shape)}"
