"""What an agent remembers of the kitchen: the memory by which macro-actions find their way."""

from __future__ import annotations

from collections.abc import Sequence

from rllib_llm_comm.envs.overcooked_text.effects import Food, Thing
from rllib_llm_comm.envs.overcooked_text.layouts import AGENT, SIZE
from rllib_llm_comm.envs.overcooked_text.navigation import ways_of


class Belief:
    """The memory of one agent.

    A visible object is believed where it is; an unseen one where it was last seen, or at its start cell when
    the place where it was last seen is in sight and empty.

    Attributes:
        names: Names of all objects, in the order of the observation vector.
        cells: Believed cell number of each object, in that order.
        status: Believed share of the cuts done (0 to 1) of each food.
    """

    __slots__ = ("names", "cells", "status", "_codes", "_skeleton", "_own", "_map", "_ways", "_index")

    def __init__(self, things: Sequence[Thing], skeleton: bytes, own: int) -> None:
        """Starts with the full truth.

        Args:
            things: All objects in the order of the observation vector; foods first.
            skeleton: 49 codes of walls and floor.
            own: Index in `things` of the agent itself.
        """
        self.names = tuple(thing.name for thing in things)
        self.cells = [thing.cell for thing in things]
        self.status = [thing.chops / 3 for thing in things if isinstance(thing, Food)]
        self._codes = [thing.code for thing in things]
        self._skeleton = skeleton
        self._own = own
        self._map: bytearray | None = None
        self._ways: bytes | None = None
        self._index = {name: k for k, name in enumerate(self.names)}

    def where(self, name: str) -> tuple[int, int]:
        """The cell `(x, y)` where the object `name` is believed."""
        return divmod(self.cells[self._index[name]], SIZE)

    def cell(self, name: str) -> int:
        """The cell number where the object `name` is believed."""
        return self.cells[self._index[name]]

    def food_status(self, name: str) -> float:
        """Believed share of the cuts done of the food `name`, 0 to 1."""
        return self.status[self._index[name]]

    @property
    def map(self) -> bytearray:
        """49 cell codes as this agent believes them; later objects hide earlier ones. Do not change it."""
        grid = self._map
        if grid is None:
            grid = self._map = bytearray(self._skeleton)
            cells = self.cells
            for k, code in enumerate(self._codes):
                grid[cells[k]] = code
            grid[cells[self._own]] = AGENT
        return grid

    @property
    def ways(self) -> bytes:
        """The map as `navigation.first_step` reads it."""
        if self._ways is None:
            self._ways = ways_of(self.map)
        return self._ways

    @property
    def rows(self) -> list[str]:
        """The map as 7 strings of codes."""
        grid = self.map
        return ["".join(map(str, grid[x * SIZE : x * SIZE + SIZE])) for x in range(SIZE)]

    def update(
        self,
        seen: bytes,
        movable: Sequence[tuple[int, Thing]],
        start: Sequence[int],
        decay: bool,
    ) -> None:
        """Takes in what is seen after a step.

        Args:
            seen: 49 flags, 1 where a cell is in sight.
            movable: Index and object of all that can move; the foods first.
            start: Start cell of every object.
            decay: Whether the believed status of an unseen food shrinks to a third (a quirk of the original).
        """
        cells, status = self.cells, self.status
        foods = len(status)
        for k, thing in movable:
            cell, believed = thing.cell, cells[k]
            if seen[cell]:
                if cell != believed:
                    cells[k] = cell
                    self._map = self._ways = None
                if k < foods:
                    status[k] = thing.chops / 3  # type: ignore[attr-defined]
            else:
                if seen[believed] and believed != start[k]:
                    cells[k] = start[k]
                    self._map = self._ways = None
                if decay and k < foods:
                    status[k] /= 3

    def set(self, cells: Sequence[int], status: Sequence[float]) -> None:
        """Overwrites the memory, for restoring a saved state."""
        self.cells = list(cells)
        self.status = list(status)
        self._map = self._ways = None
