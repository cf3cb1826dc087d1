"""Arrays of token ids: padding, distinct rows, and prompts packed with their candidates."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import torch

PAD = -1
"""Stands in our arrays where no token is. No token has this id; a model reads any token in its place, unseen."""


def compact(ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Moves padding to the right end, whatever side it was on.

    Args:
        ids: (..., T) token ids, `PAD` where there is none.

    Returns:
        The ids (..., T) with the order of real tokens kept, and their counts (...).
    """
    is_token = ids != PAD
    counts = is_token.sum(-1)
    if not (is_token[..., 1:] & ~is_token[..., :-1]).any():  # as nearly always
        return ids, counts
    order = torch.argsort((~is_token).to(torch.uint8), dim=-1, stable=True)
    return torch.gather(ids, -1, order), counts


def trimmed(ids: torch.Tensor) -> torch.Tensor:
    """Token ids (..., T) without the outer columns in which all rows have padding; one column at least stays."""
    used = (ids != PAD).flatten(0, -2).any(0).nonzero()[:, 0]
    if not len(used):
        return ids[..., :1]
    return ids[..., int(used[0]) : int(used[-1]) + 1]


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


def micro_batches(rows: torch.Tensor, tokens: torch.Tensor, max_tokens: int) -> list[torch.Tensor]:
    """Splits rows into parts whose distinct ones have at most so many tokens; equal rows stay together.

    Args:
        rows: (B, W) integers; equal rows are computed once.
        tokens: (B,) tokens of each row.
        max_tokens: Bound per part; a row that is longer has a part of its own.

    Returns:
        Row numbers of each part; every row is in exactly one.
    """
    groups = distinct_rows(rows)[1]
    parts: list[list[torch.Tensor]] = []
    room = 0
    for group in range(int(groups.max()) + 1):
        members = (groups == group).nonzero()[:, 0]
        count = int(tokens[members[0]])
        if not parts or count > room:
            parts.append([])
            room = max_tokens
        parts[-1].append(members)
        room -= count
    return [torch.cat(part) for part in parts]


@dataclass(frozen=True)
class PackedCandidates:
    """Prompts, each followed by the trie of all its candidates in one row.

    Candidates that begin with the same tokens share them. A candidate's last token is not part of the row unless
    another candidate goes on behind it: nothing else is predicted from it.

    Attributes:
        input_ids: (B, T) token ids; what lies behind a row's end is any token.
        position_ids: (B, T); a node's position is its prompt's length plus its depth in the trie.
        attention_mask: (B, 1, T, T) bool: a token sees its prompt and its ancestors.
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

    def to(self, device: torch.device) -> PackedCandidates:
        """Copy of the candidates on another device."""
        return PackedCandidates(**{field.name: getattr(self, field.name).to(device) for field in fields(self)})


def pack_candidates(
    prompt_ids: torch.Tensor, candidate_ids: torch.Tensor, candidate_mask: torch.Tensor
) -> PackedCandidates:
    """Packs each prompt with its allowed candidates for one forward pass.

    Works on the CPU, where thousands of small index operations are quicker than on a GPU.

    Args:
        prompt_ids: (B, P), padded on either side.
        candidate_ids: (B, K, C), padded on either side.
        candidate_mask: (B, K) bool.

    Returns:
        Arrays on the CPU.
    """
    prompts, prompt_len = (array.numpy() for array in compact(prompt_ids.cpu()))
    candidates, counts = (array.numpy() for array in compact(candidate_ids.cpu()))
    lengths = counts * candidate_mask.cpu().numpy()
    trie = _grow_trie(candidates, lengths, prompt_len)

    batch, total = len(prompts), int(trie.ends.max())
    column = np.arange(total)
    ids = np.zeros((batch, total), prompts.dtype)
    head = min(total, prompts.shape[1])
    ids[:, :head] = np.maximum(prompts[:, :head], 0)
    positions = np.tile(column, (batch, 1))
    in_prompt = column < prompt_len[:, None]
    visible = (column[None, :] <= column[:, None]) & in_prompt[:, None, :] & in_prompt[:, :, None]
    first = batch
    for depth, count in enumerate(trie.level_sizes):
        rows, at = trie.source[first : first + count].T
        up = trie.source[trie.parent[first : first + count], 1]
        ids[rows, at] = trie.token[first : first + count]
        positions[rows, at] = prompt_len[rows] + depth
        visible[rows, at] = visible[rows, up]
        visible[rows, at, at] = True
        first += count

    t_row, t_which, t_step = np.nonzero(np.arange(candidates.shape[2]) < lengths[..., None])
    return PackedCandidates(
        input_ids=torch.from_numpy(ids),
        position_ids=torch.from_numpy(positions),
        attention_mask=torch.from_numpy(visible[:, None]),
        source=torch.from_numpy(trie.source),
        owner=torch.from_numpy(t_row * lengths.shape[1] + t_which),
        predicted_from=torch.from_numpy(trie.predicted_from[t_row, t_which, t_step]),
        target=torch.from_numpy(candidates[t_row, t_which, t_step]),
        lengths=torch.from_numpy(lengths),
    )


@dataclass(frozen=True)
class _Trie:
    """Nodes of all rows, level by level; the first B stand for the prompts' last tokens.

    Attributes:
        source: (M, 2) row and column of each node.
        parent: (M,) index of the node above.
        token: (M,) token id (of the first B: not used).
        level_sizes: Nodes per depth.
        predicted_from: (B, K, C) node from which each candidate token is predicted.
        ends: (B,) columns used per row.
    """

    source: np.ndarray
    parent: np.ndarray
    token: np.ndarray
    level_sizes: list[int]
    predicted_from: np.ndarray
    ends: np.ndarray


def _grow_trie(candidates: np.ndarray, lengths: np.ndarray, prompt_len: np.ndarray) -> _Trie:
    batch, width, steps = candidates.shape
    vocabulary = int(candidates.max(initial=0)) + 1
    at = np.repeat(np.arange(batch)[:, None], width, axis=1)  # the node that each candidate has reached
    predicted_from = np.zeros((batch, width, steps), np.int64)
    row_of = np.arange(batch)
    sources = [np.stack([row_of, prompt_len - 1], 1)]
    parents, tokens = [row_of], [np.zeros(batch, candidates.dtype)]
    ends = prompt_len.copy()
    sizes: list[int] = []
    for step in range(steps):
        predicted_from[:, :, step] = at
        grows = step < lengths - 1
        if not grows.any():
            break
        edges, which = np.unique(at[grows] * vocabulary + candidates[grows, step], return_inverse=True)
        above, token = edges // vocabulary, (edges % vocabulary).astype(candidates.dtype)
        # Nodes are numbered row by row within a level, so sorted edges are sorted by row, too.
        rows = row_of[above]
        per_row = np.bincount(rows, minlength=batch)
        rank = np.arange(len(rows)) - (np.cumsum(per_row) - per_row)[rows]
        at[grows] = len(row_of) + which.reshape(-1)
        row_of = np.concatenate([row_of, rows])
        sources.append(np.stack([rows, ends[rows] + rank], 1))
        parents.append(above)
        tokens.append(token)
        sizes.append(len(rows))
        ends = ends + per_row
    return _Trie(np.concatenate(sources), np.concatenate(parents), np.concatenate(tokens), sizes, predicted_from, ends)
