"""Subgoals of one cook: in words and back, whether one can be begun now, and whether a step has done it.

They are what SAMA ("Semantically Aligned Task Decomposition in Multi-Agent RL") plans with and rewards: one use of one
place by one cook, or a cell to go to. SAMA's longer ones ("takes an onion from the storage and brings it to the bar")
are two of ours. The paper lets a language model write the tests of completion, which its listings 25 and 26 show to be
uncertain; ours are exact.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.files import read_foreign_json
from rllib_llm_comm.core.places import local_path
from rllib_llm_comm.envs.interface import MAX_SUBGOAL
from rllib_llm_comm.envs.overcooked_ai.checker import ITEM, PLACE, named_places, plain, thing
from rllib_llm_comm.envs.overcooked_ai.kernel import FACING, FIELDS, HELD, PLAYER, X, Y
from rllib_llm_comm.envs.overcooked_ai.layouts import COUNTER, DISHES, FLOOR, ONIONS, POT, SERVING, Cell, Layout
from rllib_llm_comm.envs.overcooked_ai.places import STEPS, Places, places_of
from rllib_llm_comm.envs.overcooked_ai.planner import Task
from rllib_llm_comm.envs.overcooked_ai.rules import (
    ADD,
    DELIVER,
    KIND_NAMES,
    PLATE,
    PUT,
    TAKE,
    Cook,
    SoupKitchen,
    effect,
)

GO = "go"
VERBS = (TAKE, PUT, ADD, PLATE, DELIVER, GO)
NOTHING, ONION, DISH, SOUP, TOMATO = KIND_NAMES
KINDS = (ONION, DISH, SOUP)


@dataclass(frozen=True)
class Subgoal:
    """Subgoal of one cook.

    Attributes:
        verb: "take" (from a crate, stack or counter), "put" (onto a counter), "add" (an onion to a pot), "plate" (a
            soup out of a pot), "deliver" or "go".
        kind: Item to take, put down or bring: "onion", "dish", "soup"; empty for "go".
        cell: The place; floor for "go".
    """

    verb: str
    kind: str
    cell: Cell


# ---- which there are ---------------------------------------------------------------------------------------


def library(layout: Layout, player: int) -> list[Subgoal]:
    """All subgoals that a player could ever reach in a kitchen, ordered by verb, kind and place."""
    return list(_library(layout, player))


def pots_in_use(layout: Layout) -> tuple[Cell, ...]:
    """The pots that cooks can fill and empty, row by row."""
    found = {one.cell for player in range(2) for one in library(layout, player) if one.verb == PLATE}
    return tuple(cell for cell in layout.cells(POT) if cell in found)


def all_subgoals(layout: Layout) -> list[Subgoal]:
    """The subgoals of both players, each once, in the same order: a subgoal's index here is its number."""
    return list(_numbers(layout))


def subgoal_number(layout: Layout, subgoal: Subgoal) -> int:
    """The index of a subgoal in `all_subgoals`."""
    return _numbers(layout)[subgoal]


@lru_cache(maxsize=32)
def holdable(layout: Layout) -> tuple[frozenset[str], frozenset[str]]:
    """Per player the kinds of things that it could ever hold, by itself or handed over a counter."""
    reach = _reach(layout)
    sources = ((ONION, ONIONS), (DISH, DISHES))
    kinds = [{kind for kind, source in sources if any(c in cells for c in layout.cells(source))} for cells in reach]
    handed = any(cell in reach[0] and cell in reach[1] for cell in layout.cells(COUNTER))
    if handed:
        kinds[0] = kinds[1] = kinds[0] | kinds[1]
    fed = {pot for i in range(2) if ONION in kinds[i] for pot in layout.cells(POT) if pot in reach[i]}
    soups = [DISH in kinds[i] and not fed.isdisjoint(reach[i]) for i in range(2)]
    for i in range(2):
        if soups[i] or (handed and any(soups)):
            kinds[i] = kinds[i] | {SOUP}
    return frozenset(kinds[0]), frozenset(kinds[1])


def _reach(layout: Layout) -> list[frozenset[Cell]]:
    return [places_of(layout).reachable(start) for start in layout.starts]


