"""The rules on flat arrays, compiled with numba: one step of one game, and of many.

A game is one row of int16:

    0                    game step
    1 + 6 * i + field    player i: x, y, orientation, held kind, its contents, its tick
    13 + 3 * cell + k    what lies in a cell (row by row): kind, contents, tick

Kinds are `NOTHING`, `ONION`, `DISH`, `SOUP`, `TOMATO`. Contents are those of a soup, onions + 4 * tomatoes (`recipes`),
else 0. The tick of a soup is -1 before cooking and counts from 1 while it cooks; it is ready when the tick is the cook
time of its contents. Facts: Overcooked-AI master 739950a; the order of what happens is told at `step`.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from rllib_llm_comm.envs.overcooked_ai.layouts import COUNTER, DISHES, FLOOR, ONIONS, POT, SERVING, TOMATOES, Layout
from rllib_llm_comm.envs.overcooked_ai.recipes import (
    CONTENTS,
    FULL,
    ONION_UNIT,
    SOUPS,
    TOMATO_SHIFT,
    TOMATO_UNIT,
    ingredients,
)

NOTHING, ONION, DISH, SOUP, TOMATO = range(5)
NORTH, SOUTH, EAST, WEST, STAY, INTERACT = range(6)
X, Y, FACING, HELD, HELD_CONTENTS, HELD_TICK = range(6)
PLAYER, FIELDS = 1, 6
CELLS = PLAYER + 2 * FIELDS
IDLE = -1
# Result of `rule_numbers`: width, whether pots start by themselves, the shaped rewards, and by contents the cook
# times, the points, and the events of adding an onion (even places) or a tomato (odd places).
WIDTH, BY_ITSELF, PLACE_IN_POT, USEFUL_DISH, TAKE_SOUP, TIMES = range(6)
POINTS = TIMES + CONTENTS
POTTING = POINTS + CONTENTS

EVENTS = (
    "onion_pickup",
    "useful_onion_pickup",
    "onion_drop",
    "useful_onion_drop",
    "potting_onion",
    "optimal_onion_potting",
    "viable_onion_potting",
    "dish_pickup",
    "useful_dish_pickup",
    "dish_drop",
    "useful_dish_drop",
    "soup_pickup",
    "soup_drop",
    "soup_delivery",
    "tomato_pickup",
    "useful_tomato_pickup",
    "tomato_drop",
    "useful_tomato_drop",
    "potting_tomato",
    "optimal_tomato_potting",
    "viable_tomato_potting",
    "catastrophic_onion_potting",
    "catastrophic_tomato_potting",
    "useless_onion_potting",
    "useless_tomato_potting",
)
_BIT = {name: 1 << number for number, name in enumerate(EVENTS)}
_ONION_PICKUP, _USEFUL_ONION_PICKUP = _BIT["onion_pickup"], _BIT["useful_onion_pickup"]
_ONION_DROP, _USEFUL_ONION_DROP = _BIT["onion_drop"], _BIT["useful_onion_drop"]
_TOMATO_PICKUP, _USEFUL_TOMATO_PICKUP = _BIT["tomato_pickup"], _BIT["useful_tomato_pickup"]
_TOMATO_DROP, _USEFUL_TOMATO_DROP = _BIT["tomato_drop"], _BIT["useful_tomato_drop"]
_DISH_PICKUP, _USEFUL_DISH_PICKUP = _BIT["dish_pickup"], _BIT["useful_dish_pickup"]
_DISH_DROP, _USEFUL_DISH_DROP = _BIT["dish_drop"], _BIT["useful_dish_drop"]
_SOUP_PICKUP, _SOUP_DROP, _SOUP_DELIVERY = _BIT["soup_pickup"], _BIT["soup_drop"], _BIT["soup_delivery"]

DX = np.array([0, 0, 1, -1, 0, 0], np.int16)
DY = np.array([-1, 1, 0, 0, 0, 0], np.int16)


def rule_numbers(layout: Layout, by_itself: bool) -> np.ndarray:
    """float64 (69,): the rules of a kitchen for `step`.

    Args:
        layout: The kitchen.
        by_itself: Whether a pot with three ingredients starts to cook by itself.
    """
    recipes = layout.recipes
    rules = np.zeros(POTTING + 2 * CONTENTS)
    rules[WIDTH], rules[BY_ITSELF] = layout.width, by_itself
    rules[PLACE_IN_POT : TAKE_SOUP + 1] = recipes.shaped
    rules[TIMES:POINTS], rules[POINTS:POTTING] = recipes.times, recipes.points
    for inside in (0, *SOUPS):
        if sum(ingredients(inside)) < FULL:
            for number, (name, unit) in enumerate((("onion", ONION_UNIT), ("tomato", TOMATO_UNIT))):
                before, after = recipes.best(inside), recipes.best(inside + unit)
                rules[POTTING + 2 * inside + number] = (
                    _BIT[f"potting_{name}"]
                    | (_BIT[f"optimal_{name}_potting"] if after == before else 0)
                    | (_BIT[f"viable_{name}_potting"] if after > 0 else 0)
                    | (_BIT[f"catastrophic_{name}_potting"] if before > 0 and after == 0 else 0)
                    | (_BIT[f"useless_{name}_potting"] if before == 0 else 0)
                )
    return rules


@njit(cache=True, nogil=True)
def _count(contents):  # type: ignore[no-untyped-def]
    """Number of ingredients in it; by bits, as division is slow here."""
    return (contents & (TOMATO_UNIT - 1)) + (contents >> TOMATO_SHIFT)


@njit(cache=True, nogil=True)
def _pots(state, terrain):  # type: ignore[no-untyped-def]
    """Number of pots; of full ones (ready, cooking or three ingredients); of those a dish is wanted for."""
    pots = full = wanting = 0
    for cell in range(terrain.size):
        if terrain[cell] != POT:
            continue
        pots += 1
        at = CELLS + 3 * cell
        if state[at] != SOUP:
            continue
        started, inside = state[at + 2] != IDLE, _count(state[at + 1])
        if started or inside >= FULL:
            full += 1
        if started or inside < FULL:
            wanting += 1
    return pots, full, wanting


@njit(cache=True, nogil=True)
def _dish_on_counter(state, terrain):  # type: ignore[no-untyped-def]
    for cell in range(terrain.size):  # noqa: SIM110 (numba has no `any`)
        if terrain[cell] == COUNTER and state[CELLS + 3 * cell] == DISH:
            return True
    return False


@njit(cache=True, nogil=True)
def _picked(kind, partner, pots, full, dish_useful):  # type: ignore[no-untyped-def]
    useful = not (full == pots and partner != DISH)
    if kind == ONION:
        return _ONION_PICKUP | (_USEFUL_ONION_PICKUP if useful else 0)
    if kind == TOMATO:
        return _TOMATO_PICKUP | (_USEFUL_TOMATO_PICKUP if useful else 0)
    if kind == DISH:
        return _DISH_PICKUP | (_USEFUL_DISH_PICKUP if dish_useful else 0)
    return _SOUP_PICKUP


@njit(cache=True, nogil=True)
def _dropped(kind, partner, pots, full):  # type: ignore[no-untyped-def]
    useful = full == pots and partner != DISH
    if kind == ONION:
        return _ONION_DROP | (_USEFUL_ONION_DROP if useful else 0)
    if kind == TOMATO:
        return _TOMATO_DROP | (_USEFUL_TOMATO_DROP if useful else 0)
    if kind == DISH:
        # A partner with a tomato does not count in the original.
        return _DISH_DROP | (_USEFUL_DISH_DROP if full == 0 and partner != ONION else 0)
    return _SOUP_DROP


@njit(cache=True, nogil=True)
def _interact(state, terrain, rules, me, pots, full, wanting):  # type: ignore[no-untyped-def]
    """Carries out one player's interact. Returns sparse reward, shaped reward and events."""
    mine = PLAYER + FIELDS * me
    other = state[PLAYER + FIELDS * (1 - me) + HELD]
    facing = state[mine + FACING]
    cell = (state[mine + Y] + DY[facing]) * int(rules[WIDTH]) + state[mine + X] + DX[facing]
    kind, at, held = terrain[cell], CELLS + 3 * cell, state[mine + HELD]
    if kind == COUNTER:
        if held != NOTHING and state[at] == NOTHING:
            for k in range(3):
                state[at + k] = state[mine + HELD + k]
                state[mine + HELD + k] = 0
            return 0.0, 0.0, _dropped(held, other, pots, full)
        if held == NOTHING and state[at] != NOTHING:
            # A dish that is taken from a counter still lies on one, so it is never useful.
            event = _picked(state[at], other, pots, full, False)
            for k in range(3):
                state[mine + HELD + k] = state[at + k]
                state[at + k] = 0
            return 0.0, 0.0, event
    elif kind == ONIONS and held == NOTHING:
        state[mine + HELD] = ONION
        return 0.0, 0.0, _picked(ONION, other, pots, full, False)
    elif kind == TOMATOES and held == NOTHING:
        # The original logs no event where a tomato comes from a crate.
        state[mine + HELD] = TOMATO
        return 0.0, 0.0, 0
    elif kind == DISHES and held == NOTHING:
        useful = (1 if other == DISH else 0) < wanting and not _dish_on_counter(state, terrain)
        state[mine + HELD] = DISH
        return 0.0, rules[USEFUL_DISH] if useful else 0.0, _picked(DISH, other, pots, full, useful)
    elif kind == POT:
        return _use_pot(state, rules, at, mine, held)
    elif kind == SERVING and held == SOUP:
        worth = rules[POINTS + state[mine + HELD_CONTENTS]]
        for k in range(3):
            state[mine + HELD + k] = 0
        return worth, 0.0, _SOUP_DELIVERY
    return 0.0, 0.0, 0


