"""Ways in a kitchen: how many actions until a cook faces a cell, and which."""

from __future__ import annotations

from collections import deque
from functools import lru_cache

import numpy as np

from rllib_llm_comm.envs.overcooked_ai.layouts import FLOOR, Cell, Layout

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
