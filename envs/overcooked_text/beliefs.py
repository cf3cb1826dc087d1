"""Memory of an agent about the kitchen, by which macro-actions find their way."""

from __future__ import annotations

from collections.abc import Sequence

from rllib_llm_comm.envs.overcooked_text.effects import Agent, Food, Knife, Thing
from rllib_llm_comm.envs.overcooked_text.layouts import AGENT, SIZE
from rllib_llm_comm.envs.overcooked_text.navigation import IN_THE_WAY, ways_of


class Belief:
    """The memory of one agent.

    A visible object is believed where it is; an unseen one where it was last seen, or at its start cell when
    the place where it was last seen is in sight and empty.

    Attributes:
        names: Names of all objects, in the order of the observation vector.
        cells: Believed cell number of each object, in that order.
        status: Believed share of the cuts done (0 to 1) of each food.
    """

    __slots__ = (
        "names", "cells", "status", "_codes", "_skeleton", "_own", "_map", "_ways", "_index", "_bare_ways", "_agents",
        "_items", "_start", "_decay", "_foods", "_others", "_self",
    )  # fmt: skip

    def __init__(
        self, things: Sequence[Thing], skeleton: bytes, own: int, start: Sequence[int], decay: bool = False
    ) -> None:
        """Starts with the full truth.

        Args:
            things: All objects in the order of the observation vector; foods first.
            skeleton: 49 codes of walls and floor.
            own: Index in `things` of the agent itself.
            start: Start cell of every object.
            decay: Whether the believed status of an unseen food shrinks to a third (a quirk of the original).
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
        self._agents = [k for k, thing in enumerate(things) if isinstance(thing, Agent) and k != own]
        self._items = [k for k, thing in enumerate(things) if not isinstance(thing, (Agent, Knife))]
        self._start, self._decay = start, decay
        self._foods = [(k, thing) for k, thing in enumerate(things) if isinstance(thing, Food)]
        self._self = things[own]
        self._others = [
            (k, thing) for k, thing in enumerate(things) if k != own and not isinstance(thing, (Food, Knife))
        ]
        bare = bytearray(ways_of(skeleton))
        for thing in things:
            if isinstance(thing, Knife):  # never moves
                bare[thing.cell] = IN_THE_WAY
        self._bare_ways = bytes(bare)

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
        """The map as `navigation.first_step` reads it for a way from the agent's own cell, which it leaves bare."""
        ways = self._ways
        if ways is None:
            # As `ways_of(self.map)`, without the map: what lies in the way is in the way, whatever it is.
            grid, cells = bytearray(self._bare_ways), self.cells
            here = cells[self._own]
            for k in self._items:
                if cells[k] != here:
                    grid[cells[k]] = IN_THE_WAY
            for k in self._agents:
                grid[cells[k]] = AGENT
            ways = self._ways = bytes(grid)
        return ways

    @property
    def rows(self) -> list[str]:
        """The map as 7 strings of codes."""
        grid = self.map
        return ["".join(map(str, grid[x * SIZE : x * SIZE + SIZE])) for x in range(SIZE)]

    def update(self, seen: bytes) -> None:
        """Takes in what is seen after a step.

        Args:
            seen: 49 flags, 1 where a cell is in sight.
        """
        cells, status, start = self.cells, self.status, self._start
        before, here = cells[self._own], self._self.cell
        moved = False
        if here != before:
            cells[self._own] = here
            self._map = None
        for k, food in self._foods:
            cell, believed = food.cell, cells[k]
            if seen[cell]:
                status[k] = food.chops / 3
                if cell != believed:
                    cells[k] = cell
                    moved = moved or cell != here or believed != before
            else:
                if seen[believed] and believed != start[k]:
                    cells[k], moved = start[k], True
                if self._decay:
                    status[k] /= 3
        for k, thing in self._others:
            cell, believed = thing.cell, cells[k]
            if cell != believed:
                if seen[cell]:
                    cells[k] = cell
                    moved = moved or cell != here or believed != before
                elif seen[believed] and believed != start[k]:
                    cells[k], moved = start[k], True
        if moved:  # apart from the agent and what it carries
            self._map = self._ways = None

    def set(self, cells: Sequence[int], status: Sequence[float]) -> None:
        """Overwrites the memory, for restoring a saved state."""
        self.cells = list(cells)
        self.status = list(status)
        self._map = self._ways = None
