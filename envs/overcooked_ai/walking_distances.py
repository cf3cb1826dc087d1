"""Walking distances between the things of a kitchen, and the counters over which things are handed."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from rllib_llm_comm.envs.overcooked_ai.layouts import COUNTER, ONIONS, POT, Cell, Layout
from rllib_llm_comm.envs.overcooked_ai.routes import STEPS, UNREACHABLE, routes_of
from rllib_llm_comm.envs.overcooked_ai.rules import Cook

FAR = 10_000
"""The distance of what cannot be reached."""

_PASSING_SAVES = 1.6


class Distances:
    """Ways between the things of a kitchen, for one cook's room.

    Args:
        layout: The kitchen.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout, self._routes = layout, routes_of(layout)
        self._legs: dict[tuple[Cell, Cell], int] = {}

    def from_cook(self, cook: Cook, target: Cell) -> int:
        """Actions until a cook faces a target; `FAR` if it never can."""
        cost = self._routes.cost(cook.cell, cook.facing, target)
        return FAR if cost == UNREACHABLE else cost

    def leg(self, start: Cell, target: Cell) -> int:
        """Fewest actions from facing one thing to facing another; `FAR` if there is no way."""
        key = (start, target)
        if key not in self._legs:
            costs = [self._routes.cost(cell, facing, target) for cell, facing in self._beside(start)]
            self._legs[key] = min((cost for cost in costs if cost != UNREACHABLE), default=FAR)
        return self._legs[key]

    def _beside(self, target: Cell) -> Iterable[tuple[Cell, int]]:
        for facing, (dx, dy) in enumerate(STEPS):
            cell = (target[0] - dx, target[1] - dy)
            inside = 0 <= cell[0] < self._layout.width and 0 <= cell[1] < self._layout.height
            if inside and self._layout.kind(cell) == 0:
                yield cell, facing


@lru_cache(maxsize=32)
def distances_of(layout: Layout) -> Distances:
    """The ways of a kitchen, computed once."""
    return Distances(layout)


@lru_cache(maxsize=32)
def passing_counters(layout: Layout) -> tuple[Cell, ...]:
    """Counters over which onions should be handed: all that save much of the way from crates to pots; else none.

    Args:
        layout: The kitchen.
    """
    ways = distances_of(layout)
    crates, pots = layout.cells(ONIONS), layout.cells(POT)
    direct = min(ways.leg(crate, pot) for crate in crates for pot in pots)
    saving = []
    for counter in layout.cells(COUNTER):
        to, on = min(ways.leg(crate, counter) for crate in crates), min(ways.leg(counter, pot) for pot in pots)
        if to + on < FAR and direct > _PASSING_SAVES * (to + on + 2):
            saving.append((to + on, counter))
    return tuple(counter for _, counter in sorted(saving))
