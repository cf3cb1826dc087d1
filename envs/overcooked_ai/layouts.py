"""The five kitchens, those of the original package, and kitchens of one's own."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from rllib_llm_comm.core.errors import UserError, did_you_mean, require_choice
from rllib_llm_comm.envs.overcooked_ai.original import (
    PREFIX,
    OriginalRules,
    original_kitchens,
    read_layout_file,
    read_recipes,
    read_rows,
    read_state,
)
from rllib_llm_comm.envs.overcooked_ai.recipes import CLASSIC, FULL, Recipes, ingredients

FLOOR, COUNTER, ONIONS, POT, DISHES, SERVING, TOMATOES = range(7)
SYMBOLS = " XOPDST"
DYNAMICS = ("old", "new")
SUFFIX = ".layout"

_GRIDS: dict[str, tuple[str, ...]] = {
    "cramped_room": (
        "XXPXX",
        "O  2O",
        "X1  X",
        "XDXSX",
    ),
    "asymmetric_advantages": (
        "XXXXXXXXX",
        "O XSXOX S",
        "X   P 1 X",
        "X2  P   X",
        "XXXDXDXXX",
    ),
    "coordination_ring": (
        "XXXPX",
        "X 1 P",
        "D2X X",
        "O   X",
        "XOSXX",
    ),
    "forced_coordination": (
        "XXXPX",
        "O X1P",
        "O2X X",
        "D X X",
        "XXXSX",
    ),
    "counter_circuit": (
        "XXXPPXXX",
        "X  2   X",
        "D XXXX S",
        "X  1   X",
        "XXXOOXXX",
    ),
}
LAYOUT_NAMES = tuple(_GRIDS)
ORIGINAL_NAMES = {**dict(zip(LAYOUT_NAMES, LAYOUT_NAMES, strict=True)), "counter_circuit": "counter_circuit_o_1order"}
"""Names of the kitchens in the original package. Its own "counter_circuit" is another kitchen, with tomatoes."""
# Names that other code bases give to the same kitchens (2019's paper code and master).
ALIASES = {
    "simple": "cramped_room",
    "unident_s": "asymmetric_advantages",
    "random1": "coordination_ring",
    "random0": "forced_coordination",
    "random3": "counter_circuit",
    "counter_circuit_o_1order": "counter_circuit",
}

Cell = tuple[int, int]


@dataclass(frozen=True)
class Layout:
    """A kitchen.

    Attributes:
        name: Its name.
        rows: One string per row, top first: `X` counter, `O` onions, `P` pot, `D` dishes, `S` serving counter, `T`
            tomatoes, blank floor; starts are floor here.
        starts: (x, y) where player 0 and player 1 begin.
        recipes: The soups that bring points, and their cook times.
        dynamics: "old" or "new" if its description says so, else empty.
        opening: The state at the start as JSON (`SoupKitchen.snapshot`); empty: nothing lies about, all look north.
    """

    name: str
    rows: tuple[str, ...]
    starts: tuple[Cell, Cell]
    # Left out of the hash, which is asked for at every look-up.
    recipes: Recipes = field(default=CLASSIC, hash=False)
    dynamics: str = field(default="", hash=False)
    opening: str = field(default="", hash=False)

    @property
    def width(self) -> int:
        """Columns."""
        return len(self.rows[0])

    @property
    def height(self) -> int:
        """Rows."""
        return len(self.rows)

    @cached_property
    def terrain(self) -> np.ndarray:
        """int8 (height * width,): what each cell is (`FLOOR`, `COUNTER`, ...), row by row."""
        return np.array([SYMBOLS.index(symbol) for row in self.rows for symbol in row], np.int8)

    @cached_property
    def classic(self) -> bool:
        """True if it has no tomatoes and only soup of three onions brings points, 20 after 20 steps."""
        return self.recipes == CLASSIC and not self.has_tomatoes

    @cached_property
    def has_tomatoes(self) -> bool:
        """True if there is a tomato crate, or a tomato at the start."""
        return bool(TOMATOES in self.terrain) or "tomato" in self.opening

    def require_classic(self, what: str) -> None:
        """Refuses a kitchen that is not `classic`.

        Args:
            what: The part that knows of soup of three onions only, in the plural.

        Raises:
            UserError: If other soups bring points, or cook times or points differ.
        """
        if not self.classic:
            raise UserError(
                f"{what} are for kitchens in which three onions cook for 20 steps and bring 20 points, but `layout` "
                f"{self.name!r} has other orders, points, cook times or tomatoes; take one of "
                f"{', '.join(map(repr, LAYOUT_NAMES))}, or rows of your own."
            )

    def cells(self, kind: int) -> list[Cell]:
        """All (x, y) of a kind of cell, row by row."""
        return list(self._cells.get(kind, ()))

    @cached_property
    def _cells(self) -> dict[int, list[Cell]]:
        found: dict[int, list[Cell]] = {}
        for number, kind in enumerate(self.terrain.tolist()):
            found.setdefault(kind, []).append((number % self.width, number // self.width))
        return found

    def kind(self, cell: Cell) -> int:
        """Kind of a cell."""
        return int(self.terrain[cell[1] * self.width + cell[0]])


def get_layout(layout: str | Sequence[str] | Mapping[str, Any] | Layout) -> Layout:
    """A kitchen by its name, from rows of one's own, or as the original package describes it.

    Args:
        layout: A name of `LAYOUT_NAMES` or `ORIGINAL_NAMES` (or an old name in `ALIASES`); the original's name of any
            of its kitchens, with "original:" before it where the name means another kitchen here; the path of one of
            its `.layout` files; a dictionary as in such a file (`original.OriginalRules`); or rows as in `Layout`,
            with `1` and `2` where the players begin, in which only three onions bring points. A `Layout` is given back.

    Raises:
        UserError: If the name is unknown, the rows are no closed kitchen for two, the description cannot be played, or
            rows alone are of a kitchen that has other rules in the original package.
    """
    if isinstance(layout, Layout):
        return layout
    if isinstance(layout, Mapping):
        return _described(layout, str(layout.get("layout_name", "custom")))
    if isinstance(layout, str):
        name = ALIASES.get(layout, layout)
        if name in _GRIDS:
            return _parse(name, _GRIDS[name])
        if layout.endswith(SUFFIX):
            return get_layout(read_layout_file(layout))
        own = layout.removeprefix(PREFIX)
        if own not in original_kitchens():
            raise _unknown(layout)
        return _described(original_kitchens()[own], PREFIX + own if own in _GRIDS or own in ALIASES else own)
    rows = tuple(str(row) for row in layout)
    _refuse_other_rules(rows)
    return _parse("custom", rows)


def portable(layout: str | Sequence[str] | Mapping[str, Any]) -> Any:
    """A layout as plain values that mean the same on another machine: what a file says instead of its path."""
    if isinstance(layout, str):
        return read_layout_file(layout) if layout.endswith(SUFFIX) else layout
    return dict(layout) if isinstance(layout, Mapping) else list(layout)


def check_dynamics(layout: Layout, dynamics: str) -> None:
    """Refuses dynamics in which a kitchen cannot be played.

    Raises:
        UserError: If there are no such dynamics, the kitchen's description says others, or pots would have to start
            with fewer than three ingredients. (The original refuses the last, too.)
    """
    require_choice("dynamics", dynamics, DYNAMICS)
    if layout.dynamics not in ("", dynamics):
        raise UserError(
            f"`dynamics` is {dynamics!r} but `layout` {layout.name!r} says 'old_dynamics' "
            f"{layout.dynamics == 'old'}; set `dynamics={layout.dynamics!r}`."
        )
    if dynamics == "old" and any(sum(ingredients(order)) < FULL for order in layout.recipes.orders):
        raise UserError(
            f"`dynamics` is 'old' but in `layout` {layout.name!r} soups of fewer than three ingredients are ordered, "
            "and with 'old' no pot starts with fewer; set `dynamics='new'`."
        )


def _described(params: Mapping[str, Any], name: str) -> Layout:
    """A kitchen of a dictionary of the original."""
    rules = OriginalRules.checked("layout", {str(key): value for key, value in params.items()})
    recipes = read_recipes(rules)
    kitchen = _parse(name, read_rows(rules), described=True)
    opening, starts = "", kitchen.starts
    if rules.start_state:
        try:
            snapshot = read_state(rules.start_state, recipes)
            first, second = (tuple(player[:2]) for player in snapshot["players"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UserError(f"`layout` {name!r} has a 'start_state' that cannot be read ({error}).") from error
        opening, starts = json.dumps(snapshot), (first, second)
    said = {None: "", True: "old", False: "new"}[rules.old_dynamics]
    return Layout(kitchen.name, kitchen.rows, starts, recipes, said, opening)


def name_note(name: str) -> str:
    """A sentence for a name that is not the original package's name of the kitchen, else the empty text."""
    ours = ALIASES.get(name, name)
    theirs = ORIGINAL_NAMES.get(ours, name)
    if name == theirs:
        return ""
    if name == ours:
        other = f"; its own {name!r} is another kitchen, with tomatoes"
        return f"`layout` {name!r} is the kitchen called {theirs!r} in the original package{other}."
    here = f"{ours!r} here and" if ours == theirs else f"{ours!r} here and {theirs!r}"
    return f"`layout` {name!r} is the kitchen called {here} in the original package."


