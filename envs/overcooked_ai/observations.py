"""Observations of agents: their parts and the spaces of these; the kitchen as symbols; numbers of the wanted pot.

Symbols are what EMMA's network looks at (Hanjie et al. 2021; SAMA's lower level): per cell the numbers of what is
there, and one sentence for each number. They have no meaning by themselves but what the manual says about them. The
paper does not list its symbols; these are ours.

Where a pot is wanted everything has the same shape for every cook. Which pot it is is in it only for who is told; where
soups came from is in it for both, as both saw it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from gymnasium import spaces
from numba import njit

from rllib_llm_comm.envs.interface import entity_spaces, text_spaces
from rllib_llm_comm.envs.overcooked_ai import text
from rllib_llm_comm.envs.overcooked_ai.encoding import NUM_CHANNELS, NUM_FEATURES
from rllib_llm_comm.envs.overcooked_ai.kernel import CELLS, FIELDS, HELD, IDLE, NOTHING, PLAYER, TOMATO, X, Y
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
from rllib_llm_comm.envs.overcooked_ai.places import capital, places_of
from rllib_llm_comm.envs.overcooked_ai.recipes import CONTENTS, SOUPS
from rllib_llm_comm.envs.overcooked_ai.rules import SoupKitchen
from rllib_llm_comm.envs.overcooked_ai.subgoals import pots_in_use
from rllib_llm_comm.envs.overcooked_ai.text import manual, soup_of, wanted_rules
from rllib_llm_comm.envs.overcooked_ai.wanted import WantedPot

DEFAULT_PARTS = ("vector", "text")
VECTORS = ("features", "planes")
_LARGEST = 64


def observation_space(kitchen: SoupKitchen, parts: tuple[str, ...], vector: str, num_actions: int) -> spaces.Dict:
    """The space of an agent's observations: those of the settings `observe` and `vector`."""

    layout = kitchen.layout
    size = (layout.width, layout.height, NUM_CHANNELS)
    length = NUM_FEATURES if vector == "features" else int(np.prod(size))
    slots, symbols = len(SLOTS), num_symbols(layout)
    largest = max(_LARGEST, *layout.recipes.times)
    if kitchen.wanted is not None:
        size = (layout.width, layout.height, NUM_CHANNELS + WANTED_PLANES)
        length = NUM_FEATURES + count_wanted_numbers(layout) if vector == "features" else int(np.prod(size))
        slots, symbols = slots + 1, symbols + count_wanted_symbols(layout)
    make: dict[str, Callable[[], dict[str, spaces.Space[Any]]]] = {
        "vector": lambda: {"vector": spaces.Box(-largest, largest, (length,), np.float32)},
        "text": lambda: text_spaces(num_actions),
        "planes": lambda: {"planes": spaces.Box(0, largest, size, np.uint8)},
        "state": lambda: {"state": spaces.Box(0, largest, (int(np.prod(size)),), np.float32)},
        "entities": lambda: entity_spaces((layout.height, layout.width, slots), symbols),
    }
    chosen = {name: space for part in parts for name, space in make[part]().items()}
    return spaces.Dict({**chosen, "action_mask": spaces.Box(0, 1, (num_actions,), np.int8)})


def whole_space(kitchen: SoupKitchen) -> spaces.Box:
    """The space of `whole`."""
    space: spaces.Box = observation_space(kitchen, ("state",), VECTORS[0], 1)["state"]  # type: ignore[assignment]
    return space


def whole(kitchen: SoupKitchen) -> np.ndarray:
    """The whole game, float32 (n,): the planes of player 0 as a vector, with the wanted pot whoever is told."""
    return _planes(kitchen)[1].reshape(-1).astype(np.float32)