@lru_cache(maxsize=64)
def _library(layout: Layout, player: int) -> dict[Subgoal, None]:
    """Library of subgoals as a dictionary, for the order and for fast membership."""
    reach, kinds = _reach(layout)[player], holdable(layout)[player]
    cells = {place: [c for c in layout.cells(place) if c in reach] for place in range(SERVING + 1)}
    fixtures = {ONION: cells[ONIONS], DISH: cells[DISHES], SOUP: []}
    found = [Subgoal(GO, "", cell) for cell in cells[FLOOR]]
    for kind in kinds:
        found += [Subgoal(TAKE, kind, cell) for cell in [*fixtures[kind], *cells[COUNTER]]]
        found += [Subgoal(PUT, kind, cell) for cell in cells[COUNTER]]
    if ONION in kinds:
        found += [Subgoal(ADD, ONION, pot) for pot in cells[POT]]
    if DISH in kinds:
        fed = [pot for pot in cells[POT] if can_be_fed(layout, pot)]
        found += [Subgoal(PLATE, SOUP, pot) for pot in fed]
    if SOUP in kinds:
        found += [Subgoal(DELIVER, SOUP, cell) for cell in cells[SERVING]]
    return dict.fromkeys(_ordered(found))


@lru_cache(maxsize=32)
def _numbers(layout: Layout) -> dict[Subgoal, int]:
    both = {*_library(layout, 0), *_library(layout, 1)}
    return {subgoal: number for number, subgoal in enumerate(_ordered(both))}


def _ordered(subgoals: Iterable[Subgoal]) -> list[Subgoal]:
    def key(subgoal: Subgoal) -> tuple[int, int, int, int]:
        kind = KINDS.index(subgoal.kind) if subgoal.kind else 0
        return VERBS.index(subgoal.verb), kind, subgoal.cell[1], subgoal.cell[0]

    return sorted(subgoals, key=key)


def can_be_fed(layout: Layout, pot: Cell) -> bool:
    """True if any cook could ever put an onion into a pot."""
    return any(ONION in kinds and pot in cells for kinds, cells in zip(holdable(layout), _reach(layout), strict=True))


# ---- words -------------------------------------------------------------------------------------------------


def subgoal_text(layout: Layout, subgoal: Subgoal) -> str:
    """A subgoal in words, such as "fetch an onion from the left onion crate"; no other of the kitchen has the same.

    They are the words of the goals that cooks choose among (`text.target_phrases`).
    """
    place, kind = places_of(layout).phrases[subgoal.cell], subgoal.kind
    return {
        TAKE: f"fetch {'an' if kind == ONION else 'a'} {kind} from {place}",
        PUT: f"put the {kind} on {place}",
        ADD: f"put the {kind} into {place}",
        PLATE: f"fill the dish with the {kind} from {place}",
        DELIVER: f"deliver the {kind} at {place}",
        GO: f"go to {place}",
    }[subgoal.verb]


_OF_PLACE = rf"(?P<place>(?:the )?{PLACE})"
_A_DISH = r"(?:(?:an?|the|1|your|my) )?(?:empty )?dish"
# What is said, and what it means at which kind of place. `plain` turns "a dish with the soup" into "a plated soup".
_FORMS: tuple[tuple[re.Pattern[str], dict[int, str]], ...] = tuple(
    (re.compile(pattern), verbs)
    for pattern, verbs in (
        (
            rf"(?:fetch|take|get|grab|collect|pick up) (?P<item>{ITEM}) (?:from|off|out of|at|in|on) {_OF_PLACE}",
            {ONIONS: TAKE, DISHES: TAKE, COUNTER: TAKE, POT: PLATE},
        ),
        (
            rf"(?:put|place|set|drop|lay|add) (?P<item>{ITEM}) (?:into|in|onto|on|to|at) {_OF_PLACE}",
            {COUNTER: PUT, POT: ADD, SERVING: DELIVER},
        ),
        (
            rf"fill (?:(?:(?:an?|the|1) )?plated (?P<item>soup)|{_A_DISH}(?: with (?P<what>{ITEM}))?)"
            rf" (?:from|at|in|out of) {_OF_PLACE}",
            {POT: PLATE},
        ),
        (rf"(?:deliver|serve|bring) (?P<item>{ITEM}) (?:at|to|on) {_OF_PLACE}", {SERVING: DELIVER}),
        (rf"(?:go|walk|move) (?:over )?to {_OF_PLACE}", {FLOOR: GO}),
    )
)


