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
    COOK_TIME,
    FIELDS,
    FULL,
    HELD,
    IDLE,
    NOTHING,
    PLAYER,
    X,
    Y,
)
from rllib_llm_comm.envs.overcooked_ai.layouts import COUNTER, DISHES, FLOOR, ONIONS, POT, SERVING, Cell, Layout
from rllib_llm_comm.envs.overcooked_ai.manual import manual
from rllib_llm_comm.envs.overcooked_ai.names import places_of

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
_NUMBER = {name: number for number, (name, _) in enumerate(_SENTENCES, 1)}
_POT, _OBJECT = _NUMBER["empty pot"], _NUMBER["loose onion"] - 1
_OTHER, _SELF = _NUMBER["empty-handed other cook"], _NUMBER["empty-handed self"]
_COOKING, _READY = _NUMBER["cooking pot"], _NUMBER["ready pot"]
FIRST_PLACE = len(_SENTENCES) + 1
"""Number of the place at the upper left corner; the other cells follow row by row."""
_TERRAIN_SLOT, _OBJECT_SLOT, _OTHER_SLOT, _PLACE_SLOT, _SELF_SLOT = range(len(SLOTS))
_SYMBOLS = {FLOOR: "floor", COUNTER: "counter", ONIONS: "onion crate", DISHES: "dish stack", SERVING: "serving counter"}


def num_symbols(layout: Layout) -> int:
    """Number of symbols in a kitchen, 0 included.

    Args:
        layout: The kitchen.
    """
    return FIRST_PLACE + layout.terrain.size


def symbol_names(layout: Layout) -> list[str]:
    """The name of each number; the first is empty.

    Args:
        layout: The kitchen.
    """
    cells = ((x, y) for y in range(layout.height) for x in range(layout.width))
    return ["", *(name for name, _ in _SENTENCES), *(places_of(layout).names[cell] for cell in cells)]


@lru_cache(maxsize=32)
def entity_manual(layout: Layout, dynamics: str = "old") -> tuple[str, ...]:
    """The manual of a kitchen with one sentence for each kind of symbol, and where the named places are.

    Args:
        layout: The kitchen.
        dynamics: "old" or "new"; see `rllib_llm_comm.envs.overcooked_ai.rules.Kitchen`.
    """
    return (*manual(layout, dynamics), *(sentence for _, sentence in _SENTENCES), *_place_sentences(layout))


def _place_sentences(layout: Layout) -> list[str]:
    places = places_of(layout)
    named: list[Cell] = sorted((cell for cells in places.fixtures.values() for cell in cells), key=lambda c: c[::-1])
    return [f"{_capital(places.phrases[x, y])} is at {x},{y}." for x, y in named]


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


@lru_cache(maxsize=32)
def static_entities(layout: Layout) -> np.ndarray:
    """int16 (H, W, 5): the symbols that never change; pots as if empty.

    Args:
        layout: The kitchen.
    """
    planes = np.zeros((layout.height, layout.width, len(SLOTS)), np.int16)
    shared = places_of(layout).shared
    for y in range(layout.height):
        for x in range(layout.width):
            kind = layout.kind((x, y))
            name = "shared counter" if (x, y) in shared else _SYMBOLS.get(kind, "")
            planes[y, x, _TERRAIN_SLOT] = _POT if kind == POT else _NUMBER[name]
            planes[y, x, _PLACE_SLOT] = FIRST_PLACE + y * layout.width + x
    return planes


def entities(state: np.ndarray, layout: Layout) -> np.ndarray:
    """int16 (2, H, W, 5): the symbols of each cell as each player sees them, in the order of `SLOTS`.

    Args:
        state: int16 (S,); see `rllib_llm_comm.envs.overcooked_ai.kernel`.
        layout: The kitchen.
    """
    out = np.empty((2, layout.height, layout.width, len(SLOTS)), np.int16)
    _fill(state, layout.terrain, static_entities(layout), out)
    return out


@njit(cache=True, nogil=True)
def _fill(state, terrain, static, out):  # type: ignore[no-untyped-def]
    width = static.shape[1]
    out[0] = static
    for cell in range(terrain.size):
        at = CELLS + 3 * cell
        kind, onions, tick = state[at], state[at + 1], state[at + 2]
        if kind == NOTHING:
            continue
        x, y = cell % width, cell // width
        if terrain[cell] == POT:
            if tick == IDLE:
                out[0, y, x, _TERRAIN_SLOT] = _POT + min(onions, FULL)
            else:
                out[0, y, x, _TERRAIN_SLOT] = _READY if tick == COOK_TIME else _COOKING
        else:
            out[0, y, x, _OBJECT_SLOT] = _OBJECT + kind
    out[1] = out[0]
    for player in range(2):
        at = PLAYER + FIELDS * player
        x, y, held = state[at + X], state[at + Y], state[at + HELD]
        out[player, y, x, _SELF_SLOT] = _SELF + held
        out[1 - player, y, x, _OTHER_SLOT] = _OTHER + held
