"""Numbers that a player sees, as in Overcooked-AI: the 26 channels of the lossless encoding and the 96 features."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numba import njit

from rllib_llm_comm.envs.overcooked_ai.kernel import (
    CELLS,
    DISH,
    FACING,
    FIELDS,
    HELD,
    HELD_CONTENTS,
    IDLE,
    NOTHING,
    ONION,
    PLAYER,
    SOUP,
    TIMES,
    TOMATO,
    WIDTH,
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
from rllib_llm_comm.envs.overcooked_ai.places import Routes, routes_of
from rllib_llm_comm.envs.overcooked_ai.recipes import FULL, TOMATO_SHIFT, TOMATO_UNIT

NUM_CHANNELS = 26
NUM_FEATURES = 96
URGENT_STEPS = 40
CHANNELS = (
    ("own cell", "partner's cell")
    + tuple(f"own facing {way}" for way in ("north", "south", "east", "west"))
    + tuple(f"partner's facing {way}" for way in ("north", "south", "east", "west"))
    + ("pots", "counters", "onion dispensers", "tomato dispensers", "dish dispensers", "serving counters")
    + ("onions in an idle pot", "tomatoes in an idle pot", "onions in a soup", "tomatoes in a soup")
    + ("cooking steps left", "soup is ready", "dishes", "onions", "tomatoes", "little time left")
)
_POT_PLANE, _COUNTER_PLANE, _ONION_PLANE, _TOMATO_PLANE, _DISH_PLANE, _SERVING_PLANE = range(10, 16)
_IDLE_ONIONS, _IDLE_TOMATOES, _SOUP_ONIONS, _SOUP_TOMATOES, _STEPS_LEFT, _READY = range(16, 22)
_LOOSE_DISH, _LOOSE_ONION, _LOOSE_TOMATO, _URGENT = range(22, 26)
_BLOCK = 46
_POTS = 2
_HOLDABLE = 5  # nothing, onion, dish, soup, tomato


def static_planes(layout: Layout) -> np.ndarray:
    """int8 (W, H, 26): what never changes of a kitchen."""
    planes = np.zeros((layout.width, layout.height, NUM_CHANNELS), np.int8)
    kinds = {POT: _POT_PLANE, COUNTER: _COUNTER_PLANE, ONIONS: _ONION_PLANE, DISHES: _DISH_PLANE}
    for kind, plane in {**kinds, SERVING: _SERVING_PLANE, TOMATOES: _TOMATO_PLANE}.items():
        for x, y in layout.cells(kind):
            planes[x, y, plane] = 1
    return planes


@njit(cache=True, nogil=True, inline="always")
def _put(mine, theirs, x, y, plane, number):  # type: ignore[no-untyped-def]
    mine[x, y, plane] += number
    theirs[x, y, plane] += number


@njit(cache=True, nogil=True)
def _put_object(mine, theirs, x, y, kind, contents, tick, rules):  # type: ignore[no-untyped-def]
    if kind == ONION:
        _put(mine, theirs, x, y, _LOOSE_ONION, 1)
    elif kind == DISH:
        _put(mine, theirs, x, y, _LOOSE_DISH, 1)
    elif kind == TOMATO:
        _put(mine, theirs, x, y, _LOOSE_TOMATO, 1)
    elif kind == SOUP:
        onions, tomatoes = contents & (TOMATO_UNIT - 1), contents >> TOMATO_SHIFT
        if tick == IDLE:
            _put(mine, theirs, x, y, _IDLE_ONIONS, onions)
            _put(mine, theirs, x, y, _IDLE_TOMATOES, tomatoes)
            return
        _put(mine, theirs, x, y, _SOUP_ONIONS, onions)
        _put(mine, theirs, x, y, _SOUP_TOMATOES, tomatoes)
        left = int(rules[TIMES + contents]) - tick
        _put(mine, theirs, x, y, _STEPS_LEFT, left)
        if left <= 0:
            _put(mine, theirs, x, y, _READY, 1)


@njit(cache=True, nogil=True)
def lossless(state, planes, rules, horizon, out):  # type: ignore[no-untyped-def]
    """The lossless encoding of one game for both players.

    Args:
        state: int16 (S,).
        planes: Result of `static_planes`.
        rules: Result of `kernel.rule_numbers`.
        horizon: Length of an episode in steps.
        out: int8 (2, W, H, 26), overwritten; the player itself comes first.
    """
    width, height = planes.shape[0], planes.shape[1]
    mine, theirs = out[0], out[1]
    # Flat, so that they are copied in one go.
    still = planes.reshape(planes.size)
    mine.reshape(planes.size)[:] = still
    theirs.reshape(planes.size)[:] = still
    for i in range(2):
        at = PLAYER + FIELDS * i
        x, y, facing = state[at + X], state[at + Y], state[at + FACING]
        mine[x, y, i] = 1
        mine[x, y, 2 + 4 * i + facing] = 1
        theirs[x, y, 1 - i] = 1
        theirs[x, y, 2 + 4 * (1 - i) + facing] = 1
        if state[at + HELD] != NOTHING:
            _put_object(mine, theirs, x, y, state[at + HELD], state[at + HELD + 1], state[at + HELD + 2], rules)
    for cell in range(width * height):
        at = CELLS + 3 * cell
        if state[at] != NOTHING:
            x, y = cell % width, cell // width
            _put_object(mine, theirs, x, y, state[at], state[at + 1], state[at + 2], rules)
    if horizon - state[0] < URGENT_STEPS:
        out[:, :, :, _URGENT] = 1


@njit(cache=True, nogil=True)
def lossless_many(states, planes, rules, horizon, out):  # type: ignore[no-untyped-def]
    """`lossless` of N games: int16 (N, S) to int8 (N, 2, W, H, 26)."""
    for game in range(states.shape[0]):
        lossless(states[game], planes, rules, horizon, out[game])


class FeatureTables(NamedTuple):
    """Parts of the features that do not change in a kitchen, for `features`.

    Attributes:
        blocks: int16 (cells, 4, 5, 46): a cook's block by its cell, its direction and what it holds, without pots and
            without the contents of a soup in its hands.
        pots: int16 (cells, 4, 2): the cells of the two nearest pots that it can face; -1 for none.
    """

    blocks: np.ndarray
    pots: np.ndarray


@lru_cache(maxsize=32)
def feature_tables(layout: Layout) -> FeatureTables:
    """The tables of a kitchen, computed once."""
    routes, cells = routes_of(layout), layout.width * layout.height
    blocks, pots = np.zeros((cells, 4, _HOLDABLE, _BLOCK), np.int16), np.full((cells, 4, _POTS), -1, np.int16)
    for x, y in layout.cells(FLOOR):
        cell = y * layout.width + x
        for facing in range(4):
            for held in range(_HOLDABLE):
                blocks[cell, facing, held] = _still_block((x, y), facing, held, layout, routes)
            for number, (pot_x, pot_y) in enumerate(routes.nearest((x, y), facing, POT)[:_POTS]):
                pots[cell, facing, number] = pot_y * layout.width + pot_x
    return FeatureTables(blocks, pots)


def _still_block(place: Cell, facing: int, held: int, layout: Layout, routes: Routes) -> np.ndarray:
    """int16 (46,): a row of `FeatureTables.blocks`."""
    x, y = place
    block = np.zeros(_BLOCK, np.int16)
    block[facing] = 1
    if held != NOTHING:
        block[4 + {ONION: 0, SOUP: 1, DISH: 2, TOMATO: 3}[held]] = 1
    # Loose objects and empty counters are never found: counters are no goals of the original's default planner.
    wanted = {8: (ONION, ONIONS), 10: (TOMATO, TOMATOES), 12: (DISH, DISHES), 18: (None, SERVING)}
    for where, (has_it, kind) in wanted.items():
        cells = routes.nearest(place, facing, kind)
        if held != has_it and cells:
            block[where : where + 2] = cells[0][0] - x, cells[0][1] - y
    for number, (dx, dy) in enumerate(((0, -1), (0, 1), (1, 0), (-1, 0))):
        block[42 + number] = layout.kind((x + dx, y + dy)) != FLOOR
    return block


@njit(cache=True, nogil=True)
def features(state, blocks, near, rules, out):  # type: ignore[no-untyped-def]
    """The 96 features of Overcooked-AI for both players, two pots, counters not among the planner's goals.

    Own block (46), partner's block (46), partner's place relative to one's own (2), own place (2).

    Args:
        state: int16 (S,).
        blocks: As of `FeatureTables`.
        near: `FeatureTables.pots`.
        rules: Result of `kernel.rule_numbers`.
        out: int16 (2, 96), overwritten.
    """
    width = int(rules[WIDTH])
    for i in range(2):
        at, partner = PLAYER + FIELDS * i, PLAYER + FIELDS * (1 - i)
        x, y, facing, held = state[at + X], state[at + Y], state[at + FACING], state[at + HELD]
        cell = y * width + x
        block = out[i, :_BLOCK]
        block[:] = blocks[cell, facing, held]
        if held == SOUP:
            block[16] = state[at + HELD_CONTENTS] & (TOMATO_UNIT - 1)
            block[17] = state[at + HELD_CONTENTS] >> TOMATO_SHIFT
        for number in range(_POTS):
            if near[cell, facing, number] >= 0:
                _put_pot(state, rules, near[cell, facing, number], x, y, block[22 + 10 * number : 32 + 10 * number])
        out[1 - i, _BLOCK : 2 * _BLOCK] = block
        out[i, 92], out[i, 93] = state[partner + X] - x, state[partner + Y] - y
        out[i, 94], out[i, 95] = x, y


@njit(cache=True, nogil=True)
def _put_pot(state, rules, cell, x, y, out):  # type: ignore[no-untyped-def]
    """Exists, empty, full, cooking, ready, onions, tomatoes, steps left, dx, dy."""
    at, width = CELLS + 3 * cell, int(rules[WIDTH])
    kind, inside, tick = state[at], state[at + 1], state[at + 2]
    onions, tomatoes = inside & (TOMATO_UNIT - 1), inside >> TOMATO_SHIFT
    started = kind == SOUP and tick != IDLE
    left = max(0, int(rules[TIMES + inside]) - tick) if started else 0
    out[0] = 1
    out[1] = kind == NOTHING
    out[2] = started or (kind == SOUP and onions + tomatoes == FULL)
    out[3] = started and left > 0
    out[4] = started and left == 0
    out[5], out[6], out[7] = onions, tomatoes, left
    out[8], out[9] = cell % width - x, cell // width - y