def _unknown(name: str) -> UserError:
    listed = ", ".join(map(repr, LAYOUT_NAMES))
    own = [*original_kitchens(), *(PREFIX + known for known in original_kitchens())]
    return UserError(
        f"`layout` is {name!r} but must be one of {listed}, the name of another kitchen of the original package, a "
        f"{SUFFIX} file, or rows of your own. (Our 'counter_circuit' is what the original package calls "
        "'counter_circuit_o_1order', which is taken, too; its own 'counter_circuit' is another kitchen, with tomatoes, "
        f"and called '{PREFIX}counter_circuit' here.){did_you_mean(name, [*LAYOUT_NAMES, *ALIASES, *own])}",
        "unknown",
    )


def _refuse_other_rules(rows: tuple[str, ...]) -> None:
    """Refuses rows alone that the original plays with other times or points: scores could not be compared."""
    for name, params in original_kitchens().items():
        if tuple(params["grid"]) == rows and read_recipes(OriginalRules.from_mapping(params)) != CLASSIC:
            raise UserError(
                f"`layout` has the rows of {name!r} of the original package, which plays with other orders, points or "
                f"cook times; rows alone mean that only three onions bring points. Set `layout={name!r}` for the "
                "original's rules, or change the rows (swap 1 and 2, for instance) for a kitchen of your own."
            )


