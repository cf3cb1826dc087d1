"""A kitchen as symbols: per cell the numbers of what is there, and one sentence for each number.

What EMMA's network looks at (Hanjie et al. 2021; SAMA's lower level): symbols have no meaning by themselves but what
the manual says about them. The paper does not list its symbols; these are ours.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numba import njit

from rllib_llm_comm.envs.overcooked_ai.kernel import (
    CELLS,
    FIELDS,
    HELD,
    IDLE,
    NOTHING,
    PLAYER,
    TOMATO,
    X,
    Y,
)
from rllib_llm_comm.envs.overcooked_ai.layouts import (
    COUNTER,
    DISHES,
    FLOOR,
    ONIONS,
    POT,
    SERVING,
    TOMATOES,
    Cell,
    Layout,
)
from rllib_llm_comm.envs.overcooked_ai.manual import manual, soup_of
from rllib_llm_comm.envs.overcooked_ai.names import capital, places_of
from rllib_llm_comm.envs.overcooked_ai.recipes import CONTENTS, SOUPS

SLOTS = ("terrain", "object", "other cook", "place", "self")
"""Meanings of the numbers of a cell, in this order; 0 is nothing."""

_SENTENCES = (
    ("floor", "Floor is where cooks walk."),
    ("counter", "A counter holds one thing."),
    ("shared counter", "A shared counter holds one thing and both rooms can reach it."),
    ("onion crate", "An onion crate gives an onion."),
    ("dish stack", "A dish stack gives a dish."),
    ("serving counter", "A serving counter takes a soup and gives points."),
    ("empty pot", "An empty pot wants three onions."),
    ("pot with one onion", "A pot with one onion wants two more."),
    ("pot with two onions", "A pot with two onions wants one more."),
    ("pot with three onions", "A pot with three onions waits to be started."),
    ("cooking pot", "A cooking pot is soon ready."),
    ("ready pot", "A ready pot has a soup for a cook with a dish."),
    ("loose onion", "A loose onion can be taken."),
    ("loose dish", "A loose dish can be taken."),
    ("loose soup", "A loose soup is in a dish and can be taken."),
    ("empty-handed other cook", "The other cook with nothing can take things."),
    ("other cook with an onion", "The other cook with an onion can put it into a pot."),
    ("other cook with a dish", "The other cook with a dish can take a soup."),
    ("other cook with a soup", "The other cook with a soup can deliver it."),
    ("empty-handed self", "You with nothing can take things."),
    ("self with an onion", "You with an onion can put it into a pot."),
    ("self with a dish", "You with a dish can take a soup."),
    ("self with a soup", "You with a soup can deliver it."),
)
# What kitchens have on top in which not only three onions bring points, after those above, which it rewords.
_REWORDED = {
    "empty pot": "An empty pot wants ingredients.",
    "pot with one onion": "A pot with one onion can take two more ingredients.",
    "pot with two onions": "A pot with two onions can take one more ingredient.",
}
_MORE = (
    ("tomato crate", "A tomato crate gives a tomato."),
    ("loose tomato", "A loose tomato can be taken."),
    ("other cook with a tomato", "The other cook with a tomato can put it into a pot."),
    ("self with a tomato", "You with a tomato can put it into a pot."),
    *(
        (f"pot with {soup_of(soup)}", f"A pot with {soup_of(soup)} does not cook yet.")
        for soup in SOUPS
        if soup not in (1, 2, 3)
    ),
)
_KINDS = TOMATO + 1
# Where in `_lookup` the symbols are of pots by contents, of loose things, of the other cook and of oneself by kind, of
# cooking and ready pots; then the cook times by contents.
_LOOSE = CONTENTS
_OTHER = _LOOSE + _KINDS
_SELF = _OTHER + _KINDS
_COOKING = _SELF + _KINDS
_READY = _COOKING + 1
_TIMES = _READY + 1
_TERRAIN_SLOT, _OBJECT_SLOT, _OTHER_SLOT, _PLACE_SLOT, _SELF_SLOT = range(len(SLOTS))
_SYMBOLS = {
    FLOOR: "floor",
    COUNTER: "counter",
    ONIONS: "onion crate",
    TOMATOES: "tomato crate",
    POT: "empty pot",
    DISHES: "dish stack",
    SERVING: "serving counter",
}


def _table(layout: Layout) -> tuple[tuple[str, str], ...]:
    """Name and sentence of each symbol that is no place; more of them where there is more to cook than onion soup."""
    if layout.classic:
        return _SENTENCES
    return (*((name, _REWORDED.get(name, sentence)) for name, sentence in _SENTENCES), *_MORE)


def first_place(layout: Layout) -> int:
    """Number of the place at the upper left corner; the other cells follow row by row."""
    return len(_table(layout)) + 1


@lru_cache(maxsize=32)
def _lookup(layout: Layout) -> np.ndarray:
    """int16: numbers of symbols, and cook times of loose soups."""
    numbers = {name: number for number, (name, _) in enumerate(_table(layout), 1)}
    things = ("", "onion", "dish", "soup", "tomato")
    found = np.zeros(_TIMES + CONTENTS, np.int16)
    counts = {0: "empty pot", 1: "pot with one onion", 2: "pot with two onions", 3: "pot with three onions"}
    for inside in (0, *SOUPS):
        found[inside] = numbers.get(counts.get(inside, f"pot with {soup_of(inside)}"), 0)
    for kind, thing in enumerate(things):
        held = f"with {'an' if thing == 'onion' else 'a'} {thing}"
        found[_LOOSE + kind] = numbers.get(f"loose {thing}", 0)
        found[_OTHER + kind] = numbers.get(f"other cook {held}" if thing else "empty-handed other cook", 0)
        found[_SELF + kind] = numbers.get(f"self {held}" if thing else "empty-handed self", 0)
    found[_COOKING], found[_READY] = numbers["cooking pot"], numbers["ready pot"]
    found[_TIMES:] = layout.recipes.times
    return found


def num_symbols(layout: Layout) -> int:
    """Number of symbols in a kitchen, 0 included."""
    return first_place(layout) + layout.terrain.size


def symbol_names(layout: Layout) -> list[str]:
    """The name of each number; the first is empty."""
    cells = ((x, y) for y in range(layout.height) for x in range(layout.width))
    return ["", *(name for name, _ in _table(layout)), *(places_of(layout).names[cell] for cell in cells)]


@lru_cache(maxsize=32)
def entity_manual(layout: Layout, dynamics: str = "old") -> tuple[str, ...]:
    """The manual of a kitchen with one sentence for each kind of symbol, and where the named places are."""
    return (*manual(layout, dynamics), *(sentence for _, sentence in _table(layout)), *_place_sentences(layout))


def _place_sentences(layout: Layout) -> list[str]:
    places = places_of(layout)
    named: list[Cell] = sorted((cell for cells in places.fixtures.values() for cell in cells), key=lambda c: c[::-1])
    return [f"{capital(places.phrases[x, y])} is at {x},{y}." for x, y in named]


@lru_cache(maxsize=32)
def static_entities(layout: Layout) -> np.ndarray:
    """int16 (H, W, 5): the symbols that never change; pots as if empty."""
    planes = np.zeros((layout.height, layout.width, len(SLOTS)), np.int16)
    shared, first = places_of(layout).shared, first_place(layout)
    numbers = {name: number for number, (name, _) in enumerate(_table(layout), 1)}
    for y in range(layout.height):
        for x in range(layout.width):
            kind = layout.kind((x, y))
            name = "shared counter" if (x, y) in shared else _SYMBOLS[kind]
            planes[y, x, _TERRAIN_SLOT] = numbers[name]
            planes[y, x, _PLACE_SLOT] = first + y * layout.width + x
    return planes


def entities(state: np.ndarray, layout: Layout) -> np.ndarray:
    """int16 (2, H, W, 5): the symbols of each cell as each player sees them, in the order of `SLOTS`."""
    out = np.empty((2, layout.height, layout.width, len(SLOTS)), np.int16)
    _fill(state, layout.terrain, static_entities(layout), _lookup(layout), out)
    return out


@njit(cache=True, nogil=True)
def _fill(state, terrain, static, lookup, out):  # type: ignore[no-untyped-def]
    width = static.shape[1]
    out[0] = static
    for cell in range(terrain.size):
        at = CELLS + 3 * cell
        kind, inside, tick = state[at], state[at + 1], state[at + 2]
        if kind == NOTHING:
            continue
        x, y = cell % width, cell // width
        if terrain[cell] == POT:
            if tick == IDLE:
                out[0, y, x, _TERRAIN_SLOT] = lookup[inside]
            else:
                out[0, y, x, _TERRAIN_SLOT] = lookup[_READY if tick >= lookup[_TIMES + inside] else _COOKING]
        else:
            out[0, y, x, _OBJECT_SLOT] = lookup[_LOOSE + kind]
    out[1] = out[0]
    for player in range(2):
        at = PLAYER + FIELDS * player
        x, y, held = state[at + X], state[at + Y], state[at + HELD]
        out[player, y, x, _SELF_SLOT] = lookup[_SELF + held]
        out[1 - player, y, x, _OTHER_SLOT] = lookup[_OTHER + held]