@njit(cache=True, nogil=True)
def _use_pot(state, rules, at, mine, held):  # type: ignore[no-untyped-def]
    """The part of `_interact` for a pot at a place of the state."""
    empty, inside, tick = state[at] == NOTHING, state[at + 1], state[at + 2]
    idle = not empty and tick == IDLE
    if held in (ONION, TOMATO) and (empty or (idle and _count(inside) < FULL)):
        tomato = held == TOMATO
        state[mine + HELD] = NOTHING
        state[at], state[at + 1], state[at + 2] = SOUP, inside + (TOMATO_UNIT if tomato else ONION_UNIT), IDLE
        return 0.0, rules[PLACE_IN_POT], int(rules[POTTING + 2 * inside + (1 if tomato else 0)])
    if held == DISH and not empty and not idle and tick >= rules[TIMES + inside]:
        for k in range(3):
            state[mine + HELD + k] = state[at + k]
            state[at + k] = 0
        return 0.0, rules[TAKE_SOUP], _SOUP_PICKUP
    if held == NOTHING and idle and not rules[BY_ITSELF]:
        state[at + 2] = 0
    return 0.0, 0.0, 0


@njit(cache=True, nogil=True)
def _move(state, terrain, width, first, second):  # type: ignore[no-untyped-def]
    """Both players move at once; neither does if they would meet or change places."""
    a, b = PLAYER, PLAYER + FIELDS
    ax, ay, bx, by = state[a], state[a + Y], state[b], state[b + Y]
    nax, nay, nbx, nby = ax, ay, bx, by
    if first < STAY:
        state[a + FACING] = first
        if terrain[(ay + DY[first]) * width + ax + DX[first]] == FLOOR:
            nax, nay = ax + DX[first], ay + DY[first]
    if second < STAY:
        state[b + FACING] = second
        if terrain[(by + DY[second]) * width + bx + DX[second]] == FLOOR:
            nbx, nby = bx + DX[second], by + DY[second]
    meet = nax == nbx and nay == nby
    swap = nax == bx and nay == by and nbx == ax and nby == ay
    if not (meet or swap):
        state[a], state[a + Y], state[b], state[b + Y] = nax, nay, nbx, nby


