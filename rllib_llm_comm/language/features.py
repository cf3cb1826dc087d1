"""Frozen features of a prompt, on which the critic stands."""

from __future__ import annotations

import torch

from rllib_llm_comm.language.adapters import AdaptedModel
from rllib_llm_comm.language.base_model import BaseModel
from rllib_llm_comm.language.packing import compact, distinct_rows

_CHUNK_ROWS = 64


def feature_size(base: BaseModel) -> int:
    """Length of the feature vector: the last token's hidden state and the mean over the prompt."""
    return 2 * base.hidden_size


@torch.no_grad()
def prompt_features(model: AdaptedModel, prompt_ids: torch.Tensor) -> torch.Tensor:
    """Hidden states of the bare base at the end of each prompt, beside their mean over the prompt.

    The paper puts its critic on the last block's output; the last position alone says little in a small model,
    so the mean over all positions is added (ours). No adapter is active and no gradient flows.

    Args:
        model: The adapted model.
        prompt_ids: (B, P) token ids, padded with the base's pad id on either side.

    Returns:
        (B, `feature_size`) float32.
    """
    rows, inverse = distinct_rows(prompt_ids)
    ids, lengths = compact(rows.cpu(), model.base.pad_id)
    head = model.heads.find(None, ids, lengths)
    read = 0 if head is None else len(head)
    before = torch.zeros(()) if head is None else head.hidden.float().sum(0)
    ids, rest = ids[:, read:].to(model.device), (lengths - read).to(model.device)
    features = []
    with model.use(None):
        for chunk, length in zip(ids.split(_CHUNK_ROWS), rest.split(_CHUNK_ROWS), strict=True):
            chunk = chunk[:, : int(length.max())]
            mask = torch.arange(chunk.shape[1], device=chunk.device) < length[:, None]
            hidden = model.hidden_states(chunk, mask.long(), head=head).float()
            last = hidden[torch.arange(len(chunk), device=chunk.device), length - 1]
            mean = ((hidden * mask[..., None]).sum(1) + before.to(hidden)) / (length[:, None] + read)
            features.append(torch.cat([last, mean], dim=-1))
    return torch.cat(features)[inverse.to(model.device)]
