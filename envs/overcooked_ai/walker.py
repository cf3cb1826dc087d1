"""A walker that takes a cook to a goal cell, and the cells that can be goals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rllib_llm_comm.envs.overcooked_ai.kernel import INTERACT, STAY
from rllib_llm_comm.envs.overcooked_ai.layouts import FLOOR, Cell, Layout
from rllib_llm_comm.envs.overcooked_ai.routes import UNREACHABLE, routes_of
from rllib_llm_comm.envs.overcooked_ai.rules import NONE, SoupKitchen, effect

PATIENCE = 4
_LONGEST_DETOUR = 3
_YIELDS = 0.5


class CookWalker:
    """Takes a cook to goal cells, one primitive action at a time.

    The way is a shortest one around the other cook, or, if there is none, as if it were not there; it is kept as long
    as it is free. A cook that could not move waits for a step with probability 1/2, so that of two that want the same
    cell one gets it. A cook that has come no nearer for `PATIENCE` steps (two cooks that block each other, or that turn
    around together again and again) takes up to three random steps, drawn from its own generator.

    Args:
        kitchen: The game.
        player: 0 or 1.
        rng: Draws the random steps; one that always draws the same by default.
    """

    def __init__(self, kitchen: SoupKitchen, player: int, rng: np.random.Generator | None = None) -> None:
        self._kitchen, self._player = kitchen, player
        self._routes = routes_of(kitchen.layout)
        self.reset(rng or np.random.default_rng(0))

    def reset(self, rng: np.random.Generator) -> None:
        """Begins an episode; `rng` draws the random steps."""
        self._rng = rng
        self._goal: Cell | None = None
        self._way: tuple[int, ...] = ()
        self._expected: tuple[Cell, int] | None = None
        self._before: tuple[Cell, int] | None = None
        self._nearest, self._waited, self._detour = 0, 0, 0

    def arrived(self, goal: Cell) -> bool:
        """True if the cook stands on a goal, or beside it and faces it."""
        cook = self._kitchen.cook(self._player)
        return self._routes.cost(cook.cell, cook.facing, goal) == 0

    def useful(self, goal: Cell) -> bool:
        """True if using a goal would do something now."""
        return effect(self._kitchen, self._kitchen.cook(self._player).held, goal) != NONE

    def action(self, goal: Cell) -> int:
        """The next primitive action towards a goal.

        A goal that cannot be reached, or floor that is reached, gives `STAY`; a faced cell that is no floor `INTERACT`.
        """
        cook = self._kitchen.cook(self._player)
        cost = self._routes.cost(cook.cell, cook.facing, goal)
        if goal != self._goal:
            self._goal, self._way, self._expected, self._before = goal, (), None, None
            self._nearest, self._waited, self._detour = cost, 0, 0
        if cost == UNREACHABLE:
            return STAY
        if cost == 0:
            self._nearest, self._waited, self._detour = cost, 0, 0
            return STAY if self._kitchen.layout.kind(goal) == FLOOR else INTERACT
        if cost < self._nearest:
            self._nearest, self._waited = cost, 0
        elif self._waited >= PATIENCE:
            self._detour, self._waited, self._nearest = int(self._rng.integers(1, _LONGEST_DETOUR + 1)), 0, cost
        self._waited += 1
        if self._detour:
            self._detour -= 1
            self._way = ()
            return self._random_step(cook.cell)
        if (cook.cell, cook.facing) == self._before and self._rng.random() < _YIELDS:
            return STAY
        self._before = (cook.cell, cook.facing)
        return self._along(cook.cell, cook.facing, goal)

    def _along(self, cell: Cell, facing: int, goal: Cell) -> int:
        other = self._kitchen.cook(1 - self._player).cell
        pose = (cell, facing)
        if not self._way or pose != self._expected or self._crosses(pose, other):
            way = self._routes.path(pose, goal, frozenset({other}))
            self._way = self._routes.path(pose, goal) or () if way is None else way
        move = self._way[0]
        self._expected = self._routes.after(pose, move)
        self._way = self._way[1:]
        return move

    def _crosses(self, pose: tuple[Cell, int], other: Cell) -> bool:
        for move in self._way:
            pose = self._routes.after(pose, move)
            if pose[0] == other:
                return True
        return False

    def _random_step(self, cell: Cell) -> int:
        other = self._kitchen.cook(1 - self._player).cell
        free = [m for m in range(4) if self._routes.after((cell, 0), m, frozenset({other}))[0] != cell]
        return int(self._rng.choice([*free, STAY]))


def goal_places(layout: Layout) -> list[Cell]:
    """The cells that are no floor and that a cook can use, row by row: goals for agents that choose among phrases."""
    routes = routes_of(layout)
    reachable = np.logical_or(*(routes.reachable(start) for start in layout.starts))
    numbers: Sequence[int] = np.flatnonzero(reachable & (layout.terrain != FLOOR)).tolist()
    return [(number % layout.width, number // layout.width) for number in numbers]
