"""Rows of token ids as paths: the token in front of each token, as an attention mask tells it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

ROOT = -1


@dataclass(frozen=True)
class TextPaths:
    """Rows of tokens without gaps, each with the place of the token in front of it.

    Attributes:
        ids: (B, S) token ids, left-aligned.
        parents: (B, S) place of the token in front, smaller than its own; `ROOT` for the first.
        counts: (B,) tokens per row.
        place: (B, S') place of each column that was given; 0 of padding.
    """

    ids: np.ndarray
    parents: np.ndarray
    counts: np.ndarray
    place: np.ndarray

    def rows(self, which: np.ndarray, width: int | None = None) -> TextPaths:
        """Some rows, and of each at most so many tokens."""
        counts = self.counts[which] if width is None else np.minimum(self.counts[which], width)
        most = int(counts.max(initial=0))
        return TextPaths(self.ids[which, :most], self.parents[which, :most], counts, self.place[which])

    def chains(self) -> np.ndarray:
        """Tokens (B,) at the beginning of each row that follow one on the other."""
        column = np.arange(self.ids.shape[1])
        follows = (self.parents == column - 1) & (column < self.counts[:, None])
        return follows.cumprod(1).sum(1)

    def ancestors(self) -> np.ndarray:
        """(B, S, S) bool: True where a token (second axis) may look at another one: its ancestors and itself."""
        batch, width = self.ids.shape
        visible = np.zeros((batch, width, width), bool)
        rows = np.arange(batch)
        for column in range(width):
            above = self.parents[:, column]
            visible[:, column] = visible[rows, above] & (above != ROOT)[:, None]
            visible[:, column, column] = True
        return visible


def text_paths(ids: torch.Tensor, mask: torch.Tensor, before: TextPaths | None = None) -> TextPaths:
    """The paths of rows.

    Args:
        ids: (B, T) token ids.
        mask: (B, T) of 0/1: each token sees those in front of it; or (B, 1, T, T) bool, True where token t may look at
            column s, which is an ancestor of it or itself.
        before: Chains of tokens in front of the rows, which every token sees.
    """
    tokens = ids.cpu().numpy()
    batch, width = tokens.shape
    column = np.arange(width)
    if mask.dim() == 4:
        visible = mask[:, 0].cpu().numpy()
        valid = visible[:, column, column]
        earlier = visible & (column[None, :] < column[:, None])
    else:
        valid = mask.cpu().numpy().astype(bool)
        earlier = valid[:, None, :] & (column[None, :] < column[:, None])
    last = width - 1 - earlier[:, :, ::-1].argmax(2)
    ahead = np.zeros(batch, np.int64) if before is None else before.counts
    place = np.where(valid, valid.cumsum(1) - 1 + ahead[:, None], 0)
    parents = np.where(earlier.any(2), np.take_along_axis(place, last, 1), ahead[:, None] - 1)
    counts = ahead + valid.sum(1)
    total = int(counts.max(initial=0))
    whole_ids, whole_parents = np.zeros((batch, total), np.int64), np.zeros((batch, total), np.int64)
    if before is not None:
        front = before.ids.shape[1]
        whole_ids[:, :front], whole_parents[:, :front] = before.ids, before.parents
    row, which = np.nonzero(valid)
    whole_ids[row, place[row, which]] = tokens[row, which]
    whole_parents[row, place[row, which]] = parents[row, which]
    return TextPaths(whole_ids, whole_parents, counts, place)


def chains(ids: torch.Tensor, counts: torch.Tensor) -> TextPaths:
    """Left-aligned rows (B, S) in which each of the first (B,) tokens follows the one in front of it."""
    width = int(counts.max()) if len(counts) else 0
    tokens = ids[:, :width].cpu().numpy().astype(np.int64)
    column = np.broadcast_to(np.arange(width), tokens.shape)
    return TextPaths(tokens, column - 1, counts.numpy(), column)
