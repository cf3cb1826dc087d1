"""Many games at once, for learners that want arrays and no objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np

from rllib_llm_comm.core.errors import require_whole
from rllib_llm_comm.envs.overcooked_ai import encoding, kernel
from rllib_llm_comm.envs.overcooked_ai.layouts import Layout, check_dynamics, get_layout
from rllib_llm_comm.envs.overcooked_ai.rules import HORIZON, start_state


class KitchenBatch:
    """N games in one kitchen, stepped together by one compiled loop.

    Attributes:
        layout: The kitchen.
        states: int16 (N, S), all states; see `kernel`.

    Args:
        num_games: N, >= 1.
        layout: As of `rules.SoupKitchen`, as are `dynamics` and `horizon`.
        num_threads: Threads that share the games out among them, >= 1; results do not depend on it.

    Raises:
        UserError: If a value is not allowed.
    """

    def __init__(
        self,
        num_games: int,
        layout: str | Sequence[str] | Mapping[str, Any] | Layout = "cramped_room",
        dynamics: str = "old",
        horizon: int = HORIZON,
        num_threads: int = 1,
    ) -> None:
        for name, value in (("num_games", num_games), ("num_threads", num_threads)):
            require_whole(name, value, 1)
        self.layout = get_layout(layout)
        check_dynamics(self.layout, dynamics)
        self.dynamics = dynamics
        self.horizon = horizon
        self._rules = kernel.rule_numbers(self.layout, by_itself=dynamics == "old")
        self._planes = encoding.static_planes(self.layout)
        self._start = start_state(self.layout)
        self.states = np.repeat(self._start[None], num_games, axis=0)
        self._out = np.zeros((num_games, 2, 3))
        shares = np.linspace(0, num_games, min(num_threads, num_games) + 1).astype(int)
        self._parts = [slice(*part) for part in pairwise(shares.tolist())]
        self._threads = ThreadPoolExecutor(len(self._parts), "kitchens") if len(self._parts) > 1 else None
        self._lossless = np.zeros((num_games, 2, *self._planes.shape), np.int8)

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """One step of all games. Those whose time is up stay at their end until `restart`.

        Args:
            actions: (N, 2) integers, 0 to 5.

        Returns:
            Sparse rewards (N, 2), shaped rewards (N, 2) and whether the step was a game's last (N,).
        """
        chosen = np.ascontiguousarray(actions, np.int8)

        def step(part: slice) -> None:
            kernel.step_many(self.states[part], self.layout.terrain, self._rules, chosen[part], self._out[part])

        self._share_out(step)
        return self._out[:, :, 0].copy(), self._out[:, :, 1].copy(), self.states[:, 0] >= self.horizon

    def restart(self, games: np.ndarray) -> None:
        """Begins games anew: bool (N,), or their numbers."""
        self.states[games] = self._start

    def lossless(self) -> np.ndarray:
        """int8 (N, 2, W, H, 26): the lossless encoding per game and player; overwritten by the next call."""

        def encode(part: slice) -> None:
            encoding.lossless_many(self.states[part], self._planes, self._rules, self.horizon, self._lossless[part])

        self._share_out(encode)
        return self._lossless

    def _share_out(self, work: Callable[[slice], None]) -> None:
        """Does something for all games, a share per thread; compiled code runs without Python's lock."""
        if self._threads is None:
            work(self._parts[0])
        else:
            list(self._threads.map(work, self._parts))
