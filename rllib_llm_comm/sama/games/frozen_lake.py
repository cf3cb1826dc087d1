"""The frozen lake as planners know it: they see no more of it than the walkers do."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict

from rllib_llm_comm.envs.frozen_lake.rules import ACTION_NAMES, ARRIVED, FELL, LAYOUT_NAMES, STEPS, WALKS, Cell, Lake
from rllib_llm_comm.envs.frozen_lake.text import WALKERS, LakeFacts, brief, check_sentence, place
from rllib_llm_comm.sama.planned_env import disturbed_steps
from rllib_llm_comm.sama.planning_game import PlanningGame, RulePlayer, State
from rllib_llm_comm.sama.preparation import Check, CodeIndex, GamePreparation, Transition
from rllib_llm_comm.sama.recordings import recorded_code

_NO_WAY = 10**6


class FollowingWalkers(RulePlayer):
    """Goes to the cell of its subgoal by a shortest way, then stays; knows nothing of holes and targets.

    It goes through cells where somebody has been, if there is such a way, else straight, and around the other one
    unless that has arrived. Alice chooses first. Who has to go where the other one stands or steps now waits beside it.
    """

    game: LakePlanning

    def actions(self, observations: Mapping[Any, Mapping[str, Any]]) -> dict[Any, int]:
        """The next action of each walker that is asked, the one after the other."""
        state, actions = self.game.state(), {}
        cells = list(state.cells)
        for agent in sorted(observations, key=WALKERS.index):
            i = WALKERS.index(agent)
            (x, y), (u, v) = state.cells[i], self._next(state, i, str(observations[agent]["subgoal"]), cells[1 - i])
            cells[i] = u, v
            actions[agent] = STEPS.index((u - x, v - y))
        return actions

    def action(self, agent: str, seen: Mapping[str, Any]) -> int:
        """The next action of a walker if no other one is asked."""
        return self.actions({agent: seen})[agent]

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
        return replace(self.game.lake.layout, holes=others).distances(goal)


def _beside(cell: Cell) -> list[Cell]:
    return [(cell[0] + dx, cell[1] + dy) for dx, dy in STEPS[1:]]


_WAIT = re.compile(r"(?:wait|stay|stand still|do nothing|stay put|wait here|stay here)")
_PLACE = re.compile(r"column\s+(\d+)\s*(?:,|and)?\s*row\s+(\d+)")


@dataclass(frozen=True, eq=False)
class Moment:
    """A moment of a lake.

    Attributes:
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

    @property
    def lake(self) -> Lake:
        """The lake itself."""
        lake: Lake = self.env.unwrapped.lake
        return lake

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
        return brief(self.lake)

    def scenario(self) -> str:
        """Size of the lake."""
        layout = self.lake.layout
        return f"The lake has {layout.width} columns and {layout.height} rows."

    def situation(self, state: Moment) -> str:
        """Time, and the cells where somebody has been."""
        been = ", ".join(f"({place(cell)})" for cell in sorted(state.seen))
        return f"Step {state.time} of {self.lake.horizon}. Somebody has been at {been}."

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
        lake = self.lake
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
        layout = self.lake.layout
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
        return [self.lake.layout]

    def player(self) -> FollowingWalkers:
        """Walkers that follow their subgoals."""
        return FollowingWalkers(self)

    def cells(self) -> list[Cell]:
        """All cells of the lake."""
        layout = self.lake.layout
        return [(x, y) for y in range(layout.height) for x in range(layout.width)]

    def meant(self, subgoal: str) -> Cell:
        """The cell that a subgoal names."""
        found = _PLACE.search(subgoal)
        assert found is not None
        return int(found[1]), int(found[2])


def _subgoal(cell: Cell) -> str:
    return f"go to {place(cell)}"


_PATIENCE = 12
_PLACES = re.compile(r"\b(?:column|col) (\d+),? (?:and )?row (\d+)\b")
_STAYS = re.compile(r"\b(?:stays?|nothing|no effect|not move|does not change|off the lake)\b")


class Walker(BaseModel):
    """The place of a walker."""

    model_config = ConfigDict(json_schema_extra={"description": "Where a walker is, and whether it is out."})

    walker: str
    column: int
    row: int
    fate: Literal["walks", "arrived", "fell"] = "walks"


class ProposedLake(BaseModel):
    """A situation."""

    walkers: list[Walker]