def observations(
    kitchen: SoupKitchen,
    parts: tuple[str, ...],
    vector: str,
    soups: int,
    masks: Sequence[np.ndarray],
    phrases: Callable[[int], list[str]],
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Observations of both players.

    Args:
        kitchen: The game.
        parts: As of `observation_space`.
        vector: As of `observation_space`.
        soups: Soups that brought points so far.
        masks: Action mask per player.
        phrases: Gives the candidate phrases of a player (asked only if there is text).
    """
    seen: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
    in_planes = vector == "planes"
    if "vector" in parts and not in_planes:
        rows = kitchen.features().astype(np.float32)
        for i in range(2):
            seen[i]["vector"] = rows[i] if kitchen.wanted is None else np.append(rows[i], wanted_numbers(kitchen, i))
    if in_planes or "planes" in parts or "state" in parts:
        planes, whole = _planes(kitchen)
        if in_planes and "vector" in parts:
            flat = planes.astype(np.float32).reshape(2, -1)
            seen[0]["vector"], seen[1]["vector"] = flat[0], flat[1]
        if "planes" in parts:
            seen[0]["planes"], seen[1]["planes"] = planes[0], planes[1]
        if "state" in parts:  # the same for both: as player 0 sees it
            state = whole.reshape(-1).astype(np.float32)
            seen[0]["state"], seen[1]["state"] = state, state.copy()
    if "entities" in parts:
        told, symbols = _symbols(kitchen)
        for i in range(2):
            seen[i].update(entities=symbols[i], manual=told, subgoal="")
    if "text" in parts:
        for i in range(2):
            words = text.observation_text(kitchen, i, soups)
            seen[i].update(text=words, candidates=tuple(phrases(i)), subgoal="")
    seen[0]["action_mask"], seen[1]["action_mask"] = masks
    return seen


def _planes(kitchen: SoupKitchen) -> tuple[np.ndarray, np.ndarray]:
    """uint8 (2, W, H, C): what each player sees, and (W, H, C): the whole game, as player 0 sees it."""
    planes, wanted = kitchen.lossless().view(np.uint8), kitchen.wanted
    if wanted is None:
        return planes, planes[0]
    own = np.stack([wanted_planes(kitchen, told) for told in wanted.told])
    whole = np.concatenate([planes[0], wanted_planes(kitchen, told=True)], axis=-1)
    return np.concatenate([planes, own], axis=-1), whole


def _symbols(kitchen: SoupKitchen) -> tuple[str, np.ndarray]:
    """The manual, and int16 (2, H, W, K): the symbols of each cell as each player sees them."""
    symbols = entities(kitchen.state, kitchen.layout)
    if kitchen.wanted is not None:
        symbols = with_wanted_symbols(symbols, kitchen, first=num_symbols(kitchen.layout))
    return manual_of(kitchen), symbols


def manual_of(kitchen: SoupKitchen) -> str:
    """The part `manual` of observations, the same for the whole game."""
    sentences = entity_manual(kitchen.layout, kitchen.dynamics)
    if kitchen.wanted is not None:
        symbols = wanted_symbol_sentences(kitchen.layout)
        sentences = (*sentences, *wanted_rules(kitchen.wanted), *symbols)
    return " ".join(sentences)


# ---- the kitchen as symbols --------------------------------------------------------------------------

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


# ---- numbers of the wanted pot -----------------------------------------------------------------------

WANTED_PLANES = 2
"""Planes more than in the original: the wanted pot, and the number (1, 2, ...) of the pot of each soup outside."""
WANTED_SLOT = "wanted"
"""The slot of `entities` that comes on top, before "self"."""


def count_wanted_numbers(layout: Layout) -> int:
    """Length of the list that `wanted_numbers` gives."""
    return 3 * len(pots_in_use(layout))


def wanted_numbers(kitchen: SoupKitchen, player: int) -> np.ndarray:
    """float32 (3 * pots,): one-hot the wanted pot (zeros for who is not told), the pot of the soup in the own hands,
    and of that in the other's.
    """
    wanted = _wanted(kitchen)
    blocks = [wanted.pot if wanted.told[player] else None, wanted.origins.get(player), wanted.origins.get(1 - player)]
    return np.array([float(pot == there) for there in blocks for pot in wanted.pots], np.float32)


def wanted_planes(kitchen: SoupKitchen, told: bool) -> np.ndarray:
    """uint8 (W, H, 2): 1 at the wanted pot, if it is told; the number of its pot where a soup outside of pots is."""
    wanted, layout = _wanted(kitchen), kitchen.layout
    out = np.zeros((layout.width, layout.height, WANTED_PLANES), np.uint8)
    if told:
        x, y = wanted.pot
        out[x, y, 0] = 1
    for (x, y), number in _soups(kitchen):
        out[x, y, 1] = number + 1
    return out


# ---- symbols of the wanted pot -----------------------------------------------------------------------


def count_wanted_symbols(layout: Layout) -> int:
    """Number of symbols on top of those of `entities`: the wanted pot, and a soup from each pot."""
    return 1 + len(pots_in_use(layout))


@lru_cache(maxsize=32)
def wanted_symbol_sentences(layout: Layout) -> tuple[str, ...]:
    """One sentence for each of these symbols."""
    phrases = places_of(layout).phrases
    soups = [f"A soup from {phrases[pot]} brings points while that pot is wanted." for pot in pots_in_use(layout)]
    return ("The wanted pot is the one whose soups bring points.", *soups)


def with_wanted_symbols(symbols: np.ndarray, kitchen: SoupKitchen, first: int) -> np.ndarray:
    """int16 (2, H, W, K + 1): the map of symbols with the slot `WANTED_SLOT` before the last.

    Args:
        symbols: int16 (2, H, W, K); see `rllib_llm_comm.envs.overcooked_ai.observations`.
        kitchen: The game, with a wanted pot.
        first: The number of the first symbol that comes on top.
    """
    wanted = _wanted(kitchen)
    own = np.zeros(symbols.shape[:3], np.int16)
    for player in range(2):
        if wanted.told[player]:
            own[player, wanted.pot[1], wanted.pot[0]] = first
    for (x, y), number in _soups(kitchen):
        own[:, y, x] = first + 1 + number
    return np.concatenate([symbols[..., :-1], own[..., None], symbols[..., -1:]], axis=-1)


def _soups(kitchen: SoupKitchen) -> list[tuple[Cell, int]]:
    """Cell and number of the pot of each soup outside of pots; one in the hands is where its cook stands."""
    wanted = _wanted(kitchen)
    return [
        (kitchen.cook(where).cell if isinstance(where, int) else where, wanted.pots.index(pot))
        for where, pot in wanted.origins.items()
    ]


def _wanted(kitchen: SoupKitchen) -> WantedPot:
    assert kitchen.wanted is not None
    return kitchen.wanted