def parse_subgoal(layout: Layout, text: str) -> Subgoal | None:
    """The subgoal that a text names: the reverse of `subgoal_text`.

    Reads other articles, capitals, a full stop, and the other words for things and places that `checker` knows too, but
    no text of more than 300 characters.

    Returns:
        A subgoal of one of the players, or `None` if the text names none or more than one.
    """
    if len(text) > MAX_SUBGOAL:
        return None
    exact = subgoals_by_text(layout).get(" ".join(text.lower().split()).removesuffix("."))
    if exact is not None:
        return exact
    words = (plain(text) or "").removesuffix(" .")
    for pattern, verbs in _FORMS:
        if match := pattern.fullmatch(words):
            return _meant(layout, match.groupdict(), verbs)
    return None


@lru_cache(maxsize=32)
def subgoals_by_text(layout: Layout) -> dict[str, Subgoal]:
    """The subgoals of both players by their words (`subgoal_text`)."""
    return {subgoal_text(layout, subgoal): subgoal for subgoal in _numbers(layout)}


def _meant(layout: Layout, groups: dict[str, str | None], verbs: dict[int, str]) -> Subgoal | None:
    place = _one_place(places_of(layout), groups["place"] or "")
    verb = verbs.get(place[0]) if place is not None else None
    if place is None or verb is None:
        return None
    item = groups.get("item") or groups.get("what")
    kind = _one_thing(item) if item else {GO: "", PLATE: SOUP}.get(verb)
    subgoal = Subgoal(verb, kind, place[1]) if kind is not None else None
    return subgoal if subgoal in _numbers(layout) else None


def _one_place(places: Places, phrase: str) -> tuple[int, Cell] | None:
    """The kind and cell of the one place that a phrase can mean."""
    found = named_places(places, phrase)
    if found is None or len(found[1].things) != 1 or found[1].how not in ("the", "any"):
        return None
    return found[0], found[1].things[0]


def _one_thing(phrase: str) -> str | None:
    """The kind of the one thing that a phrase says; a soup that still cooks cannot be had."""
    said = thing(phrase)
    if said is None or said.kind not in KINDS or said.number not in (None, 1) or said.onions is not None:
        return None
    return None if phrase.endswith("s") or said.of_three or "cooking" in said.how else said.kind


def task_subgoal(task: Task) -> Subgoal:
    """Subgoal of a scripted task; to wait is to go to the waiting place."""
    return Subgoal(GO if task.verb == "wait" else task.verb, task.kind, task.cell)


# ---- before and after --------------------------------------------------------------------------------------


def possible(kitchen: SoupKitchen, player: int, subgoal: Subgoal) -> bool:
    """True if a player could set about a subgoal now: its hands and the place are as the subgoal wants them.

    To "plate" wants a dish in the hands and a soup that cooks or is ready. To "go" wants a cell where nobody stands.
    Whether the other cook is in the way is left out.
    """
    return subgoal in _library(kitchen.layout, player) and _fits(kitchen, _cooks(kitchen), player, subgoal)


def possible_subgoals(kitchen: SoupKitchen, player: int) -> list[Subgoal]:
    """All subgoals of a player that are possible now, in the order of `library`."""
    cooks = _cooks(kitchen)
    return [subgoal for subgoal in _library(kitchen.layout, player) if _fits(kitchen, cooks, player, subgoal)]


def _cooks(kitchen: SoupKitchen) -> tuple[Cook, Cook]:
    return kitchen.cook(0), kitchen.cook(1)


def _fits(kitchen: SoupKitchen, cooks: tuple[Cook, Cook], player: int, subgoal: Subgoal) -> bool:
    if subgoal.verb == GO:
        return subgoal.cell not in (cooks[0].cell, cooks[1].cell)
    held = cooks[player].held
    if (NOTHING if held is None else held.kind) != _needed(subgoal):
        return False
    if subgoal.verb == PLATE:
        soup = kitchen.item(subgoal.cell)
        return soup is not None and soup.tick >= 0
    lying = kitchen.item(subgoal.cell)
    if subgoal.verb == TAKE and lying is not None and lying.kind != subgoal.kind:
        return False
    return effect(kitchen, held, subgoal.cell) == subgoal.verb