@njit(cache=True, nogil=True)
def step(state, terrain, rules, first, second, out):  # type: ignore[no-untyped-def]
    """One step of one game: interacts (player 0 first), then both move, then the pots cook.

    Args:
        state: int16 (S,), changed in place.
        terrain: int8 (cells,).
        rules: Result of `rule_numbers`.
        first: Action of player 0.
        second: Action of player 1.
        out: float64 (2, 3): sparse reward, shaped reward and events (bits in the order of `EVENTS`) per player.
    """
    out[:] = 0
    if first == INTERACT or second == INTERACT:
        pots, full, wanting = _pots(state, terrain)
        if first == INTERACT:
            out[0, 0], out[0, 1], out[0, 2] = _interact(state, terrain, rules, 0, pots, full, wanting)
        if second == INTERACT:
            out[1, 0], out[1, 1], out[1, 2] = _interact(state, terrain, rules, 1, pots, full, wanting)
    _move(state, terrain, int(rules[WIDTH]), first, second)
    state[0] += 1
    for cell in range(terrain.size):
        at = CELLS + 3 * cell
        if terrain[cell] == POT and state[at] == SOUP:
            tick = state[at + 2]
            if tick == IDLE and rules[BY_ITSELF] and _count(state[at + 1]) == FULL:
                tick = 0
            if tick != IDLE and tick < rules[TIMES + state[at + 1]]:
                state[at + 2] = tick + 1
            elif tick != state[at + 2]:
                state[at + 2] = tick


@njit(cache=True, nogil=True)
def step_many(states, terrain, rules, actions, out):  # type: ignore[no-untyped-def]
    """`step` of N games: states int16 (N, S), changed in place, actions int8 (N, 2), and `out` float64 (N, 2, 3)."""
    for game in range(states.shape[0]):
        step(states[game], terrain, rules, actions[game, 0], actions[game, 1], out[game])
