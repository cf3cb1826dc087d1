"""The five kitchens, and kitchens of one's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rllib_llm_comm.envs.overcooked_ai.original_layouts import original_with_other_rules
from rllib_llm_comm.errors import UserError, did_you_mean

FLOOR, COUNTER, ONIONS, POT, DISHES, SERVING = range(6)
SYMBOLS = " XOPDS"

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
        rows: One string per row, top first: `X` counter, `O` onions, `P` pot, `D` dishes, `S` serving counter, blank
            floor; starts are floor here.
        starts: (x, y) where player 0 and player 1 begin.
    """

    name: str
    rows: tuple[str, ...]
    starts: tuple[Cell, Cell]

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

    def cells(self, kind: int) -> list[Cell]:
        """All (x, y) of a kind of cell, row by row."""
        return [(int(i % self.width), int(i // self.width)) for i in np.flatnonzero(self.terrain == kind)]

    def kind(self, cell: Cell) -> int:
        """Kind of a cell."""
        return int(self.terrain[cell[1] * self.width + cell[0]])


def get_layout(layout: str | Sequence[str]) -> Layout:
    """A kitchen by its name, or from rows of one's own.

    Args:
        layout: A name of `LAYOUT_NAMES` or `ORIGINAL_NAMES` (or an old name in `ALIASES`), or rows as in `Layout`, with
            `1` and `2` where the players begin.

    Raises:
        UserError: If the name is unknown, the rows are no closed kitchen for two, or name or rows are of a kitchen that
            has other rules in the original package.
    """
    if isinstance(layout, str):
        name = ALIASES.get(layout, layout)
        _refuse_other_rules(layout)
        if name not in _GRIDS:
            raise _unknown(layout)
        return _parse(name, _GRIDS[name])
    rows = tuple(str(row) for row in layout)
    _refuse_other_rules(rows)
    return _parse("custom", rows)


def name_note(name: str) -> str:
    """A sentence for a name that is not the original package's name of the kitchen, else the empty text.

    Args:
        name: A name that `get_layout` takes.
    """
    ours = ALIASES.get(name, name)
    theirs = ORIGINAL_NAMES[ours]
    if name == theirs:
        return ""
    if name == ours:
        other = f"; its own {name!r} is another kitchen, with tomatoes"
        return f"`layout` {name!r} is the kitchen called {theirs!r} in the original package{other}."
    here = f"{ours!r} here and" if ours == theirs else f"{ours!r} here and {theirs!r}"
    return f"`layout` {name!r} is the kitchen called {here} in the original package."


def _unknown(name: str) -> UserError:
    listed = ", ".join(map(repr, LAYOUT_NAMES))
    return UserError(
        f"`layout` is {name!r} but must be one of {listed}, or rows of your own. (Our 'counter_circuit' is what the "
        "original package calls 'counter_circuit_o_1order', which is taken, too; its own 'counter_circuit' is another "
        f"kitchen, with tomatoes.){did_you_mean(name, [*LAYOUT_NAMES, *ALIASES])}"
    )


def _refuse_other_rules(layout: str | tuple[str, ...]) -> None:
    """Refuses what would be played with another cook time or other points than in the original."""
    found = original_with_other_rules(layout)
    if found is not None:
        name, difference = found
        told = "is" if isinstance(layout, str) else "has the rows of"
        raise UserError(
            f"`layout` {told} {name!r} of the original package, {difference}; here every soup cooks for 20 steps and "
            "only three onions bring points, 20, so scores could not be compared. Take one of "
            f"{', '.join(map(repr, LAYOUT_NAMES))}, or change the rows (swap 1 and 2, for instance) for a kitchen of "
            "your own by these rules."
        )


def _parse(name: str, grid: tuple[str, ...]) -> Layout:
    def refuse(why: str) -> UserError:
        return UserError(
            f"`layout` {list(grid)!r} {why}; give rows of one length with X counter, O onions, P pot, D dishes, "
            "S serving counter, blank floor, and 1 and 2 where the players begin."
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
    for symbol in SYMBOLS[2:]:
        if symbol not in text:
            raise refuse(f"has no {symbol!r}")
    border = [(x, y) for y in range(height) for x in range(width) if x in (0, width - 1) or y in (0, height - 1)]
    if any(grid[y][x] in " 12" for x, y in border):
        raise refuse("has floor on its border")
    rows = tuple(row.replace("1", " ").replace("2", " ") for row in grid)
    first, second = (text.index(digit) for digit in "12")
    return Layout(name, rows, ((first % width, first // width), (second % width, second // width)))
