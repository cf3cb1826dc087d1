"""What a model makes of its last hidden states: the vocabulary's logits, as its own forward pass computes them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from rllib_llm_comm.core.errors import UserError

_PROBE = 12
_TOLERANCE = 1e-3
# Shares of what tokens change in their own logits. In fewer bits, outliers of the whole text change roundings.
_AHEAD, _AHEAD_IN_FEWER_BITS = 1e-3, 0.1

Head = Callable[[torch.Tensor], torch.Tensor]


@torch.no_grad()
def output_head(name: str, model: Any) -> Head:
    """The map from last hidden states (..., hidden_size) to logits (..., vocabulary).

    Some models do more behind their decoder than one linear map: they cap or scale logits. A few tokens tell whether
    this one does. If so, the head is the model's own forward pass, given the hidden states.

    Args:
        name: Name of the model, in messages.
        model: A `PreTrainedModel` with a language-model head.

    Raises:
        UserError: If neither gives the model's own logits, or the model looks ahead, as those that fill gaps do.
    """
    linear = model.get_output_embeddings()
    vocabulary, device = model.get_input_embeddings().weight.shape[0], model.get_input_embeddings().weight.device
    ids = torch.randint(vocabulary, (1, _PROBE), generator=torch.Generator().manual_seed(0)).to(device)
    reason = "its logits cannot be computed from its decoder's last hidden states"
    try:
        logits = model(input_ids=ids, use_cache=False).logits
        if logits.shape[-1] > vocabulary:
            raise ValueError(f"it may write {logits.shape[-1]} tokens, but reads {vocabulary}")
        if _looks_ahead(model, ids, logits):
            raise UserError(
                f"`base_model` {name!r} ({type(model).__name__}) looks ahead: later tokens change the logits of "
                "earlier ones; take a causal language model, or, if it was trained as one, say so in its config.json "
                "(`is_decoder`: true)."
            )
        hidden = model.get_decoder()(input_ids=ids, use_cache=False).last_hidden_state
        if linear is not None and torch.equal(linear(hidden).float(), logits.float()):
            return linear  # type: ignore[no-any-return]
        output = type(model.base_model(input_ids=ids, use_cache=False))
        head = _forward_behind_decoder(model, output)
        apart = float((head(hidden).float() - logits.float()).abs().max())
        if apart <= _TOLERANCE * float(logits.float().abs().max()):
            return head
    except UserError:
        raise
    except (AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        reason += f": {type(error).__name__}: {(str(error) or '?').splitlines()[0]}"
    raise UserError(
        f"`base_model` {name!r} ({type(model).__name__}) cannot be used ({reason}); take a causal language model of a "
        "decoder with a head, such as one of the LLaMA, Qwen, Gemma or GPT-2 kind."
    )


def _looks_ahead(model: Any, ids: torch.Tensor, logits: torch.Tensor) -> bool:
    """True if other tokens in a text's second half change the logits of its first one."""
    half = ids.shape[1] // 2
    others = model(input_ids=torch.cat([ids[:, :half], ids[:, :half]], dim=1), use_cache=False).logits
    changes = (others.float() - logits.float()).abs()
    exact = model.dtype == torch.float32 and not getattr(model, "is_quantized", False)
    share = _AHEAD if exact else _AHEAD_IN_FEWER_BITS
    return float(changes[:, :half].max()) > share * float(changes[:, half:].max())


def _forward_behind_decoder(model: Any, output: Callable[..., Any]) -> Head:
    """The model's forward pass with a decoder that gives back the hidden states it gets."""
    view = copy.copy(model)
    view.__dict__["_modules"] = {**model._modules, model.base_model_prefix: _Given(output)}

    def head(hidden: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = view(inputs_embeds=hidden.reshape(1, -1, hidden.shape[-1]), use_cache=False).logits
        return logits.reshape(*hidden.shape[:-1], -1)

    return head


class _Given(nn.Module):
    def __init__(self, output: Callable[..., Any]) -> None:
        super().__init__()
        self._output = output

    def forward(self, *args: Any, inputs_embeds: torch.Tensor, **kwargs: Any) -> Any:
        return self._output(last_hidden_state=inputs_embeds)
