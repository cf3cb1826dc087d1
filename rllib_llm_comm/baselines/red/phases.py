"""Length of RED's RL phases: so many updates, or fewer where enough games are won."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np


class RLPhase:
    """Count of an RL phase's updates, and the share of games won in its last ones.

    Args:
        updates: Updates after which the phase is over, >= 1.
        window: Last updates of the phase whose games count for the share, >= 1.
        until: Share of won games at which the phase is over before, or `None`.
        uncounted: First updates of the run whose games never count: they were played before the actor had learned.
    """

    def __init__(self, updates: int, window: int, until: float | None, uncounted: int = 0) -> None:
        self._updates, self._window, self._until, self._uncounted = updates, window, until, uncounted
        self._done = self._all = 0
        self._games: deque[tuple[int, int]] = deque(maxlen=window)

    def add(self, won: int, games: int) -> None:
        """Notes an update of which so many `games` were `won`."""
        self._done += 1
        self._all += 1
        if self._all > self._uncounted:
            self._games.append((won, games))

    @property
    def won_share(self) -> float:
        """Share of games won in the last `window` updates of the phase; NaN before there were so many."""
        won, games = np.sum(self._games, axis=0) if self._games else (0, 0)
        return float(won / games) if len(self._games) == self._window and games else float("nan")

    @property
    def is_over(self) -> bool:
        """True when the cloning phase is next."""
        enough = self._until is not None and self.won_share >= self._until
        return self._done >= self._updates or enough

    def begin(self) -> None:
        """Begins the next phase."""
        self._done = 0
        self._games.clear()

    def get_state(self) -> dict[str, Any]:
        """The counts, for a checkpoint."""
        return {"done": self._done, "all": self._all, "games": list(self._games)}

    def set_state(self, state: dict[str, Any]) -> None:
        """Sets what `get_state` gave."""
        self._done = int(state["done"])
        self._all = int(state.get("all", self._uncounted))  # not in checkpoints of the first releases
        self._games = deque([(int(won), int(games)) for won, games in state["games"]], maxlen=self._window)
