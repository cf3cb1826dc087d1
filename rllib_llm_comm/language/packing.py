"""Arrays of token ids: padding, distinct rows, and prompts packed with their candidates."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch

PAD = -1
"""Stands in our arrays where no token is. No token has this id; a model reads any token in its place, unseen."""


def common_prefix(*rows: Sequence[int]) -> int:
    """Number of tokens at the beginning that all rows have in common."""
    columns = zip(*rows, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda column: len(set(column)) == 1, columns))


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


def added_mask(mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A boolean attention mask as numbers to be added: 0 where it is True."""
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(~mask, torch.finfo(dtype).min)


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
    """Prompts with the tries of their candidates, one or several prompts in a row.

    Texts that begin with the same tokens share them: candidates of a prompt, and prompts in a row. A candidate's last
    token is not part of the row unless another candidate goes on behind it: nothing else is predicted from it.

    Attributes:
        input_ids: (R, T) token ids; what lies behind a row's end is any token.
        position_ids: (R, T); a token's position is the number of its ancestors.
        attention_mask: (R, 1, T, T) bool: a token sees its ancestors and itself.
        source: (M, 2) row and column of every position from which tokens are predicted; the first B are the
            prompts' last tokens.
        owner: (N,) index into B * K: the candidate to which each predicted token belongs.
        predicted_from: (N,) index into M.
        target: (N,) the predicted token's id.
        lengths: (B, K) tokens per candidate; 0 where masked.
        columns: (B, P) column of each prompt's tokens; of padding any column.
    """

    input_ids: torch.Tensor
    position_ids: torch.Tensor
    attention_mask: torch.Tensor
    source: torch.Tensor
    owner: torch.Tensor
    predicted_from: torch.Tensor
    target: torch.Tensor
    lengths: torch.Tensor
    columns: torch.Tensor

    @property
    def inputs(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Token ids, attention mask and positions, as a model reads them."""
        return self.input_ids, self.attention_mask, self.position_ids

    @property
    def places(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Rows (M,) and columns (M,) of `source`."""
        return self.source[:, 0], self.source[:, 1]

    def to(self, device: torch.device) -> PackedCandidates:
        """Copy of the candidates on another device."""
        return PackedCandidates(**{field.name: getattr(self, field.name).to(device) for field in fields(self)})


def common_beginnings(prompts: torch.Tensor, lengths: torch.Tensor) -> np.ndarray:
    """Tokens (B,) at the beginning of each prompt that are those of the one before it; 0 for the first.

    Args:
        prompts: (B, P) token ids, left-aligned.
        lengths: (B,) tokens per prompt.
    """
    ids, count = prompts.numpy(), lengths.numpy()
    shared = np.zeros(len(ids), np.int64)
    if len(ids) > 1:
        same = (ids[1:] == ids[:-1]).cumprod(1).sum(1)
        shared[1:] = np.minimum(same, np.minimum(count[1:], count[:-1]))
    return shared


def rows_of_prompts(
    prompts: torch.Tensor,
    lengths: torch.Tensor,
    behind: torch.Tensor,
    most: int,
    owners: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Puts prompts that follow each other into rows, as long as their texts have room.

    Args:
        prompts: (B, P) token ids, left-aligned; the better sorted, the more neighbours share.
        lengths: (B,) tokens per prompt.
        behind: (B,) most tokens behind each prompt.
        most: Most tokens of a row; a longer text has a row of its own.
        owners: (B,) whose each prompt is; a row has one owner. `None`: all are of one.

    Returns:
        Row (B,) of each prompt, ascending, and tokens of each row (R,).
    """
    common = common_beginnings(prompts, lengths)
    if owners is not None:
        common[np.diff(owners, prepend=-1) != 0] = 0
    shared = common.tolist()
    rows: list[int] = []
    sizes: list[int] = []
    for own, count, after in zip(shared, lengths.tolist(), behind.tolist(), strict=True):
        if sizes and own and sizes[-1] + count - own + after <= most:
            sizes[-1] += count - own + after
        else:
            sizes.append(count + after)
        rows.append(len(sizes) - 1)
    return np.array(rows), np.array(sizes)


def pack_candidates(
    prompt_ids: torch.Tensor,
    candidate_ids: torch.Tensor,
    candidate_mask: torch.Tensor,
    row_of: np.ndarray | None = None,
) -> PackedCandidates:
    """Packs prompts with their allowed candidates for one forward pass.

    Works on the CPU, where thousands of small index operations are quicker than on a GPU.

    Args:
        prompt_ids: (B, P), padded on either side.
        candidate_ids: (B, K, C), padded on either side.
        candidate_mask: (B, K) bool.
        row_of: (B,) row of each prompt, 0, 0, ..., 1, ...; by default each prompt has a row of its own.

    Returns:
        Arrays on the CPU.
    """
    prompts_left, prompt_counts = compact(prompt_ids.cpu())
    prompts, prompt_len = prompts_left.numpy(), prompt_counts.numpy()
    candidates, counts = (array.numpy() for array in compact(candidate_ids.cpu()))
    lengths = counts * candidate_mask.cpu().numpy()
    batch, width = prompts.shape
    if row_of is None:
        row_of, shared = np.arange(batch), np.zeros(batch, np.int64)
    else:
        shared = common_beginnings(prompts_left, prompt_counts)
        shared[np.diff(row_of, prepend=-1) > 0] = 0
    rows = int(row_of[-1]) + 1

    # A prompt's tokens behind those that it shares follow in its row; `at` has the column of every token.
    own = prompt_len - shared
    filled = np.bincount(row_of, own, rows).astype(np.int64)
    begin = np.cumsum(own) - own
    begin -= begin[np.searchsorted(row_of, row_of)]
    place = np.arange(width)
    holder = np.where(place >= shared[:, None], np.arange(batch)[:, None], -1)
    np.maximum.accumulate(holder, axis=0, out=holder)
    at = begin[holder] + place - shared[holder]
    last = np.where(prompt_len > 0, at[np.arange(batch), prompt_len - 1], -1)
    trie = _grow_trie(candidates, lengths, row_of, last, filled)

    total = int(trie.ends.max())
    ids = np.zeros((rows, total), prompts.dtype)
    positions = np.tile(np.arange(total), (rows, 1))
    visible = np.zeros((rows, total, total), bool)
    fresh = (place >= shared[:, None]) & (place < prompt_len[:, None])
    which, where = np.nonzero(fresh)
    ids[row_of[which], at[which, where]] = prompts[which, where]
    positions[row_of[which], at[which, where]] = where
    looks, over = np.nonzero(place <= where[:, None])
    visible[row_of[which[looks]], at[which[looks], where[looks]], at[which[looks], over]] = True
    first = batch
    for count in trie.level_sizes:
        row, column = trie.source[first : first + count].T
        above = trie.parent[first : first + count]
        ids[row, column] = trie.token[first : first + count]
        positions[row, column] = positions[row, trie.source[above, 1]] + 1
        visible[row, column] = visible[row, trie.source[above, 1]]
        visible[row, column, column] = True
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
        columns=torch.from_numpy(np.where(place < prompt_len[:, None], at, 0)),
    )


@dataclass(frozen=True)
class _Trie:
    """Nodes of all prompts, level by level; the first B stand for the prompts' last tokens.

    Attributes:
        source: (M, 2) row and column of each node.
        parent: (M,) index of the node above.
        token: (M,) token id (of the first B: not used).
        level_sizes: Nodes per depth.
        predicted_from: (B, K, C) node from which each candidate token is predicted.
        ends: (R,) columns used per row.
    """

    source: np.ndarray
    parent: np.ndarray
    token: np.ndarray
    level_sizes: list[int]
    predicted_from: np.ndarray
    ends: np.ndarray


def _grow_trie(
    candidates: np.ndarray, lengths: np.ndarray, row_of: np.ndarray, last: np.ndarray, filled: np.ndarray
) -> _Trie:
    """Grows the tries of all prompts (B,) in rows (R,) that are filled so far; `last` are columns of last tokens."""
    batch, width, steps = candidates.shape
    vocabulary = int(candidates.max(initial=0)) + 1
    at = np.repeat(np.arange(batch)[:, None], width, axis=1)  # the node that each candidate has reached
    predicted_from = np.zeros((batch, width, steps), np.int64)
    node_row = row_of
    sources = [np.stack([row_of, last], 1)]
    parents, tokens = [np.arange(batch)], [np.zeros(batch, candidates.dtype)]
    ends = filled.copy()
    sizes: list[int] = []
    for step in range(steps):
        predicted_from[:, :, step] = at
        grows = step < lengths - 1
        if not grows.any():
            break
        edges, which = np.unique(at[grows] * vocabulary + candidates[grows, step], return_inverse=True)
        above, token = edges // vocabulary, (edges % vocabulary).astype(candidates.dtype)
        # Nodes are numbered prompt by prompt within a level, so sorted edges are sorted by row, too.
        rows = node_row[above]
        per_row = np.bincount(rows, minlength=len(ends))
        rank = np.arange(len(rows)) - (np.cumsum(per_row) - per_row)[rows]
        at[grows] = len(node_row) + which.reshape(-1)
        node_row = np.concatenate([node_row, rows])
        sources.append(np.stack([rows, ends[rows] + rank], 1))
        parents.append(above)
        tokens.append(token)
        sizes.append(len(rows))
        ends = ends + per_row
    return _Trie(np.concatenate(sources), np.concatenate(parents), np.concatenate(tokens), sizes, predicted_from, ends)
