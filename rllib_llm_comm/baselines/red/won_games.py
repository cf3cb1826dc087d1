"""RED's D_k: decisions of won games, and minibatches of demonstrations and won games together."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np

Columns = Mapping[str, np.ndarray]
"""Arrays by name with a row for each decision."""


class WonGames:
    """The last games that were won, up to a number of decisions; the oldest go first.

    Args:
        most: Most decisions, >= 1; the newest game is always kept.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._games: deque[dict[str, np.ndarray]] = deque()
        self.count = 0
        """Number of decisions that are kept."""

    def add(self, game: Columns) -> None:
        """Takes in the decisions of a won game.

        Args:
            game: Its decisions, at least one.
        """
        self._games.append({name: np.asarray(column) for name, column in game.items()})
        self.count += _length(game)
        while len(self._games) > 1 and self.count > self._most:
            self.count -= _length(self._games.popleft())

    def columns(self) -> dict[str, np.ndarray] | None:
        """All kept decisions; `None` if no game was won."""
        if not self._games:
            return None
        return {name: np.concatenate([game[name] for game in self._games]) for name in self._games[0]}

    def __len__(self) -> int:
        """Number of games that are kept."""
        return len(self._games)

    def get_state(self) -> list[dict[str, Any]]:
        """All kept games."""
        return [dict(game) for game in self._games]

    def set_state(self, state: list[dict[str, Any]]) -> None:
        """Sets what `get_state` gave."""
        self._games, self.count = deque(), 0
        for game in state:
            self.add(game)


def mixed_batch(
    demonstrated: Columns, won: Columns | None, size: int, ratio: float, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """A minibatch of D and D_k, drawn with repetition, so that D_k counts as if it had `ratio` times as many rows as D.

    Args:
        demonstrated: Demonstrations (D), at least one row.
        won: Decisions of won games (D_k); `None` if there are none.
        size: Rows of the minibatch.
        ratio: |D_k| : |D|, >= 0. RED: 1.
        rng: Draws.
    """
    of_won = 0 if won is None else int(rng.binomial(size, ratio / (1.0 + ratio)))
    first = rng.integers(_length(demonstrated), size=size - of_won)
    if won is None or not of_won:
        return {name: column[first] for name, column in demonstrated.items()}
    second = rng.integers(_length(won), size=of_won)
    return {name: np.concatenate([demonstrated[name][first], won[name][second]]) for name in demonstrated}


def _length(columns: Columns) -> int:
    return len(next(iter(columns.values())))
