"""Whole episodes of a team as arrays, a buffer of them, and batches for losses."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

SEEN, STATE, MASK, ACTIVE = "seen", "state", "action_mask", "active"
ACTIONS, REWARDS, TERMINATED, FILLED = "actions", "rewards", "terminated", "filled"
PER_OBSERVATION = (SEEN, STATE, MASK, ACTIVE)

TeamEpisode = Mapping[str, np.ndarray]
"""An episode of T steps: `seen` (T + 1, n, size), `state` (T + 1, S), `action_mask` (T + 1, n, A), `active` (T + 1, n),
the last of each behind the last step; `actions` (T, n), `rewards` (T,), `terminated` (T,), true at most in the last
step: an episode that ran into a time limit has none, and its last state is worth what would have come."""


def joined(episodes: Sequence[TeamEpisode]) -> dict[str, np.ndarray]:
    """A batch (B, T, ...) of episodes, shorter ones filled up with zeros, and `filled` (B, T), 1 in steps played.

    Args:
        episodes: B episodes.
    """
    longest = max(len(episode[REWARDS]) for episode in episodes)
    batch: dict[str, np.ndarray] = {}
    for name, first in episodes[0].items():
        steps = longest + (name in PER_OBSERVATION)
        batch[name] = np.zeros((len(episodes), steps, *first.shape[1:]), first.dtype)
        for row, episode in zip(batch[name], episodes, strict=True):
            row[: len(episode[name])] = episode[name]
    batch[FILLED] = np.zeros((len(episodes), longest), np.float32)
    for row, episode in zip(batch[FILLED], episodes, strict=True):
        row[: len(episode[REWARDS])] = 1.0
    return batch


class EpisodeBuffer:
    """The latest whole episodes, drawn uniformly without putting back.

    Args:
        capacity: Most episodes, >= 1.
        seed: Seed of the draws.
    """

    def __init__(self, capacity: int, seed: int | None = None) -> None:
        self._episodes: deque[TeamEpisode] = deque(maxlen=capacity)
        self._rng = np.random.default_rng(seed)

    def __len__(self) -> int:
        return len(self._episodes)

    def add(self, episodes: Sequence[TeamEpisode]) -> None:
        """Takes in episodes; the oldest ones go where there is no room."""
        self._episodes.extend(episodes)

    def sample(self, episodes: int, sequence_length: int | None = None) -> dict[str, np.ndarray]:
        """A batch of different episodes, as of `joined`.

        Args:
            episodes: Their number, at most `len(self)`.
            sequence_length: Most steps of the piece that is cut out of each; None for whole ones. All steps are drawn
                as often, so pieces at an episode's ends may be shorter.
        """
        chosen = [self._episodes[int(n)] for n in self._rng.choice(len(self._episodes), episodes, replace=False)]
        if sequence_length is not None:
            chosen = [self._piece(episode, sequence_length) for episode in chosen]
        return joined(chosen)

    def _piece(self, episode: TeamEpisode, steps: int) -> TeamEpisode:
        # A window that may stick out at both ends: else the first and last steps would be drawn seldom.
        first = int(self._rng.integers(1 - steps, len(episode[REWARDS])))
        start, end = max(0, first), first + steps
        # What lies behind the last step belongs to it: a piece that ends early is bootstrapped there.
        return {name: a[start : end + (name in PER_OBSERVATION)] for name, a in episode.items()}

    def get_state(self, episodes: bool = True) -> dict[str, Any]:
        """The state of the draws and, if wanted, all episodes."""
        state: dict[str, Any] = {"rng": self._rng.bit_generator.state}
        return {**state, "episodes": [dict(one) for one in self._episodes]} if episodes else state

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Sets what `get_state` gave; without episodes in it the buffer is empty."""
        self._rng.bit_generator.state = state["rng"]
        self._episodes.clear()
        self._episodes.extend(state.get("episodes", ()))


def last_actions(actions: torch.Tensor, active: torch.Tensor) -> torch.Tensor:
    """The last action of each agent (B, T + 1, n) before each observation, of when it was asked; -1 for none yet.

    Args:
        actions: (B, T, n).
        active: (B, T + 1, n), false where an agent was not asked.
    """
    steps = torch.arange(actions.shape[1], device=actions.device)[:, None]
    # The step in which an agent was asked last, up to each one; -1 for none yet.
    asked = torch.where(active[:, :-1] != 0, steps, -1).cummax(1).values
    before = torch.where(asked < 0, -1, actions.gather(1, asked.clamp(min=0)))
    return torch.cat([torch.full_like(actions[:, :1], -1), before], 1)
