"""Lakes: named ones, rows of one's own, and random ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rllib_llm_comm.core.errors import UserError, require_choice

ICE, HOLE = ".", "H"
STARTS, TARGETS = "12", "ab"
RANDOM = "random"
MOST, LEAST = 32, 3
MOST_HOLES = 0.4

_GRIDS: dict[str, tuple[str, ...]] = {
    "4x4": (
        "1..2",
        ".H.H",
        "....",
        "bH.a",
    ),
    "8x8": (
        "1......2",
        "...H....",
        ".H....H.",
        "...H.H..",
        ".H......",
        "...HH.H.",
        ".H....H.",
        "b..H...a",
    ),
}
LAYOUT_NAMES = (*_GRIDS, RANDOM)
_TRIES = 2000

Cell = tuple[int, int]


@dataclass(frozen=True)
class Layout:
    """A lake.

    Attributes:
        name: Its name.
        width: Columns.
        height: Rows.
        holes: (x, y) of the holes.
        starts: First cells of the two walkers.
        targets: The two cells that they should reach.
    """

    name: str
    width: int
    height: int
    holes: frozenset[Cell]
    starts: tuple[Cell, Cell]
    targets: tuple[Cell, Cell]

    def inside(self, cell: Cell) -> bool:
        """True if a cell lies on the lake."""
        return 0 <= cell[0] < self.width and 0 <= cell[1] < self.height

    def distances(self, target: Cell) -> dict[Cell, int]:
        """Steps to a cell from everywhere, around the holes and without the other walker.

        Args:
            target: The target.

        Returns:
            Cell to steps; cells from where there is no way are left out.
        """
        found, edge = {target: 0}, [target]
        while edge:
            reached = []
            for x, y in edge:
                for cell in ((x - 1, y), (x, y + 1), (x + 1, y), (x, y - 1)):
                    if self.inside(cell) and cell not in self.holes and cell not in found:
                        found[cell] = found[x, y] + 1
                        reached.append(cell)
            edge = reached
        return found

    def solvable(self) -> bool:
        """True if each walker has a way to each target, around the holes."""
        ways = [self.distances(target) for target in self.targets]
        return all(start in way for way in ways for start in self.starts)


def get_layout(layout: str | Sequence[str]) -> Layout:
    """A lake by its name, or from rows of one's own.

    Args:
        layout: "4x4" or "8x8", or rows of `.` (ice), `H` (hole), `1` and `2` (starts), `a` and `b` (targets).

    Raises:
        UserError: If the name is unknown, the rows are no lake, or a walker has no way to a target.
    """
    if isinstance(layout, str):
        require_choice("layout", layout, LAYOUT_NAMES)
        return _parse(layout, _GRIDS[layout])
    return _parse("custom", tuple(str(row) for row in layout))


def random_layout(size: int, holes: float, rng: np.random.Generator) -> Layout:
    """A square lake with starts, targets and holes anywhere; each walker has a way to each target.

    Args:
        size: Columns and rows.
        holes: Share of the cells that are holes, rounded to whole cells.
        rng: Draws.

    Raises:
        UserError: If no lake with so many holes has been found.
    """
    cells = [(x, y) for y in range(size) for x in range(size)]
    for _ in range(_TRIES):
        drawn = [cells[k] for k in rng.permutation(len(cells))[: 4 + round(holes * len(cells))]]
        lake = Layout(RANDOM, size, size, frozenset(drawn[4:]), (drawn[0], drawn[1]), (drawn[2], drawn[3]))
        if lake.solvable():
            return lake
    raise UserError(
        f"`holes` is {holes} but no lake of `size` {size} with so many holes and ways between them was found; lower it."
    )


def _parse(name: str, grid: tuple[str, ...]) -> Layout:
    def refuse(why: str) -> UserError:
        return UserError(
            f"`layout` {list(grid)!r} {why}; give up to {MOST} rows of one length with . ice, H holes, 1 and 2 where "
            "the walkers begin, a and b where they should go."
        )

    if not grid or len(set(map(len, grid))) != 1 or not grid[0]:
        raise refuse("has rows of different lengths or none")
    if max(len(grid), len(grid[0])) > MOST:
        raise refuse("is too large")
    text, width = "".join(grid), len(grid[0])
    unknown = sorted(set(text) - {ICE, HOLE, *STARTS, *TARGETS})
    if unknown:
        raise refuse(f"holds {unknown[0]!r}")
    for symbol in STARTS + TARGETS:
        if text.count(symbol) != 1:
            raise refuse(f"does not hold {symbol} exactly once")

    def cell(index: int) -> Cell:
        return index % width, index // width

    (first, second), (one, two) = ([cell(text.index(s)) for s in symbols] for symbols in (STARTS, TARGETS))
    holes = frozenset(cell(index) for index, symbol in enumerate(text) if symbol == HOLE)
    lake = Layout(name, width, len(grid), holes, (first, second), (one, two))
    if not lake.solvable():
        raise refuse("has no way from a start to a target around the holes")
    return lake
