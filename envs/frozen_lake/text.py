"""Textual observations of a walker: its own place and that of the other one, and no more."""

from __future__ import annotations

from rllib_llm_comm.envs.frozen_lake.rules import ACTION_NAMES, EITHER, Cell, Lake

WALKERS = ("alice", "bob")
PHRASES = tuple(name if name == "stay" else f"go {name}" for name in ACTION_NAMES)
"""The actions in words."""


def observation_text(lake: Lake, i: int) -> str:
    """Textual observation of a walker: the same numbers as in its vector."""
    mine, other = lake.cells[i], lake.cells[1 - i]
    name = WALKERS[1 - i].capitalize()
    return f"You are {WALKERS[i]}. You are at {place(mine)}. {name} is at {place(other)}."


def place(cell: Cell) -> str:
    """A cell, (x, y) from 0 at the upper left corner, in words."""
    return f"column {cell[0]}, row {cell[1]}"


def task(lake: Lake) -> str:
    """The goal of an episode in words."""
    whose = "one of the two targets each" if lake.assignment == EITHER else "your own target"
    return f"find and reach {whose} on the frozen lake without falling into a hole"


def brief(lake: Lake) -> str:
    """The game in a few sentences; where holes and targets are is nobody told."""
    slips = " The ice is slippery: a step may go to the side." if lake.slip else ""
    reward = "The first who comes to a target has it, and the other needs the other one."
    if lake.assignment != EITHER:
        reward = "Each has a target of its own."
    return (
        f"Two walkers, {WALKERS[0]} and {WALKERS[1]}, are on a frozen lake of {lake.layout.width} columns and "
        f"{lake.layout.height} rows, counted from 0 at the upper left corner. Down is to the next row. There are holes "
        "in the ice and two targets, but nobody sees them: each walker knows only where both walkers are. Who steps "
        f"into a hole is out.{slips} {reward} A reached target brings 1 point, and nothing else brings any. The two "
        "cannot stand in one cell or change places."
    )