def _parse(name: str, grid: tuple[str, ...], described: bool = False) -> Layout:
    """Reads rows; tomatoes, and kitchens without onions, are for those that a description tells what to cook."""

    def refuse(why: str) -> UserError:
        """The error of a map, with what is wrong with it."""
        return UserError(
            f"`layout` {list(grid)!r} {why}; give rows of one length with X counter, O onions, P pot, D dishes, "
            "S serving counter, T tomatoes, blank floor, and 1 and 2 where the players begin."
        )

    if not grid or len(set(map(len, grid))) != 1 or not grid[0]:
        raise refuse("has rows of different lengths or none")
    if len(grid) > 32 or len(grid[0]) > 32:
        raise refuse("is larger than 32 x 32")
    text = "".join(grid)
    unknown = sorted(set(text) - set(SYMBOLS + "12"))
    if unknown:
        raise refuse(f"holds {unknown[0]!r}")
    width, height = len(grid[0]), len(grid)
    if any(text.count(digit) != 1 for digit in "12"):
        raise refuse("does not hold 1 and 2 exactly once")
    for symbol in "PDS" if described else "OPDS":
        if symbol not in text:
            raise refuse(f"has no {symbol!r}")
    if "O" not in text and "T" not in text:
        raise refuse("has neither 'O' nor 'T'")
    if "T" in text and not described:
        raise refuse("has tomatoes but no orders; a dictionary with 'grid' and 'start_all_orders' tells them")
    border = [(x, y) for y in range(height) for x in range(width) if x in (0, width - 1) or y in (0, height - 1)]
    if any(grid[y][x] in " 12" for x, y in border):
        raise refuse("has floor on its border")
    rows = tuple(row.replace("1", " ").replace("2", " ") for row in grid)
    first, second = (text.index(digit) for digit in "12")
    return Layout(name, rows, ((first % width, first // width), (second % width, second // width)))
