"""The lakes, and the game: two walkers on a frozen lake. Knows nothing of agents, texts or pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rllib_llm_comm.core.errors import UserError

ICE, HOLE = ".", "H"
STARTS, TARGETS = "12", "ab"
RANDOM = "random"
MOST, LEAST = 32, 3
HORIZON = 100
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
class LakeMap:
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

        Cells from where there is no way are left out.
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


def get_layout(layout: str | Sequence[str]) -> LakeMap:
    """A lake by its name, or from rows of one's own.

    Args:
        layout: "4x4" or "8x8", or rows of `.` (ice), `H` (hole), `1` and `2` (starts), `a` and `b` (targets).

    Raises:
        UserError: If the name is unknown, the rows are no lake, or a walker has no way to a target.
    """
    if isinstance(layout, str):
        return _parse(layout, _GRIDS[layout])
    return _parse("custom", tuple(str(row) for row in layout))


def random_layout(size: int, holes: float, rng: np.random.Generator) -> LakeMap:
    """A square lake with starts, targets and a share of holes anywhere; each walker has a way to each target.

    Raises:
        UserError: If no lake with so many holes has been found.
    """
    cells = [(x, y) for y in range(size) for x in range(size)]
    for _ in range(_TRIES):
        drawn = [cells[k] for k in rng.permutation(len(cells))[: 4 + round(holes * len(cells))]]
        lake = LakeMap(RANDOM, size, size, frozenset(drawn[4:]), (drawn[0], drawn[1]), (drawn[2], drawn[3]))
        if lake.solvable():
            return lake
    raise UserError(
        f"`holes` is {holes} but no lake of `size` {size} with so many holes and ways between them was found; lower it."
    )


def _parse(name: str, grid: tuple[str, ...]) -> LakeMap:
    def refuse(why: str) -> UserError:
        """The error of a map, with what is wrong with it."""
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
    lake = LakeMap(name, width, len(grid), holes, (first, second), (one, two))
    if not lake.solvable():
        raise refuse("has no way from a start to a target around the holes")
    return lake


ACTION_NAMES = ("stay", "left", "down", "right", "up")
NUM_ACTIONS = len(ACTION_NAMES)
STEPS: tuple[Cell, ...] = ((0, 0), (-1, 0), (0, 1), (1, 0), (0, -1))
FIXED, EITHER, DRAWN = "fixed", "either", "drawn"
WALKS, ARRIVED, FELL = "walks", "arrived", "fell"
FATES = (WALKS, ARRIVED, FELL)


@dataclass(frozen=True)
class LakeStep:
    """Result of one step of the lake.

    Attributes:
        rewards: Per walker 1 in the step in which it reaches a target of its own, else 0.
        events: Names of what happened, per walker: "slipped", "blocked", "arrived", "fell".
    """

    rewards: tuple[int, int]
    events: tuple[tuple[str, ...], tuple[str, ...]]


class Lake:
    """One game.

    A walker that has arrived or fallen stays where it is and is in nobody's way. Of those that walk, none enters the
    cell of one that stays there; if both want one cell, or each other's, nobody moves.

    Attributes:
        time: Steps since the start.
        cells: Cells of the walkers.
        fates: Fate of each: "walks", "arrived" or "fell".
        own: The targets that count for each walker, as indices; both, as long as they are free, for "either".

    Args:
        layout: The lake.
        slip: A move goes to its left or right side instead, each with half of this probability; 0 to 1.
        assignment: "fixed": the first target is the first walker's, the second the second's. "either": each target is
            for who comes first; the other walker needs the other one. "drawn": at each reset it is drawn whose is
            which.
        horizon: Steps of an episode, >= 1.
    """

    def __init__(self, layout: LakeMap, slip: float = 0.0, assignment: str = FIXED, horizon: int = HORIZON) -> None:
        self.layout, self.slip, self.assignment, self.horizon = layout, float(slip), assignment, horizon
        self.reset(np.random.default_rng(0))

    def reset(self, rng: np.random.Generator, layout: LakeMap | None = None) -> None:
        """Puts the walkers back to their starts, perhaps on another lake; `rng` draws targets ("drawn") and slips."""
        self.layout = layout or self.layout
        self._rng = rng
        self.time = 0
        self.cells: list[Cell] = list(self.layout.starts)
        self.fates: list[str] = [WALKS, WALKS]
        swapped = self.assignment == DRAWN and bool(rng.integers(2))
        self.own: list[tuple[int, ...]] = [(0, 1), (0, 1)]
        if self.assignment != EITHER:
            self.own = [(int(swapped),), (1 - int(swapped),)]

    @property
    def over(self) -> bool:
        """True if nobody walks any more or the time is up."""
        return self.out or self.time >= self.horizon

    @property
    def out(self) -> bool:
        """True if nobody walks any more."""
        return WALKS not in self.fates

    @property
    def solved(self) -> bool:
        """True if both have arrived."""
        return self.fates == [ARRIVED, ARRIVED]

    def step(self, actions: Sequence[int]) -> LakeStep:
        """One step of both walkers at once.

        Args:
            actions: Action of each walker, 0 to 4 (`ACTION_NAMES`); those of walkers that are out do nothing.

        Raises:
            UserError: If an action is none.
        """
        for action in actions:
            if not 0 <= int(action) < NUM_ACTIONS:
                raise UserError(f"action {action!r} is not allowed; the actions are 0 to {NUM_ACTIONS - 1}.")
        events: list[list[str]] = [[], []]
        wanted = [self._wanted(i, int(actions[i]), events[i]) for i in range(2)]
        walking = [fate == WALKS for fate in self.fates]
        clash = all(walking) and (wanted[0] == wanted[1] or wanted == [self.cells[1], self.cells[0]])
        for i in range(2):
            if clash and wanted[i] != self.cells[i]:
                events[i].append("blocked")
            elif walking[i]:
                self.cells[i] = wanted[i]
        self.time += 1
        first, second = self._settle(events)
        return LakeStep((first, second), (tuple(events[0]), tuple(events[1])))

    def _wanted(self, i: int, action: int, events: list[str]) -> Cell:
        """Next cell of a walker if it were alone."""
        if self.fates[i] != WALKS or action == 0:
            return self.cells[i]
        # Drawn for each move, so that what one walker does cannot change the other's luck.
        luck = float(self._rng.random())
        if luck < self.slip:
            events.append("slipped")
            action = (action + (0 if luck < self.slip / 2 else 2)) % 4 + 1
        (x, y), (dx, dy) = self.cells[i], STEPS[action]
        cell = (x + dx, y + dy)
        return cell if self.layout.inside(cell) else (x, y)

    def _settle(self, events: list[list[str]]) -> list[int]:
        """Marks walkers that fall or arrive in their present cells; returns the rewards."""
        rewards = [0, 0]
        for i in range(2):
            if self.fates[i] != WALKS:
                continue
            if self.cells[i] in self.layout.holes:
                self.fates[i] = FELL
                events[i].append(FELL)
                continue
            reached = next((k for k in self.own[i] if self.layout.targets[k] == self.cells[i]), None)
            if reached is not None:
                self.fates[i] = ARRIVED
                events[i].append(ARRIVED)
                rewards[i] = 1
                self.own[i] = (reached,)
                self.own[1 - i] = tuple(k for k in self.own[1 - i] if k != reached)
        return rewards

    def numbers(self) -> list[float]:
        """The whole state as shares from 0 to 1; `FrozenLake.whole` tells them."""
        width, height = self.layout.width, self.layout.height
        told = [self.time / self.horizon]
        for (x, y), fate in zip(self.cells, self.fates, strict=True):
            told += [x / width, y / height, *(float(fate == each) for each in FATES)]
        own = [{self.layout.targets[k] for k in targets} for targets in self.own]
        for cell in ((x, y) for y in range(height) for x in range(width)):
            told += [float(cell in cells) for cells in (self.layout.holes, *own)]
        return told

    def snapshot(self) -> dict[str, Any]:
        """The state as plain values, for files: `t`, `cells`, `fates` and `own`; the random numbers are left out."""
        return {
            "t": self.time,
            "cells": [list(cell) for cell in self.cells],
            "fates": list(self.fates),
            "own": [list(targets) for targets in self.own],
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Sets the state from what `snapshot` gave.

        Raises:
            UserError: If it is no state of this lake.
        """
        try:
            time, fates = int(snapshot["t"]), [str(fate) for fate in snapshot["fates"]]
            cells = [(int(x), int(y)) for x, y in snapshot["cells"]]
            own = [tuple(int(k) for k in targets) for targets in snapshot["own"]]
            if len(cells) != 2 or len(own) != 2 or len(fates) != 2:
                raise ValueError("there are two walkers")
            if time < 0 or not all(map(self.layout.inside, cells)) or not set(fates) <= set(FATES):
                raise ValueError("a walker cannot be so")
            if not {k for targets in own for k in targets} <= {0, 1}:
                raise ValueError("there are two targets")
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"this is no state of the lake {self.layout.name!r} ({error}).") from error
        self.time, self.cells, self.fates, self.own = time, cells, fates, own