class ProposedLakes(BaseModel):
    """Situations that differ."""

    states: list[ProposedLake]


class LakePreparation(GamePreparation):
    """Shows a frozen lake to the stages.

    The model that proposes a state does not know the lake. A walker that it calls fallen or arrived is so wherever it
    puts it; all places where somebody has been are those of the walkers now.
    """

    to_tell: ClassVar[str] = (
        "Say of each player at which column and row it is, and whether it walks, has arrived at a target or has fallen "
        "into a hole."
    )
    course: ClassVar[str] = "from its start until nobody walks any more"
    form: ClassVar[type[BaseModel] | None] = ProposedLakes

    game: LakePlanning

    def code(self) -> CodeIndex:
        """The rules and the words of the lake."""
        return recorded_code("lake_source")

    def draw(self, rng: np.random.Generator) -> Moment:
        """Two different cells, with the fates that walkers have there; at least one of them walks."""
        cells = self.game.cells()
        while True:
            first, second = (cells[k] for k in rng.permutation(len(cells))[:2])
            fates = self._fate(0, first), self._fate(1, second)
            if WALKS in fates:
                return self.place((first, second), fates)

    def _fate(self, walker: int, cell: Cell) -> str:
        layout = self.game.lake.layout
        if cell in layout.holes:
            return FELL
        own = {layout.targets[k] for k in self.game.lake.own[walker]}
        return ARRIVED if cell in own else WALKS

    def place(self, cells: tuple[Cell, Cell], fates: tuple[str, str]) -> Moment:
        """The start of an episode at which the walkers are in these cells."""
        env = self.game.env.unwrapped
        env.lake.restore({**env.lake.snapshot(), "t": 0, "cells": cells, "fates": fates})
        env.trail = [(cells, fates)]
        return self.game.state()

    def steps(self, number: int, seed: int = 0) -> Iterator[Transition]:
        """Steps of walkers that go to cells that are drawn."""
        return disturbed_steps(self.game, number, seed, _PATIENCE)

    def parts(self) -> str:
        """Places and fates."""
        layout = self.game.lake.layout
        return (
            f"of each walker ({', '.join(WALKERS)}) the column, 0 to {layout.width - 1}, the row, 0 to "
            f'{layout.height - 1}, and its fate: "walks", "arrived" (at its target) or "fell" (into a hole). At least '
            "one of them walks, and they are not in one cell."
        )

    def impossible(self, proposed: ProposedLake) -> str:
        """Reason against places and fates."""
        layout, walkers = self.game.lake.layout, proposed.walkers
        if sorted(one.walker for one in walkers) != sorted(WALKERS):
            return f"each of {', '.join(WALKERS)} must be named once in a situation"
        for one in walkers:
            if not layout.inside((one.column, one.row)):
                return f"there is no column {one.column}, row {one.row}"
        if len({(one.column, one.row) for one in walkers}) < len(walkers):
            return "two walkers cannot be in one cell"
        return "" if any(one.fate == WALKS for one in walkers) else "nobody walks any more"

    def put(self, proposed: ProposedLake, rng: np.random.Generator) -> Moment:
        """The proposed state; nothing is drawn."""
        alice, bob = sorted(proposed.walkers, key=lambda one: WALKERS.index(one.walker))
        return self.place(((alice.column, alice.row), (bob.column, bob.row)), (alice.fate, bob.fate))

    def actions(self, state: Moment, agent: str) -> Mapping[str, Check]:
        """The five actions; what they do is where they lead without a slip and with the other one out of the way."""
        i, layout = WALKERS.index(agent), self.game.lake.layout
        found = {}
        for number, (name, (dx, dy)) in enumerate(zip(ACTION_NAMES, STEPS, strict=True)):
            x, y = state.cells[i]
            there = (x + dx, y + dy) if state.fates[i] == WALKS else (x, y)
            found[f"action {number}: {name}"] = _leads_to(there if layout.inside(there) else (x, y), (x, y))
        return found


def _leads_to(there: Cell, here: Cell) -> Check:
    """Check of words for an action that leads from one cell to another or leaves a walker where it is."""

    def check(words: str) -> bool | None:
        plain = words.lower()
        named = {(int(x), int(y)) for x, y in _PLACES.findall(plain)}
        if len(named - {here}) == 1:
            return named - {here} == {there}
        return there == here if _STAYS.search(plain) or named == {here} else None

    return check
