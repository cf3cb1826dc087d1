"""Walkers that go where they are told, by rules."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from typing import Any, Protocol

from rllib_llm_comm.envs.frozen_lake.layouts import Cell
from rllib_llm_comm.envs.frozen_lake.rules import ARRIVED, STEPS, WALKS
from rllib_llm_comm.envs.frozen_lake.text import WALKERS
from rllib_llm_comm.sama.planning_game import State

_NO_WAY = 10**6


class SubgoalLake(Protocol):
    """A lake on which subgoals can be followed, such as `LakePlanning`."""

    env: Any

    def state(self) -> State:
        """The moment that the game is in."""

    def meant(self, subgoal: str) -> Cell:
        """The cell that a subgoal names."""

    def cells(self) -> list[Cell]:
        """All cells of the lake."""


@dataclass(frozen=True)
class FollowingWalkers:
    """Goes to the cell of its subgoal by a shortest way, then stays; knows nothing of holes and targets.

    It goes through cells where somebody has been, if there is such a way, else straight, and around the other one
    unless that has arrived. Alice chooses first. Who has to go where the other one stands or steps now waits beside it.

    Attributes:
        game: The lake.
    """

    game: SubgoalLake

    def begin(self, seed: int) -> None:
        """Nothing is remembered; the slips are part of the game."""

    def act(self, memory: Any, observations: Mapping[Any, Any]) -> dict[Any, int]:
        """The next action of each walker that is asked.

        Args:
            memory: Not used.
            observations: Of the walkers that are asked, with their `subgoal`.
        """
        state, actions = self.game.state(), {}
        cells = list(state.cells)
        for agent in sorted(observations, key=WALKERS.index):
            i = WALKERS.index(agent)
            (x, y), (u, v) = state.cells[i], self._next(state, i, str(observations[agent]["subgoal"]), cells[1 - i])
            cells[i] = u, v
            actions[agent] = STEPS.index((u - x, v - y))
        return actions

    def _next(self, state: State, i: int, subgoal: str, taken: Cell) -> Cell:
        """Next cell of a walker, if the other one stays at or goes to the cell `taken`."""
        here, other = state.cells[i], state.fates[1 - i]
        if not subgoal or state.fates[i] != WALKS:
            return here
        goal, avoided = self.game.meant(subgoal), set() if other == ARRIVED else {taken}
        steps = self._steps_to(goal, here, state.seen - avoided)
        if here not in steps:
            steps = self._steps_to(goal, here, set(self.game.cells()) - avoided)
        nearer = [cell for cell in _beside(here) if steps.get(cell, _NO_WAY) < steps.get(here, _NO_WAY)]
        if not nearer or (other == WALKS and nearer[0] == taken):
            return here
        return nearer[0]

    def _steps_to(self, goal: Cell, here: Cell, ground: Set[Cell]) -> dict[Cell, int]:
        """Steps to the goal over this ground, as if all other cells were holes; `here` is left out if it is cut off."""
        others = frozenset(self.game.cells()) - ground - {here}
        return replace(self.game.env.unwrapped.lake.layout, holes=others).distances(goal)


def _beside(cell: Cell) -> list[Cell]:
    return [(cell[0] + dx, cell[1] + dy) for dx, dy in STEPS[1:]]