def _needed(subgoal: Subgoal) -> str:
    """Item that must be in the hands."""
    return {TAKE: NOTHING, PLATE: DISH}.get(subgoal.verb, subgoal.kind)


def completed(before: np.ndarray, after: np.ndarray, player: int, subgoal: Subgoal) -> bool:
    """True if a player has done a subgoal in one game step: the reward function that SAMA needs.

    The two states tell it exactly, whatever the other cook does in the same step. A cook's hands change by its own
    interact only, at most once per step, and who interacts neither moves nor turns: so what changed in the hands is
    what it did, and the cell that it faced before is where. What lies there afterwards is not looked at, since the
    other cook may have taken or changed it in the same step. To "go" is done in the step of arriving.

    Args:
        before: `SoupKitchen.state` before the step; a copy, as a step changes it in place.
        after: The state right after that step.
        player: 0 or 1.
        subgoal: A subgoal of that kitchen.
    """
    at = PLAYER + FIELDS * player
    place = (int(before[at + X]), int(before[at + Y]))
    if subgoal.verb == GO:
        return place != subgoal.cell and (int(after[at + X]), int(after[at + Y])) == subgoal.cell
    hands = (KIND_NAMES[before[at + HELD]], KIND_NAMES[after[at + HELD]])
    if hands != (_needed(subgoal), subgoal.kind if subgoal.verb in (TAKE, PLATE) else NOTHING):
        return False
    dx, dy = STEPS[before[at + FACING]]
    return (place[0] + dx, place[1] + dy) == subgoal.cell


def waited(before: np.ndarray, after: np.ndarray, player: int, subgoal: Subgoal) -> bool:
    """True if a player that should "go" where it stands already has stayed there for one game step, idle.

    Planners let cooks wait like that. Its place, the way it looks and its hands must be as before; the arguments are
    those of `completed`.
    """
    at = PLAYER + FIELDS * player
    if subgoal.verb != GO or (int(before[at + X]), int(before[at + Y])) != subgoal.cell:
        return False
    return bool((before[at : at + FIELDS] == after[at : at + FIELDS]).all())


MOST_BYTES = 16 * 2**20
"""Largest file of subgoals."""
_MADE_BY = "make one with `rllib planning subgoals`"


def kitchen_record(layout: Layout) -> dict[str, Any]:
    """Record of a file's kitchen, JSON-able."""
    return {"layout": layout.name, "rows": list(layout.rows), "starts": [list(start) for start in layout.starts]}


def read_subgoal_file(path: str | os.PathLike[str], layout: Layout) -> frozenset[Subgoal]:
    """The subgoals of a file.

    Args:
        path: A JSON file with the `kitchen` as `kitchen_record` gives it and the list `subgoals`, each an object whose
            `subgoal` is one in words.
        layout: The kitchen that is played.

    Raises:
        UserError: If there is no such file, it holds no subgoals or those of another kitchen, or one cannot be read.
    """
    named = f"`subgoal_file` is {str(path)!r}"
    file = local_path(path, "subgoal_file")
    try:
        record = read_foreign_json(file, MOST_BYTES)
        kitchen, texts = dict(record["kitchen"]), [str(entry["subgoal"]) for entry in record["subgoals"]]
    except OSError as error:
        raise UserError(f"{named}, which cannot be read ({error.strerror}); {_MADE_BY}.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{named}, which is no data set of subgoals ({type(error).__name__}); {_MADE_BY}.") from error
    if kitchen != kitchen_record(layout):
        raise UserError(
            f"{named}, which is of the kitchen {kitchen.get('layout')!r} with the rows {kitchen.get('rows')!r}, but "
            f"`layout` is {layout.name!r} with {list(layout.rows)!r}; give the file of this kitchen."
        )
    found = {text: parse_subgoal(layout, text) for text in texts}
    unknown = [text for text, subgoal in found.items() if subgoal is None]
    if unknown:
        raise UserError(f"{named}, whose {unknown[0]!r} is no subgoal of {layout.name!r}; remove or correct it.")
    if not found:
        raise UserError(f"{named}, which has no subgoals; {_MADE_BY}.")
    return frozenset(subgoal for subgoal in found.values() if subgoal is not None)
