"""The game: two walkers on a frozen lake. Knows nothing of agents, texts or pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rllib_llm_comm.core.errors import UserError, require_choice, require_number, require_whole
from rllib_llm_comm.envs.frozen_lake.layouts import Cell, Layout

ACTION_NAMES = ("stay", "left", "down", "right", "up")
NUM_ACTIONS = len(ACTION_NAMES)
STEPS: tuple[Cell, ...] = ((0, 0), (-1, 0), (0, 1), (1, 0), (0, -1))
ASSIGNMENTS = ("fixed", "either", "drawn")
FIXED, EITHER, DRAWN = ASSIGNMENTS
WALKS, ARRIVED, FELL = "walks", "arrived", "fell"
FATES = (WALKS, ARRIVED, FELL)


@dataclass(frozen=True)
class StepResult:
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
        layout: The lake.
        slip: Probability of a step to the side.
        assignment: The target that each walker has to reach; see the arguments.
        horizon: Steps of an episode.
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

    Raises:
        UserError: If a value is not allowed.
    """

    def __init__(self, layout: Layout, slip: float = 0.0, assignment: str = FIXED, horizon: int = 100) -> None:
        require_choice("assignment", assignment, ASSIGNMENTS)
        require_number("slip", slip, 0, 1)
        require_whole("horizon", horizon, 1)
        self.layout, self.slip, self.assignment, self.horizon = layout, float(slip), assignment, horizon
        self.reset(np.random.default_rng(0))

    def reset(self, rng: np.random.Generator, layout: Layout | None = None) -> None:
        """Puts the walkers back to their starts.

        Args:
            rng: Draws the targets (for "drawn") and from now on the slips.
            layout: Another lake.
        """
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

    def step(self, actions: Sequence[int]) -> StepResult:
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
        return StepResult((first, second), (tuple(events[0]), tuple(events[1])))

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

        Args:
            snapshot: `t`, `cells`, `fates` and `own`.

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
