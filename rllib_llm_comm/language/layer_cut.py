"""A decoder cut between two layers: the part below and the part above."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.language.base_model import BaseModel, layer_count

_PROBE = 12
_TOLERANCE = 1e-3


def layers_below(base: BaseModel, lora_layers: int | str) -> int:
    """Number of layers below the adapted ones.

    Args:
        lora_layers: `"all"`, or the number of adapted layers, counted from the top.

    Raises:
        UserError: If the model has fewer layers, or cannot be cut.
    """
    if lora_layers == "all":
        return 0
    total = int(base.config.num_hidden_layers)
    _require_layers(base.name, int(lora_layers), total)
    depth = total - int(lora_layers)
    if depth:
        _require_cut(base, depth)
    return depth


def check_lora_layers(name: str, lora_layers: int | str) -> None:
    """Finds out whether a model has so many layers, without loading its weights.

    Args:
        name: As for `load_base_model`.
        lora_layers: `"all"`, or the number of adapted layers.

    Raises:
        UserError: If it has fewer.
    """
    if lora_layers != "all":
        _require_layers(name, int(lora_layers), layer_count(name))


def _require_layers(name: str, lora_layers: int, total: int) -> None:
    if lora_layers > total:
        raise UserError(
            f"`lora_layers` is {lora_layers} but `base_model` {name!r} has {total} layers; set it to at most {total}, "
            "or to 'all'."
        )


def below(decoder: nn.Module, depth: int) -> nn.Module:
    """The decoder's first layers, without the norm behind the last one; its parts are the decoder's own.

    Args:
        decoder: A Hugging Face decoder with `layers` and `norm`.
        depth: Number of layers.
    """
    view = _view(decoder, slice(0, depth))
    view.norm = nn.Identity()
    return view


def above(decoder: nn.Module, depth: int) -> nn.Module:
    """The decoder's layers from `depth` on, which take `inputs_embeds`; arguments as of `below`."""
    return _view(decoder, slice(depth, None))


def _view(decoder: Any, which: slice) -> Any:
    view = copy.copy(decoder)
    view.__dict__["_modules"] = dict(decoder._modules)
    view.layers = nn.ModuleList(decoder.layers[which])
    return view


def added_mask(mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A boolean attention mask as numbers to be added: 0 where it is True."""
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(~mask, torch.finfo(dtype).min)


@torch.no_grad()
def _require_cut(base: BaseModel, depth: int) -> None:
    """Refuses a model whose halves, one behind the other, do not compute what the whole does."""
    decoder, config = base.decoder, base.config
    kinds = set(getattr(config, "layer_types", None) or ("full_attention",))
    plain = isinstance(getattr(decoder, "layers", None), nn.ModuleList) and hasattr(decoder, "norm")
    if plain and kinds == {"full_attention"}:
        ids = torch.arange(_PROBE, device=base.device)[None] % base.vocab_size
        whole = decoder(input_ids=ids, use_cache=False).last_hidden_state.float()
        half = below(decoder, depth)(input_ids=ids, use_cache=False).last_hidden_state
        parts = above(decoder, depth)(inputs_embeds=half, use_cache=False).last_hidden_state.float()
        if float((whole - parts).abs().max()) <= _TOLERANCE * float(whole.abs().max()):
            return
    raise UserError(
        f"`lora_layers` is set but `base_model` {base.name!r} ({type(decoder).__name__}) cannot be computed in two "
        "parts; set `lora_layers` to 'all', or take a model of the LLaMA kind."
    )
