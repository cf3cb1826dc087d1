"""Frozen features of a prompt, on which the critic stands."""

from __future__ import annotations

import torch

from rllib_llm_comm.language.adapters import AdaptedModel
from rllib_llm_comm.language.base_model import BaseModel
from rllib_llm_comm.language.packing import compact, distinct_rows
from rllib_llm_comm.language.prefix_cache import PrefixCache, split_by_size, without

_ROWS_AT_A_TIME = 96


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
        prompt_ids: (B, P) token ids, padded on either side.

    Returns:
        (B, `feature_size`) float32.
    """
    rows, inverse = distinct_rows(prompt_ids)
    ids, lengths = compact(rows.cpu())
    cache = model.prefixes(None)
    assert cache is not None
    features = torch.empty((len(ids), feature_size(model.base)), device=model.device)
    # A few at a time, so that later prompts can go on from earlier ones.
    for some in torch.arange(len(ids)).split(_ROWS_AT_A_TIME):
        for part in split_by_size(cache.rests(ids[some], lengths[some]), model.tokens_per_pass):
            rows = some[part]
            features[rows.to(model.device)] = _features(model, cache, ids[rows], lengths[rows])
    return features[inverse.to(model.device)]


def _features(model: AdaptedModel, cache: PrefixCache, ids: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    known = cache.find(ids, lengths)
    left = lengths - known.lengths
    rests = without(ids, known.lengths)[:, : int(left.max())].clamp(min=0).to(model.device)
    mask = torch.arange(rests.shape[1], device=model.device) < left[:, None].to(model.device)
    with model.use(None):
        hidden, after = model.read(rests, mask.long(), None, known)
    cache.put(ids, lengths, known, after, hidden)
    hidden = hidden.float()
    last = hidden[torch.arange(len(ids), device=hidden.device), left.to(hidden.device) - 1]
    total = (hidden * mask[..., None]).sum(1) + known.totals
    return torch.cat([last, total / lengths[:, None].to(hidden.device)], dim=-1)
