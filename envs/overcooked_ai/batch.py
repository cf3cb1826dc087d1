"""Many games at once, for learners that want arrays and no objects."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rllib_llm_comm.envs.overcooked_ai import encoding, kernel
from rllib_llm_comm.envs.overcooked_ai.layouts import get_layout
from rllib_llm_comm.envs.overcooked_ai.rules import DYNAMICS, HORIZON, start_state
from rllib_llm_comm.errors import UserError, require_choice


class KitchenBatch:
    """N games in one kitchen, stepped together by one compiled loop.

    Attributes:
        layout: The kitchen.
        states: int16 (N, S), all states; see `kernel`.

    Args:
        num_games: N, >= 1.
        layout: Name or rows; see `get_layout`.
        dynamics: "old" or "new"; see `Kitchen`.
        horizon: Steps of an episode, >= 1.

    Raises:
        UserError: If a value is not allowed.
    """

    def __init__(
        self,
        num_games: int,
        layout: str | Sequence[str] = "cramped_room",
        dynamics: str = "old",
        horizon: int = HORIZON,
    ) -> None:
        require_choice("dynamics", dynamics, DYNAMICS)
        if num_games < 1:
            raise UserError(f"`num_games` is {num_games!r} but must be a whole number from 1 up.")
        self.layout = get_layout(layout)
        self.horizon = horizon
        self._by_itself = dynamics == "old"
        self._planes = encoding.static_planes(self.layout)
        self._start = start_state(self.layout)
        self.states = np.repeat(self._start[None], num_games, axis=0)
        self._out = np.zeros((num_games, 2, 3), np.int32)
        self._lossless = np.zeros((num_games, 2, *self._planes.shape), np.int8)

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """One step of all games. Those whose time is up stay at their end until `restart`.

        Args:
            actions: (N, 2) integers, 0 to 5.

        Returns:
            Sparse rewards (N, 2), shaped rewards (N, 2) and whether the step was a game's last (N,).
        """
        kernel.step_many(
            self.states,
            self.layout.terrain,
            self.layout.width,
            np.ascontiguousarray(actions, np.int8),
            self._by_itself,
            self._out,
        )
        return self._out[:, :, 0].copy(), self._out[:, :, 1].copy(), self.states[:, 0] >= self.horizon

    def restart(self, games: np.ndarray) -> None:
        """Begins games anew.

        Args:
            games: bool (N,), or numbers of games.
        """
        self.states[games] = self._start

    def lossless(self) -> np.ndarray:
        """int8 (N, 2, W, H, 26): the lossless encoding per game and player; overwritten by the next call."""
        encoding.lossless_many(self.states, self._planes, self.horizon, self._lossless)
        return self._lossless
