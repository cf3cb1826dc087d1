"""Maps, layouts, recipes and rewards of the textual 7x7 kitchen: the data that the rules work on.

A cell is `(x, y)`: x is the row and grows downwards, y is the column and grows to the right. Inside the
package a cell is mostly the single number `x * 7 + y`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Literal, get_args

import numpy as np
from pydantic import Field

from rllib_llm_comm.core.errors import LARGEST, UserError
from rllib_llm_comm.core.settings import Settings
from rllib_llm_comm.envs.told_to import ONE, draw_told, fact_generators

SIZE = 7
CELLS = SIZE * SIZE

FLOOR, COUNTER, AGENT, TOMATO, LETTUCE, PLATE, KNIFE, DELIVERY, ONION = range(9)

FOOD_CODES = {"tomato": TOMATO, "lettuce": LETTUCE, "onion": ONION}
"""Code of each food, in the order of the observation vector."""

MAPS: dict[str, tuple[str, ...]] = {
    "A": ("1111131", "6020204", "6000008", "7000001", "1000001", "1000005", "1111151"),
    "B": ("1111131", "6021204", "6001008", "7001001", "1001001", "1001005", "1111151"),
    "C": ("1111131", "6021204", "6001008", "7001001", "1001001", "1000005", "1111151"),
}
"""Start grids of two agents in layout "full"."""

SHARED_COUNTER_ROWS: dict[str, tuple[int, ...]] = {"A": (), "B": (3, 2, 4, 1, 5), "C": (3, 2, 4, 1)}
"""Rows of the counter in column 3 that divides the rooms, in the order of "go to counter"."""

LAYOUTS: dict[str, tuple[tuple[int, int], ...]] = {
    "full": (),
    "oneplate": ((5, 6),),
    "tomato": ((5, 6), (1, 6), (2, 6), (2, 0)),
}
"""The cells that each layout turns into plain counter."""

Recipe = Literal[
    "tomato salad",
    "lettuce salad",
    "onion salad",
    "lettuce-tomato salad",
    "onion-tomato salad",
    "lettuce-onion salad",
    "lettuce-onion-tomato salad",
]
RECIPES: tuple[Recipe, ...] = get_args(Recipe)
_Amount = Annotated[float, Field(ge=-LARGEST, le=LARGEST)]


class Rewards(Settings):
    """What the kitchen pays; the defaults are Verco's."""

    chop: _Amount = 0.2
    """For a chopped food that the recipe needs, shared."""
    correct_delivery: _Amount = 1.0
    """For the dish that was ordered, shared."""
    wrong_delivery: _Amount = -0.1
    """For any other delivery, shared."""
    collision: _Amount = -0.01
    """For a move into a floor cell that failed, charged to who chose it."""
    step: _Amount = -0.001
    """For each game step, shared."""


DEFAULT_REWARDS: dict[str, float] = Rewards().to_dict()

MOVES = ("right", "down", "left", "up")
STAY = 4
DELTAS = (1, SIZE, -1, -SIZE)
"""Change of the cell number by each move."""


def recipe_foods(recipe: str) -> tuple[str, ...]:
    """The foods that a dish needs, in the order of its name."""
    return tuple(recipe.removesuffix(" salad").split("-"))


@dataclass(frozen=True, slots=True)
class StartState:
    """Start of an episode: the places of all cooks and things.

    Attributes:
        grid: 49 cell codes.
        skeleton: 49 codes with the walls and the floor only.
        foods: Food name and cell, in the order of the observation vector.
        plates: Cells of the plates, row by row.
        knives: Cells of the cutting boards, row by row.
        delivery: Cell of the delivery hatch.
        agents: Cells of the agents.
    """

    grid: bytes
    skeleton: bytes
    foods: tuple[tuple[str, int], ...]
    plates: tuple[int, ...]
    knives: tuple[int, ...]
    delivery: int
    agents: tuple[int, ...]


