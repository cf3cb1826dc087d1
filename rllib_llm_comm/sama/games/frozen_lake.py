"""The frozen lake as planners know it: they see no more of it than the walkers do."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from rllib_llm_comm.envs.frozen_lake.checker import LakeFacts, check_sentence
from rllib_llm_comm.envs.frozen_lake.layouts import LAYOUT_NAMES, Cell
from rllib_llm_comm.envs.frozen_lake.rules import ARRIVED, WALKS
from rllib_llm_comm.envs.frozen_lake.text import WALKERS, brief, place
from rllib_llm_comm.sama.games.frozen_lake_player import FollowingWalkers
from rllib_llm_comm.sama.planning_game import PlanningGame

_WAIT = re.compile(r"(?:wait|stay|stand still|do nothing|stay put|wait here|stay here)")
_PLACE = re.compile(r"column\s+(\d+)\s*(?:,|and)?\s*row\s+(\d+)")


@dataclass(frozen=True, eq=False)
class Moment:
    """A moment of a lake.

    Attributes:
        cells: Cells of the walkers.
        fates: Their fates.
        seen: Cells where somebody has been in this episode.
        time: Steps before it.
    """

    cells: tuple[Cell, Cell]
    fates: tuple[str, str]
    seen: frozenset[Cell]
    time: int


class LakePlanning(PlanningGame):
    """Shows planners a `FrozenLake`. Where holes and targets are is nobody told, so plans are mere guesses.

    A subgoal is to go to a cell. A walker that is out, as it has fallen or arrived, can be told only to go where it is.
    """

    scenarios: ClassVar[Mapping[str, Mapping[str, Any]]] = {name: {"layout": name} for name in LAYOUT_NAMES}
    played_with: ClassVar[Mapping[str, Any]] = {"observe": ["text"]}

    def state(self) -> Moment:
        """Cells and fates of the walkers now, and the cells where somebody has been."""
        return self._moment(len(self.env.unwrapped.trail) - 1)

    def passed(self) -> list[Moment]:
        """Moments before and after the last step."""
        last = len(self.env.unwrapped.trail) - 1
        return [self._moment(number) for number in range(max(0, last - 1), last + 1)]

    def _moment(self, number: int) -> Moment:
        trail = self.env.unwrapped.trail
        cells, fates = trail[number]
        return Moment(cells, fates, frozenset(cell for there, _ in trail[: number + 1] for cell in there), number)

    def manual(self) -> str:
        """Rules of the lake."""
        return brief(self.env.unwrapped.lake)

    def scenario(self) -> str:
        """Size of the lake."""
        layout = self.env.unwrapped.lake.layout
        return f"The lake has {layout.width} columns and {layout.height} rows."

    def situation(self, state: Moment) -> str:
        """Time, and the cells where somebody has been."""
        been = ", ".join(f"({place(cell)})" for cell in sorted(state.seen))
        return f"Step {state.time} of {self.env.unwrapped.lake.horizon}. Somebody has been at {been}."

    def situation_of(self, state: Moment, agent: str) -> str:
        """Place and fate of a walker."""
        i = WALKERS.index(agent)
        ends = {WALKS: "is at", ARRIVED: "has arrived at a target at"}
        return f"{agent.capitalize()} {ends.get(state.fates[i], 'has fallen into a hole at')} {place(state.cells[i])}."

    def plain(self, state: Moment) -> Mapping[str, Any]:
        """Time, places and fates, and the cells where somebody has been."""
        walkers = zip(WALKERS, state.cells, state.fates, strict=True)
        return {
            "time": state.time,
            "walkers": {name: {"column": x, "row": y, "fate": fate} for name, (x, y), fate in walkers},
            "visited": [{"column": x, "row": y} for x, y in sorted(state.seen)],
        }

    def holds(self, state: Moment, sentence: str) -> bool | None:
        """True if a sentence is true of what the walkers know, false if it is not."""
        lake = self.env.unwrapped.lake
        facts = LakeFacts(lake.layout, state.cells, state.fates, state.seen, state.time, lake.horizon)
        return check_sentence(facts, sentence)

    def library(self, agent: str) -> list[str]:
        """All cells as places to go to."""
        return [_subgoal(cell) for cell in self.cells()]

    def parse(self, text: str) -> str | None:
        """Subgoal to go to the one cell that a text names; `None` if it names none, or several."""
        found = {(int(x), int(y)) for x, y in _PLACE.findall(text.lower())} & set(self.cells())
        return _subgoal(found.pop()) if len(found) == 1 else None

    def resolve(self, state: Moment, agent: str, text: str) -> str | None:
        """Subgoal that a text means for a walker; to wait is to go to its own cell."""
        waits = _WAIT.fullmatch(" ".join(text.lower().split()).rstrip("."))
        return _subgoal(state.cells[WALKERS.index(agent)]) if waits else self.parse(text)

    def forms(self) -> str:
        """Going to any cell, and waiting."""
        layout = self.env.unwrapped.lake.layout
        return (
            f"go to a cell by its column, 0 to {layout.width - 1}, and row, 0 to {layout.height - 1}, such as "
            f"'{_subgoal((layout.width - 1, 0))}'; wait"
        )

    def refusal(self, state: Moment, agent: str, subgoal: str) -> str:
        """Reason for which a walker that is out cannot leave its cell; empty for all others."""
        i = WALKERS.index(agent)
        if state.fates[i] == WALKS or self.meant(subgoal) == state.cells[i]:
            return ""
        return f"{agent} cannot {subgoal}, as {agent} is out and stays at {place(state.cells[i])}"

    def done(self, before: Moment, after: Moment, agent: str, subgoal: str) -> bool:
        """True if a walker has just come to the cell of its subgoal."""
        i, cell = WALKERS.index(agent), self.meant(subgoal)
        return before.cells[i] != cell and after.cells[i] == cell

    def waits(self, state: Moment, agent: str, subgoal: str) -> bool:
        """True if a walker is at the cell of its subgoal."""
        return state.cells[WALKERS.index(agent)] == self.meant(subgoal)

    def effort(self, state: Moment, agent: str, subgoal: str) -> float:
        """Manhattan distance to the cell of a subgoal."""
        (x, y), (u, v) = state.cells[WALKERS.index(agent)], self.meant(subgoal)
        return float(abs(x - u) + abs(y - v))

    def scripted(self, state: Moment) -> tuple[str, dict[str, str]]:
        """Plan by rules: each walker goes to the nearest cell where nobody has been, and no two to the same."""
        way: dict[str, Cell] = {}
        for name, here, fate in zip(WALKERS, state.cells, state.fates, strict=True):
            fresh = [cell for cell in self.cells() if cell not in state.seen and cell not in way.values()]
            out = fate != WALKS or not fresh
            way[name] = here if out else min(fresh, key=lambda cell: self.effort(state, name, _subgoal(cell)))
        return "look where nobody has been", {name: _subgoal(cell) for name, cell in way.items()}

    def shared(self) -> Sequence[Any]:
        """The layout."""
        return [self.env.unwrapped.lake.layout]

    def player(self) -> FollowingWalkers:
        """Walkers that follow their subgoals."""
        return FollowingWalkers(self)

    def cells(self) -> list[Cell]:
        """All cells of the lake."""
        layout = self.env.unwrapped.lake.layout
        return [(x, y) for y in range(layout.height) for x in range(layout.width)]

    def meant(self, subgoal: str) -> Cell:
        """The cell that a subgoal names.

        Args:
            subgoal: Of the library.
        """
        found = _PLACE.search(subgoal)
        assert found is not None
        return int(found[1]), int(found[2])


def _subgoal(cell: Cell) -> str:
    return f"go to {place(cell)}"
