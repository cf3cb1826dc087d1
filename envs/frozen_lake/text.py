"""Textual observations of a walker, its own place and that of the other one and no more; and proofs of sentences.

`check_sentence` proves or disproves sentences about a moment of the lake from what the walkers know: no holes, no
targets. It understands what is said here and in planners' situations, and common other wordings. What is ambiguous or
unknown is neither true nor false.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass

from rllib_llm_comm.envs.frozen_lake.rules import ACTION_NAMES, ARRIVED, EITHER, FELL, WALKS, Cell, Lake, LakeMap

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


# ---- proofs ------------------------------------------------------------------------------------------

LONGEST = 600
"""Longer texts are not read."""
Truth = bool | None
_PLACE = r"\(?(?:column|col) (\d+)(?:,| and|, and)? row (\d+)\)?"
_END = re.compile(r"(?<=[.!])\s+")
_CELL = re.compile(_PLACE)
_FATES = (
    (WALKS, r"(?:still )?(?:walks|is walking)|is (?:still )?on the ice"),
    (ARRIVED, r"(?:has )?(?:arrived|reached)(?: at)? (?:a|the|its|her|his) (?:own )?target|has arrived"),
    (FELL, r"(?:has fallen|fell|is fallen)(?: into (?:a|the) hole)?|is in a hole"),
)


@dataclass(frozen=True)
class LakeFacts:
    """The knowledge of the walkers at a moment.

    Attributes:
        layout: The lake; only its size counts.
        cells: Cells of the walkers.
        fates: Their fates.
        seen: Cells where somebody has been in this episode.
        time: Steps so far.
        horizon: Steps of an episode.
    """

    layout: LakeMap
    cells: tuple[Cell, Cell]
    fates: tuple[str, str]
    seen: Collection[Cell]
    time: int
    horizon: int


def check_sentence(facts: LakeFacts, sentence: str) -> Truth:
    """Whether one or more sentences in English are all true at a moment; `None` if any part is not understood."""
    if len(sentence) > LONGEST:
        return None
    parts = [part.rstrip(".! ").lower() for part in _END.split(" ".join(sentence.split()))]
    truths = [_truth(facts, part) for part in parts if part]
    if not truths or None in truths:
        return None
    return all(truths)


def _truth(facts: LakeFacts, text: str) -> Truth:
    for pattern, handler in _FORMS:
        if match := pattern.fullmatch(text):
            return handler(facts, match)
    return None


def _at(facts: LakeFacts, match: re.Match[str]) -> Truth:
    return facts.cells[WALKERS.index(match[1])] == (int(match[2]), int(match[3]))


def _fate(fate: str) -> Callable[[LakeFacts, re.Match[str]], Truth]:
    def check(facts: LakeFacts, match: re.Match[str]) -> Truth:
        walker = WALKERS.index(match[1])
        there = match[2] is None or facts.cells[walker] == (int(match[2]), int(match[3]))
        return facts.fates[walker] == fate and there

    return check


def _out(facts: LakeFacts, match: re.Match[str]) -> Truth:
    return (facts.fates[WALKERS.index(match[1])] == WALKS) == (match[2] is not None)


def _step(facts: LakeFacts, match: re.Match[str]) -> Truth:
    return int(match[1]) == facts.time and (match[2] is None or int(match[2]) == facts.horizon)


def _size(facts: LakeFacts, match: re.Match[str]) -> Truth:
    return (int(match[1]), int(match[2])) == (facts.layout.width, facts.layout.height)


def _been(facts: LakeFacts, match: re.Match[str]) -> Truth:
    cells = [(int(x), int(y)) for x, y in _CELL.findall(match[2])]
    return all((cell in facts.seen) == (match[1] == "somebody") for cell in cells)


_WHO = rf"({'|'.join(WALKERS)})"
_FORMS: tuple[tuple[re.Pattern[str], Callable[[LakeFacts, re.Match[str]], Truth]], ...] = (
    (re.compile(rf"{_WHO} (?:is|stands|is standing) (?:at|in|on) {_PLACE}"), _at),
    *((re.compile(rf"{_WHO} (?:{words})(?: (?:at|in) {_PLACE})?"), _fate(fate)) for fate, words in _FATES),
    (re.compile(rf"{_WHO} is (not )?out"), _out),
    (re.compile(r"(?:it is )?step (\d+)(?: of (\d+))?"), _step),
    (re.compile(r"the lake has (\d+) columns and (\d+) rows"), _size),
    (re.compile(rf"(somebody|nobody) has been at ({_PLACE}(?:(?:, and|,| and) {_PLACE})*)"), _been),
)
