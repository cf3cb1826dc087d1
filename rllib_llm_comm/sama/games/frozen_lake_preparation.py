"""The frozen lake as the stages know it that prepare a game for planning."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict

from rllib_llm_comm.envs.frozen_lake import rules, text
from rllib_llm_comm.envs.frozen_lake.layouts import Cell
from rllib_llm_comm.envs.frozen_lake.rules import ACTION_NAMES, ARRIVED, FELL, STEPS, WALKS, Lake
from rllib_llm_comm.envs.frozen_lake.text import WALKERS
from rllib_llm_comm.sama.action_translation import Check
from rllib_llm_comm.sama.code_index import CodeIndex
from rllib_llm_comm.sama.games.frozen_lake import Moment
from rllib_llm_comm.sama.played_games import disturbed_steps
from rllib_llm_comm.sama.preparation import GamePreparation, Transition

_PATIENCE = 12
_PLACE = re.compile(r"\b(?:column|col) (\d+),? (?:and )?row (\d+)\b")
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

    @property
    def _lake(self) -> Lake:
        lake: Lake = self.game.env.unwrapped.lake
        return lake

    def code(self) -> CodeIndex:
        """The rules and the words of the lake."""
        return CodeIndex.of_files(Path(str(module.__file__)) for module in (rules, text))

    def draw(self, rng: np.random.Generator) -> Moment:
        """Two different cells, with the fates that walkers have there; at least one of them walks."""
        layout = self._lake.layout
        cells = [(x, y) for y in range(layout.height) for x in range(layout.width)]
        while True:
            first, second = (cells[k] for k in rng.permutation(len(cells))[:2])
            fates = self._fate(0, first), self._fate(1, second)
            if WALKS in fates:
                return self.place((first, second), fates)

    def _fate(self, walker: int, cell: Cell) -> str:
        layout = self._lake.layout
        if cell in layout.holes:
            return FELL
        own = {layout.targets[k] for k in self._lake.own[walker]}
        return ARRIVED if cell in own else WALKS

    def place(self, cells: tuple[Cell, Cell], fates: tuple[str, str]) -> Moment:
        """The start of an episode at which the walkers are in these cells.

        Args:
            cells: Their cells.
            fates: Their fates.
        """
        env = self.game.env.unwrapped
        env.lake.restore({**env.lake.snapshot(), "t": 0, "cells": cells, "fates": fates})
        env.trail = [(cells, fates)]
        state: Moment = self.game.state()
        return state

    def steps(self, number: int, seed: int = 0) -> Iterator[Transition]:
        """Steps of walkers that go to cells that are drawn."""
        return disturbed_steps(self.game, number, seed, _PATIENCE)

    def parts(self) -> str:
        """Places and fates."""
        layout = self._lake.layout
        return (
            f"of each walker ({', '.join(WALKERS)}) the column, 0 to {layout.width - 1}, the row, 0 to "
            f'{layout.height - 1}, and its fate: "walks", "arrived" (at its target) or "fell" (into a hole). At least '
            "one of them walks, and they are not in one cell."
        )

    def impossible(self, proposed: ProposedLake) -> str:
        """Reason against places and fates."""
        layout, walkers = self._lake.layout, proposed.walkers
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
        i, layout = WALKERS.index(agent), self._lake.layout
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
        named = {(int(x), int(y)) for x, y in _PLACE.findall(plain)}
        if len(named - {here}) == 1:
            return named - {here} == {there}
        return there == here if _STAYS.search(plain) or named == {here} else None

    return check