@lru_cache(maxsize=64)
def start_state(map_name: str, layout: str, num_agents: int) -> StartState:
    """The start of a map; the same object for the same arguments."""
    rows = [[int(code) for code in row] for row in MAPS[map_name]]
    for x, y in LAYOUTS[layout]:
        rows[x][y] = COUNTER
    if num_agents == 1:
        # TWOSOME's single cook stands on the right of map A in its two small layouts.
        leaves = (1, 2) if map_name == "A" and layout != "full" else (1, 4)
        rows[leaves[0]][leaves[1]] = FLOOR
    if num_agents == 3:
        rows[5][2] = AGENT
    walls = {x * SIZE + 3 for x in SHARED_COUNTER_ROWS[map_name]}
    border = {c for c in range(CELLS) if c // SIZE in (0, SIZE - 1) or c % SIZE in (0, SIZE - 1)}
    skeleton = bytes(COUNTER if cell in border or cell in walls else FLOOR for cell in range(CELLS))
    return grid_start(bytes(code for row in rows for code in row), skeleton)


@lru_cache(maxsize=4096)
def grid_start(grid: bytes, skeleton: bytes, agents: tuple[int, ...] | None = None) -> StartState:
    """The start that a grid of cell codes shows, with agents in some order, or else numbered row by row."""

    def cells(code: int) -> tuple[int, ...]:
        return tuple(cell for cell in range(CELLS) if grid[cell] == code)

    foods = tuple((name, found[0]) for name, code in FOOD_CODES.items() if (found := cells(code)))
    return StartState(grid, skeleton, foods, cells(PLATE), cells(KNIFE), cells(DELIVERY)[0], agents or cells(AGENT))


@lru_cache(maxsize=8)
def windows(radius: int) -> tuple[bytes, ...]:
    """Per cell 49 bytes: 1 where a cell within `radius` (Chebyshev distance, walls do not hide; 0: any) is seen."""

    def seen(a: int, b: int) -> bool:
        (ax, ay), (bx, by) = divmod(a, SIZE), divmod(b, SIZE)
        return radius == 0 or (abs(ax - bx) <= radius and abs(ay - by) <= radius)

    return tuple(bytes(seen(a, b) for b in range(CELLS)) for a in range(CELLS))


@lru_cache(maxsize=8)
def _fronts(skeleton: bytes) -> dict[int, int]:
    """The counters along the walls that have floor beside them, with the first such floor cell."""
    found, edge = {}, (0, SIZE - 1)
    for cell in range(CELLS):
        x, y = divmod(cell, SIZE)
        beside = [cell + delta for delta in DELTAS if 0 <= cell + delta < CELLS]
        fronts = [c for c in beside if skeleton[c] == FLOOR and (c // SIZE == x or c % SIZE == y)]
        if fronts and (x in edge or y in edge):
            found[cell] = fronts[0]
    return found


def nearest_free_counter(grid: bytearray, skeleton: bytes, near: int) -> int:
    """The free counter along the walls, with floor in front of it, that is nearest to a cell.

    There are always more such counters than objects.
    """
    x, y = divmod(near, SIZE)
    free = [cell for cell in _fronts(skeleton) if grid[cell] == COUNTER]
    return min(free, key=lambda cell: (abs(cell // SIZE - x) + abs(cell % SIZE - y), cell))


def check_recipe(recipe: str, layout: str, foods: tuple[str, ...]) -> None:
    """Raises a `UserError` unless `recipe` can be cooked with the `foods` of `layout`."""
    missing = [food for food in recipe_foods(recipe) if food not in foods]
    if missing:
        possible = [name for name in RECIPES if set(recipe_foods(name)) <= set(foods)]
        raise UserError(
            f"`recipe` is {recipe!r}, but the layout {layout!r} has no {' and no '.join(missing)}; "
            f"use one of {possible} or `layout='full'`."
        )


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
        """Takes the settings of an environment, and the names of its cooks.

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
    """
    grid = bytearray(own.skeleton)
    sides = (0,) if map_name == "A" else (-1, 1)

    def side(cell: int) -> int:
        return 0 if map_name == "A" else int(np.sign(cell % SIZE - _WALL_COLUMN))

    walls = _fronts(own.skeleton)
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
