"""Settings of an episode: the orders, the cooks that are told them, and the places of cooks and things at the start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rllib_llm_comm.envs.overcooked_text.layouts import (
    AGENT,
    CELLS,
    COUNTER,
    DELIVERY,
    DELTAS,
    FLOOR,
    FOOD_CODES,
    KNIFE,
    PLATE,
    SIZE,
    StartState,
    check_recipe,
    grid_start,
    start_state,
)
from rllib_llm_comm.envs.told_to import ONE, draw_told, fact_generators

MAP, RANDOM = "map", "random"
MOST_ORDERS = 1000
_WALL_COLUMN = 3


@dataclass(frozen=True)
class Setup:
    """One episode's share of what can differ.

    Attributes:
        orders: The dishes, one after the other.
        told: Per cook whether it is told the orders.
        start: Places of all cooks and things.
    """

    orders: tuple[str, ...]
    told: tuple[bool, ...]
    start: StartState


class Draws:
    """Draws the setup of episodes.

    Attributes:
        recipes: The dishes among which each order is drawn, all as likely.
    """

    def __init__(
        self,
        map_name: str,
        layout: str,
        names: Sequence[str],
        recipe: str | Sequence[str],
        told_to: str | Sequence[str],
        orders: int,
        start: str,
    ) -> None:
        """Checks that the dishes can be cooked.

        Args:
            map_name: "A", "B" or "C".
            layout: "full", "oneplate" or "tomato".
            names: Names of the cooks.
            recipe: A dish, or several.
            told_to: "all", "one" (drawn for each episode), "planner" (no cook), or names.
            orders: Number of orders of an episode.
            start: "map" or "random".

        Raises:
            UserError: If a food of a dish is not in the kitchen.
        """
        self._start = start_state(map_name, layout, len(names))
        self.recipes = (recipe,) if isinstance(recipe, str) else tuple(recipe)
        for one in self.recipes:
            check_recipe(one, layout, tuple(name for name, _ in self._start.foods))
        self._names, self._told_to = tuple(names), told_to
        self._orders, self._random_start, self._map_name = orders, start == RANDOM, map_name
        fixed = len(self.recipes) == 1 and self._told_to != ONE and not self._random_start
        self._only = self._drawn(0) if fixed else None

    def draw(self, seed: int) -> Setup:
        """The setup of the episode with this seed.

        Orders, those who are told, and the start have generators of their own: the same seed gives the same orders
        whoever is told them.

        Args:
            seed: Of the episode, >= 0.
        """
        return self._only or self._drawn(seed)

    def _drawn(self, seed: int) -> Setup:
        orders, told, start = fact_generators(seed, 3)
        return Setup(
            tuple(self.recipes[k] for k in orders.integers(len(self.recipes), size=self._orders)),
            draw_told(self._told_to, self._names, told),
            random_start(self._map_name, self._start, start) if self._random_start else self._start,
        )


def random_start(map_name: str, own: StartState, rng: np.random.Generator) -> StartState:
    """A start with the same cooks and things in other places.

    Things stand on counters along the walls, no two of them with the same floor cell in front; cooks on any floor. On
    maps B and C everything stays on the side of the middle counter on which the map has it.

    Args:
        map_name: "A", "B" or "C".
        own: The map's own start.
        rng: Source of randomness.
    """
    grid = bytearray(own.skeleton)
    sides = (0,) if map_name == "A" else (-1, 1)

    def side(cell: int) -> int:
        return 0 if map_name == "A" else int(np.sign(cell % SIZE - _WALL_COLUMN))

    walls = {cell: front for cell in range(CELLS) if (front := _front(own.skeleton, cell)) is not None}
    for room in sides:
        places = [cell for cell in walls if side(cell) == room]
        taken: set[int] = set()
        for code, cell in _codes(own):
            if side(cell) == room:
                free = [place for place in places if walls[place] not in taken]
                chosen = int(rng.choice(free))
                taken.add(walls[chosen])
                places.remove(chosen)
                grid[chosen] = code
    agents = []
    for cell in own.agents:
        floor = [c for c in range(CELLS) if grid[c] == FLOOR and side(c) == side(cell)]
        agents.append(int(rng.choice(floor)))
        grid[agents[-1]] = AGENT
    return grid_start(bytes(grid), own.skeleton, tuple(agents))


def _codes(start: StartState) -> list[tuple[int, int]]:
    """Code and cell of all things that a random start places."""
    things = [(FOOD_CODES[name], cell) for name, cell in start.foods]
    things += [(PLATE, cell) for cell in start.plates] + [(KNIFE, cell) for cell in start.knives]
    return [*things, (DELIVERY, start.delivery)]


def _front(skeleton: bytes, cell: int) -> int | None:
    """The floor cell in front of a counter along the walls, or None."""
    x, y = divmod(cell, SIZE)
    edge = (0, SIZE - 1)
    if x not in edge and y not in edge or skeleton[cell] != COUNTER:
        return None
    beside = [cell + delta for delta in DELTAS if 0 <= cell + delta < CELLS]
    fronts = [c for c in beside if skeleton[c] == FLOOR and (c // SIZE == x or c % SIZE == y)]
    return fronts[0] if fronts else None
