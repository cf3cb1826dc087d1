"""Arrays of token ids: padding, distinct rows, and prompts packed with their candidates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch


def compact(ids: torch.Tensor, pad_id: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Moves padding to the right end, whatever side it was on.

    Args:
        ids: (..., T) token ids.
        pad_id: The id that marks padding.

    Returns:
        The ids (..., T) with the order of real tokens kept, and their counts (...).
    """
    is_pad = ids == pad_id
    order = torch.argsort(is_pad.to(torch.uint8), dim=-1, stable=True)
    return torch.gather(ids, -1, order), (~is_pad).sum(-1)


def distinct_rows(array: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The distinct rows of a 2-D integer tensor.

    Args:
        array: (B, N).

    Returns:
        The distinct rows (D, N), on the CPU, and for each input row the index of its representative (B,).
    """
    rows = np.ascontiguousarray(array.detach().cpu().numpy())
    as_bytes = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1])))[:, 0]
    _, first, inverse = np.unique(as_bytes, return_index=True, return_inverse=True)
    return torch.from_numpy(rows[first]), torch.from_numpy(inverse.reshape(-1))


@dataclass(frozen=True)
class PackedCandidates:
    """Prompts, each followed by all its candidates in one row.

    A candidate's last token is not part of the row: nothing is predicted from it.

    Attributes:
        input_ids: (B, T) token ids; what lies behind a row's end is padding.
        position_ids: (B, T); every candidate starts at its prompt's length.
        attention_mask: (B, 1, T, T) bool: a token sees its prompt and the earlier tokens of its own candidate.
        source: (M, 2) row and column of every position from which tokens are predicted; the first B are the
            prompts' last tokens.
        owner: (N,) index into B * K: the candidate to which each predicted token belongs.
        predicted_from: (N,) index into M.
        target: (N,) the predicted token's id.
        lengths: (B, K) tokens per candidate; 0 where masked.
    """

    input_ids: torch.Tensor
    position_ids: torch.Tensor
    attention_mask: torch.Tensor
    source: torch.Tensor
    owner: torch.Tensor
    predicted_from: torch.Tensor
    target: torch.Tensor
    lengths: torch.Tensor


def pack_candidates(
    prompt_ids: torch.Tensor, candidate_ids: torch.Tensor, candidate_mask: torch.Tensor, pad_id: int
) -> PackedCandidates:
    """Packs each prompt with its allowed candidates for one forward pass.

    Args:
        prompt_ids: (B, P), padded on either side.
        candidate_ids: (B, K, C), padded on either side.
        candidate_mask: (B, K) bool.
        pad_id: The id that marks padding.
    """
    device = prompt_ids.device
    prompts, prompt_len = compact(prompt_ids, pad_id)
    candidates, lengths = compact(candidate_ids, pad_id)
    lengths = lengths * candidate_mask
    batch, width = candidate_mask.shape
    inner = (lengths - 1).clamp(min=0)
    start = prompt_len[:, None] + inner.cumsum(1) - inner  # where a candidate's tokens begin in its row
    total = int((prompt_len + inner.sum(1)).max())

    column = torch.arange(total, device=device)
    ids = torch.full((batch, total), pad_id, dtype=prompts.dtype, device=device)
    head = min(total, prompts.shape[1])
    ids[:, :head] = prompts[:, :head]
    positions = column.expand(batch, total).clone()
    segment = torch.where(column < prompt_len[:, None], 0, -1)

    offset = torch.arange(candidates.shape[2], device=device)
    row, which, step = torch.nonzero(offset < inner[..., None], as_tuple=True)
    at = start[row, which] + step
    ids[row, at] = candidates[row, which, step]
    positions[row, at] = prompt_len[row] + step
    segment[row, at] = which + 1

    same = segment[:, :, None] == segment[:, None, :]
    visible = (same | (segment == 0)[:, None, :]) & (column[None, :] <= column[:, None])

    first_row = torch.arange(batch, device=device)
    source = torch.cat([torch.stack([first_row, prompt_len - 1], 1), torch.stack([row, at], 1)])
    # Index of inner position (row, which, step) inside `source`.
    index = torch.zeros((batch, width, candidates.shape[2]), dtype=torch.long, device=device)
    index[row, which, step] = batch + torch.arange(len(row), device=device)
    t_row, t_which, t_step = torch.nonzero(offset < lengths[..., None], as_tuple=True)
    predicted_from = torch.where(t_step == 0, t_row, index[t_row, t_which, (t_step - 1).clamp(min=0)])
    return PackedCandidates(
        input_ids=ids,
        position_ids=positions,
        attention_mask=visible[:, None],
        source=source,
        owner=t_row * width + t_which,
        predicted_from=predicted_from,
        target=candidates[t_row, t_which, t_step],
        lengths=lengths,
    )
