"""The rules on flat arrays, compiled with numba: one step of one game, and of many.

A game is one row of int16:

    0                    game step
    1 + 6 * i + field    player i: x, y, orientation, held kind, its onions, its tick
    13 + 3 * cell + k    what lies in a cell (row by row): kind, onions, tick

Kinds are `NOTHING`, `ONION`, `DISH`, `SOUP`. The tick of a soup is -1 before cooking, 1 to 19 while it cooks and 20
when it is ready. Facts: Overcooked-AI master 739950a; the order of what happens is told at `step`.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from rllib_llm_comm.envs.overcooked_ai.layouts import COUNTER, DISHES, FLOOR, ONIONS, POT, SERVING

NOTHING, ONION, DISH, SOUP = range(4)
NORTH, SOUTH, EAST, WEST, STAY, INTERACT = range(6)
X, Y, FACING, HELD, HELD_ONIONS, HELD_TICK = range(6)
PLAYER, FIELDS = 1, 6
CELLS = PLAYER + 2 * FIELDS
COOK_TIME, SOUP_REWARD, FULL = 20, 20, 3
IDLE = -1

# The number of onions in a full pot is in the rules, not in the layouts; so are these rewards.
PLACE_IN_POT, USEFUL_DISH, TAKE_SOUP = 3, 3, 5

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
)
_BIT = {name: 1 << number for number, name in enumerate(EVENTS)}
_ONION_PICKUP, _USEFUL_ONION_PICKUP = _BIT["onion_pickup"], _BIT["useful_onion_pickup"]
_ONION_DROP, _USEFUL_ONION_DROP = _BIT["onion_drop"], _BIT["useful_onion_drop"]
_POTTING = _BIT["potting_onion"] | _BIT["optimal_onion_potting"] | _BIT["viable_onion_potting"]
_DISH_PICKUP, _USEFUL_DISH_PICKUP = _BIT["dish_pickup"], _BIT["useful_dish_pickup"]
_DISH_DROP, _USEFUL_DISH_DROP = _BIT["dish_drop"], _BIT["useful_dish_drop"]
_SOUP_PICKUP, _SOUP_DROP, _SOUP_DELIVERY = _BIT["soup_pickup"], _BIT["soup_drop"], _BIT["soup_delivery"]

DX = np.array([0, 0, 1, -1, 0, 0], np.int16)
DY = np.array([-1, 1, 0, 0, 0, 0], np.int16)


@njit(cache=True, nogil=True)
def _pots(state, terrain):  # type: ignore[no-untyped-def]
    """Number of pots; of full ones (ready, cooking or three onions); of those a dish is wanted for."""
    pots = full = wanting = 0
    for cell in range(terrain.size):
        if terrain[cell] != POT:
            continue
        pots += 1
        at = CELLS + 3 * cell
        if state[at] != SOUP:
            continue
        started, onions = state[at + 2] != IDLE, state[at + 1]
        if started or onions >= FULL:
            full += 1
        if started or onions < FULL:
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
    if kind == ONION:
        useful = not (full == pots and partner != DISH)
        return _ONION_PICKUP | (_USEFUL_ONION_PICKUP if useful else 0)
    if kind == DISH:
        return _DISH_PICKUP | (_USEFUL_DISH_PICKUP if dish_useful else 0)
    return _SOUP_PICKUP


@njit(cache=True, nogil=True)
def _dropped(kind, partner, pots, full):  # type: ignore[no-untyped-def]
    if kind == ONION:
        return _ONION_DROP | (_USEFUL_ONION_DROP if full == pots and partner != DISH else 0)
    if kind == DISH:
        return _DISH_DROP | (_USEFUL_DISH_DROP if full == 0 and partner != ONION else 0)
    return _SOUP_DROP


@njit(cache=True, nogil=True)
def _interact(state, terrain, width, me, pots, full, wanting, by_itself):  # type: ignore[no-untyped-def]
    """Carries out one player's interact. Returns sparse reward, shaped reward and events."""
    mine = PLAYER + FIELDS * me
    other = state[PLAYER + FIELDS * (1 - me) + HELD]
    facing = state[mine + FACING]
    cell = (state[mine + Y] + DY[facing]) * width + state[mine + X] + DX[facing]
    kind, at, held = terrain[cell], CELLS + 3 * cell, state[mine + HELD]
    if kind == COUNTER:
        if held != NOTHING and state[at] == NOTHING:
            for k in range(3):
                state[at + k] = state[mine + HELD + k]
                state[mine + HELD + k] = 0
            return 0, 0, _dropped(held, other, pots, full)
        if held == NOTHING and state[at] != NOTHING:
            # A dish that is taken from a counter still lies on one, so it is never useful.
            event = _picked(state[at], other, pots, full, False)
            for k in range(3):
                state[mine + HELD + k] = state[at + k]
                state[at + k] = 0
            return 0, 0, event
    elif kind == ONIONS and held == NOTHING:
        state[mine + HELD] = ONION
        return 0, 0, _picked(ONION, other, pots, full, False)
    elif kind == DISHES and held == NOTHING:
        useful = (1 if other == DISH else 0) < wanting and not _dish_on_counter(state, terrain)
        state[mine + HELD] = DISH
        return 0, USEFUL_DISH if useful else 0, _picked(DISH, other, pots, full, useful)
    elif kind == POT:
        empty = state[at] == NOTHING
        idle = not empty and state[at + 2] == IDLE
        if held == ONION and (empty or (idle and state[at + 1] < FULL)):
            state[mine + HELD] = NOTHING
            state[at], state[at + 1], state[at + 2] = SOUP, state[at + 1] + 1, IDLE
            return 0, PLACE_IN_POT, _POTTING
        if held == DISH and not empty and state[at + 2] == COOK_TIME:
            for k in range(3):
                state[mine + HELD + k] = state[at + k]
                state[at + k] = 0
            return 0, TAKE_SOUP, _SOUP_PICKUP
        if held == NOTHING and idle and not by_itself:
            state[at + 2] = 0
    elif kind == SERVING and held == SOUP:
        worth = SOUP_REWARD if state[mine + HELD_ONIONS] == FULL else 0
        for k in range(3):
            state[mine + HELD + k] = 0
        return worth, 0, _SOUP_DELIVERY
    return 0, 0, 0


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
def step(state, terrain, width, first, second, by_itself, out):  # type: ignore[no-untyped-def]
    """One step of one game: interacts (player 0 first), then both move, then the pots cook.

    Args:
        state: int16 (S,), changed in place.
        terrain: int8 (cells,).
        width: Columns.
        first: Action of player 0.
        second: Action of player 1.
        by_itself: Whether a pot with three onions starts to cook by itself.
        out: int32 (2, 3): sparse reward, shaped reward and events (bits in the order of `EVENTS`) per player.
    """
    out[:] = 0
    if first == INTERACT or second == INTERACT:
        pots, full, wanting = _pots(state, terrain)
        if first == INTERACT:
            out[0, 0], out[0, 1], out[0, 2] = _interact(state, terrain, width, 0, pots, full, wanting, by_itself)
        if second == INTERACT:
            out[1, 0], out[1, 1], out[1, 2] = _interact(state, terrain, width, 1, pots, full, wanting, by_itself)
    _move(state, terrain, width, first, second)
    state[0] += 1
    for cell in range(terrain.size):
        at = CELLS + 3 * cell
        if terrain[cell] == POT and state[at] == SOUP:
            if by_itself and state[at + 2] == IDLE and state[at + 1] == FULL:
                state[at + 2] = 0
            if state[at + 2] != IDLE and state[at + 2] < COOK_TIME:
                state[at + 2] += 1


@njit(cache=True, nogil=True)
def step_many(states, terrain, width, actions, by_itself, out):  # type: ignore[no-untyped-def]
    """One step of many games.

    Args:
        states: int16 (N, S), changed in place.
        terrain: As in `step`.
        width: As in `step`.
        actions: int8 (N, 2).
        by_itself: As in `step`.
        out: int32 (N, 2, 3), as in `step`.
    """
    for game in range(states.shape[0]):
        step(states[game], terrain, width, actions[game, 0], actions[game, 1], by_itself, out[game])
