"""The first step of a way through the believed kitchen: A* with the original's order among equal ways."""

from __future__ import annotations

import heapq

from rllib_llm_comm.envs.overcooked_text.layouts import AGENT, CELLS, DELTAS, FLOOR, SIZE, STAY

_ORDER = (0, 2, 1, 3)  # right, left, down, up: the order in which the original looks at the neighbours
IN_THE_WAY = 1
"""Mark of a cell that is neither floor nor an agent, in the search for a way."""

_WAYS = bytes(code if code in (FLOOR, AGENT) else IN_THE_WAY for code in range(256))
_CACHE: dict[tuple[bytes, int, int], int] = {}
_CACHE_SIZE = 200_000
DISTANCE = tuple(
    tuple(abs(a // SIZE - b // SIZE) + abs(a % SIZE - b % SIZE) for b in range(CELLS)) for a in range(CELLS)
)
"""Manhattan distance between two cell numbers."""


class _Node:
    """An open cell.

    Equal nodes compare as smaller both ways, so the heap's mechanics decide between them, as in the original.
    """

    __slots__ = ("cell", "cost", "estimate", "first", "occupied")

    def __init__(self, cell: int, cost: int, estimate: int, first: int, occupied: bool) -> None:
        self.cell, self.cost, self.estimate, self.first, self.occupied = cell, cost, estimate, first, occupied

    def __lt__(self, other: _Node) -> bool:
        if self.estimate != other.estimate:
            return self.estimate < other.estimate
        return self.occupied <= other.occupied


def ways_of(grid: bytes | bytearray) -> bytes:
    """State that matters for finding a way: floor, agents, and the rest, which is in the way.

    Args:
        grid: 49 cell codes.
    """
    return bytes(grid.translate(_WAYS))


def first_step(ways: bytes, start: int, target: int) -> int:
    """The first primitive action of a way from `start` to `target`.

    Other agents count as passable, but of two equally long ways the one without an agent is preferred.

    Args:
        ways: The believed map as `ways_of` gives it.
        start: Cell number where the way starts.
        target: Cell number of its end, which need not be passable.

    Returns:
        0 right, 1 down, 2 left, 3 up, or 4 when there is no way.
    """
    # There are so few different maps of ways that nearly every call is remembered.
    key = (ways, start, target)
    action = _CACHE.get(key)
    if action is None:
        if len(_CACHE) >= _CACHE_SIZE:
            _CACHE.clear()
        action = _CACHE[key] = _search(ways, start, target)
    return action


def _search(grid: bytes, start: int, target: int) -> int:
    distance = DISTANCE[target]
    visited = {start}
    heap = [_Node(start, 0, distance[start], STAY, False)]
    while heap:
        node = heapq.heappop(heap)
        for action in _ORDER:
            cell = node.cell + DELTAS[action]
            if cell in visited:
                continue
            first = action if node.cost == 0 else node.first
            if grid[cell] in (FLOOR, AGENT):
                visited.add(cell)
                cost = node.cost + 1
                heapq.heappush(heap, _Node(cell, cost, cost + distance[cell], first, grid[cell] == AGENT))
            if cell == target:
                return first
    return STAY
