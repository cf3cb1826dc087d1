"""Names in words for the cells of a kitchen, made by rule so that kitchens of one's own have them as well.

One pot is "pot"; several have a direction where that tells them apart ("upper pot", "left onion crate") and a number
where it does not. Counters are numbered row by row. Where the cooks are in separate rooms and some counters can be used
from both, those are "shared counter 1", ... and the others "side counter 1", ...; else all are "counter 1", ...
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from rllib_llm_comm.envs.overcooked_ai.layouts import (
    COUNTER,
    DISHES,
    FLOOR,
    ONIONS,
    POT,
    SERVING,
    TOMATOES,
    Cell,
    Layout,
)
from rllib_llm_comm.envs.overcooked_ai.routes import STEPS

COOKS = ("alice", "bob")
KIND_WORDS = {
    ONIONS: "onion crate",
    TOMATOES: "tomato crate",
    POT: "pot",
    DISHES: "dish stack",
    SERVING: "serving counter",
    COUNTER: "counter",
}
SHARED, SIDE = "shared counter", "side counter"


@dataclass(frozen=True)
class Places:
    """The named places of a kitchen.

    Attributes:
        names: A name per cell, without article; "floor x,y" for floor and "wall x,y" for what no cook can use.
        phrases: The same with "the" where the name has no number.
        cells: The cell of each name.
        fixtures: Per kind of cell those that a cook can use, row by row.
        shared: Counters that can be used from both rooms; empty where the cooks are in one room.
        room_of: Floor cells to the number of their room.
        reach: Per room, the floor of the room and the cells that can be used from it.
        room_names: "left room", ... of the cooks' rooms; empty where both begin in one room.
    """

    names: dict[Cell, str]
    phrases: dict[Cell, str]
    cells: dict[str, Cell]
    fixtures: dict[int, tuple[Cell, ...]]
    shared: tuple[Cell, ...]
    room_of: dict[Cell, int]
    reach: tuple[frozenset[Cell], ...]
    room_names: dict[int, str]

    def reachable(self, cell: Cell) -> frozenset[Cell]:
        """Cells that a cook in a cell can go to or use; the other cook left out."""
        return self.reach[self.room_of[cell]]


@lru_cache(maxsize=32)
def places_of(layout: Layout) -> Places:
    """The named places of a kitchen, computed once."""
    room_of, reach = _rooms(layout)
    mine, theirs = (room_of[start] for start in layout.starts)
    usable = reach[mine] | reach[theirs]
    fixtures = {kind: tuple(cell for cell in layout.cells(kind) if cell in usable) for kind in KIND_WORDS}
    shared: tuple[Cell, ...] = ()
    if mine != theirs:
        shared = tuple(cell for cell in fixtures[COUNTER] if cell in reach[mine] and cell in reach[theirs])
    names: dict[Cell, str] = {}
    for kind, word in KIND_WORDS.items():
        if kind != COUNTER:
            names.update(_fixture_names(layout, fixtures[kind], word))
    if shared:
        names.update(_numbered(shared, SHARED))
        names.update(_numbered([cell for cell in fixtures[COUNTER] if cell not in shared], SIDE))
    else:
        names.update(_numbered(fixtures[COUNTER], KIND_WORDS[COUNTER]))
    for x, y in ((x, y) for y in range(layout.height) for x in range(layout.width)):
        names.setdefault((x, y), f"{'floor' if layout.kind((x, y)) == FLOOR else 'wall'} {x},{y}")
    return Places(
        names,
        {cell: the(name) for cell, name in names.items()},
        {name: cell for cell, name in names.items()},
        fixtures,
        shared,
        room_of,
        reach,
        _room_names(layout, room_of),
    )


def find_place(layout: Layout, name: str) -> Cell | None:
    """The cell of a name, with or without "the": the reverse of `Places.names`; `None` if no cell has it."""
    return places_of(layout).cells.get(" ".join(name.lower().split()).removeprefix("the "))


def capital(text: str) -> str:
    """A text with a capital letter at its beginning."""
    return text[0].upper() + text[1:]


def the(name: str) -> str:
    """A name with its article: "the pot", but "counter 3"."""
    return name if name[-1].isdigit() else f"the {name}"


def _rooms(layout: Layout) -> tuple[dict[Cell, int], tuple[frozenset[Cell], ...]]:
    room_of: dict[Cell, int] = {}
    reach: list[frozenset[Cell]] = []
    for start in layout.cells(FLOOR):
        if start in room_of:
            continue
        room_of[start] = len(reach)
        found, todo = {start}, [start]
        while todo:
            x, y = todo.pop()
            for dx, dy in STEPS:
                cell = (x + dx, y + dy)
                if cell not in found:
                    found.add(cell)
                    if layout.kind(cell) == FLOOR:
                        room_of[cell] = len(reach)
                        todo.append(cell)
        reach.append(frozenset(found))
    return room_of, tuple(reach)


def _room_names(layout: Layout, room_of: dict[Cell, int]) -> dict[int, str]:
    rooms = [room_of[start] for start in layout.starts]
    if rooms[0] == rooms[1]:
        return {}
    middles = []
    for room in rooms:
        cells = [cell for cell, number in room_of.items() if number == room]
        middles.append([sum(cell[axis] for cell in cells) / len(cells) for axis in range(2)])
    (x, y), (other_x, other_y) = middles
    if (x, y) == (other_x, other_y):
        words = [f"{cook}'s room" for cook in COOKS]
    elif abs(x - other_x) >= abs(y - other_y):
        words = ["left room", "right room"] if x < other_x else ["right room", "left room"]
    else:
        words = ["upper room", "lower room"] if y < other_y else ["lower room", "upper room"]
    return dict(zip(rooms, words, strict=True))


def _fixture_names(layout: Layout, cells: Sequence[Cell], word: str) -> dict[Cell, str]:
    words = _sides(layout, cells) or _directions(cells)
    if words is None:
        return _numbered(cells, word)
    return {cell: f"{direction} {word}" for cell, direction in zip(cells, words, strict=True)}


def _sides(layout: Layout, cells: Sequence[Cell]) -> list[str] | None:
    """Directions of cells that all lie in different outer walls."""

    def side(cell: Cell) -> str:
        """The outer wall in which a usable cell lies; empty for none. None is a corner, so it is one at most."""
        x, y = cell
        # No usable cell is a corner, so it lies in one wall at most.
        by_wall = {"left": x == 0, "right": x == layout.width - 1, "upper": y == 0, "lower": y == layout.height - 1}
        return next((word for word, at_wall in by_wall.items() if at_wall), "")

    words = [side(cell) for cell in cells]
    return words if len(words) > 1 and "" not in words and len(set(words)) == len(words) else None


def _directions(cells: Sequence[Cell]) -> list[str] | None:
    """Directions of two cells, seen from each other."""
    if len(cells) != 2:
        return None
    (x, y), (other_x, other_y) = cells
    across, down = abs(x - other_x), abs(y - other_y)
    if across == down:
        return None
    if down > across:
        return ["upper", "lower"]
    return ["left", "right"] if x < other_x else ["right", "left"]


def _numbered(cells: Sequence[Cell], word: str) -> dict[Cell, str]:
    if len(cells) == 1:
        return {cells[0]: word}
    return {cell: f"{word} {number}" for number, cell in enumerate(cells, 1)}
