"""Places in a kitchen: the ways between them, in actions, and their names in words.

Names are made by rule so that kitchens of one's own have them as well. One pot is "pot"; several have a direction where
that tells them apart ("upper pot", "left onion crate") and a number where it does not. Counters are numbered row by
row. Where the cooks are in separate rooms and some counters can be used from both, those are "shared counter 1", ...
and the others "side counter 1", ...; else all are "counter 1", ...
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

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

STEPS: tuple[Cell, ...] = ((0, -1), (0, 1), (1, 0), (-1, 0))
UNREACHABLE = 10_000
"""The cost of what cannot be reached: more than any way."""
_PATHS = 200_000
Pose = tuple[Cell, int]


class Routes:
    """Distances of one kitchen, the other cook left out. Computed once per kitchen: use `routes_of`.

    A move into a free cell goes there and turns; into a blocked one it only turns.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._width = layout.width
        floor = layout.cells(FLOOR)
        self._from: dict[Pose, dict[Pose, int]] = {
            (cell, facing): self._search((cell, facing)) for cell in floor for facing in range(4)
        }
        self._nearest: dict[tuple[Cell, int, int], tuple[Cell, ...]] = {}
        self._paths: dict[tuple[Pose, Cell, frozenset[Cell]], tuple[int, ...] | None] = {}
        self._legs: dict[tuple[Cell, Cell], int] = {}
        cells = layout.width * layout.height
        self._costs = np.full((cells, 4, cells), UNREACHABLE, np.int16)
        for (cell, facing), reached in self._from.items():
            row = self._costs[self._number(cell), facing]
            for (place, way), cost in reached.items():
                target = self._number((place[0] + STEPS[way][0], place[1] + STEPS[way][1]))
                if layout.terrain[target] != FLOOR:
                    row[target] = min(cost, row[target])
                at = self._number(place)
                row[at] = min(cost, row[at])
        self._table: list[list[list[int]]] = self._costs.tolist()  # single numbers are read faster from lists

    def cost(self, cell: Cell, facing: int, target: Cell) -> int:
        """Actions until a cook faces a target (or, if it is floor, stands on it); `UNREACHABLE` if it never can."""
        width = self._width
        return self._table[cell[1] * width + cell[0]][facing][target[1] * width + target[0]]

    def leg(self, start: Cell, target: Cell) -> int:
        """Fewest actions from facing one thing to facing another; `UNREACHABLE` if there is no way."""
        if (start, target) not in self._legs:
            poses = (((start[0] - dx, start[1] - dy), facing) for facing, (dx, dy) in enumerate(STEPS))
            costs = [self.cost(*pose, target) for pose in poses if pose in self._from]
            self._legs[start, target] = min(costs, default=UNREACHABLE)
        return self._legs[start, target]

    def nearest(self, cell: Cell, facing: int, kind: int) -> tuple[Cell, ...]:
        """The cells of a kind that a cook can face, nearest first; of equally near ones the upper left first."""
        key = (cell, facing, kind)
        if key not in self._nearest:
            costs = [(self.cost(cell, facing, target), target) for target in self.layout.cells(kind)]
            reached = sorted((entry for entry in costs if entry[0] != UNREACHABLE), key=lambda entry: entry[0])
            self._nearest[key] = tuple(target for _, target in reached)
        return self._nearest[key]

    def reachable(self, cell: Cell) -> np.ndarray:
        """bool (cells,): where a cook that begins in a cell can stand, or what it can use."""
        return self._costs[self._number(cell), 0] != UNREACHABLE

    def after(self, pose: Pose, action: int, taken: frozenset[Cell] = frozenset()) -> Pose:
        """Place and direction of a cook after a move; `taken` are cells that are not free, beside the kitchen's own."""
        (x, y), _ = pose
        there = (x + STEPS[action][0], y + STEPS[action][1])
        free = self.layout.kind(there) == FLOOR and there not in taken
        return (there if free else (x, y), action)

    def path(self, pose: Pose, target: Cell, taken: frozenset[Cell] = frozenset()) -> tuple[int, ...] | None:
        """The moves of a shortest way; of several the first in the order north, south, east, west. Remembered.

        Args:
            pose: Place and direction of a cook.
            target: As of `cost`.
            taken: As of `after`.

        Returns:
            Moves, none if it is there; `None` if there is no way.
        """
        key = (pose, target, taken)
        if key not in self._paths:
            if len(self._paths) >= _PATHS:
                self._paths.clear()
            self._paths[key] = self._find_path(pose, target, taken)
        return self._paths[key]

    def _find_path(self, pose: Pose, target: Cell, taken: frozenset[Cell]) -> tuple[int, ...] | None:
        floor = self.layout.kind(target) == FLOOR

        def there(at: Pose) -> bool:
            (x, y), facing = at
            return at[0] == target if floor else (x + STEPS[facing][0], y + STEPS[facing][1]) == target

        before: dict[Pose, tuple[Pose, int] | None] = {pose: None}
        queue = deque([pose])
        while queue:
            at = queue.popleft()
            if there(at):
                moves = []
                while (step := before[at]) is not None:
                    at, move = step
                    moves.append(move)
                return tuple(moves[::-1])
            for action in range(4):
                following = self.after(at, action, taken)
                if following not in before:
                    before[following] = (at, action)
                    queue.append(following)
        return None

    def _search(self, start: Pose) -> dict[Pose, int]:
        reached = {start: 0}
        queue = deque([start])
        while queue:
            at = queue.popleft()
            for action in range(4):
                following = self.after(at, action)
                if following not in reached:
                    reached[following] = reached[at] + 1
                    queue.append(following)
        return reached

    def _number(self, cell: Cell) -> int:
        return cell[1] * self.layout.width + cell[0]


@lru_cache(maxsize=32)
def routes_of(layout: Layout) -> Routes:
    """The ways of a kitchen, computed once."""
    return Routes(layout)


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
