"""Places of units as discs: collisions, free places, sight and fog. Compiled; `g` is a record `state.GAME`."""

from __future__ import annotations

import numpy as np

from rllib_llm_comm.envs.minirts.engine.compiled_rule import rule
from rllib_llm_comm.envs.minirts.engine.mapgen import SIZE, WATER
from rllib_llm_comm.envs.minirts.engine.state import FINISHED, NO_ONE, SLOTS
from rllib_llm_comm.envs.minirts.engine.units import FLIES, IS_BUILDING, RESOURCE, SIGHT

_TOO_CLOSE = np.float32(0.72) * np.float32(0.72)
# Units can walk a little out of the map, where the original's spatial index loses them.
_LOW, _HIGH = np.float32(-0.5), np.float32(SIZE + 0.5)


@rule
def axis_cell(value):  # type: ignore[no-untyped-def]
    """Column of an x or row of a y; truncated towards zero, so down to -1.5 it is 0.

    The sum is float64, as in the original: the float32 just below 0.5 belongs to cell 0.
    """
    return np.int32(np.float64(value) + 0.5)


@rule
def cell_of(g, slot):  # type: ignore[no-untyped-def]
    """The cell a unit stands on."""
    return axis_cell(g.y[slot]) * SIZE + axis_cell(g.x[slot])


@rule
def distance2(x, y, to_x, to_y):  # type: ignore[no-untyped-def]
    """float32: squared distance."""
    dx, dy = x - to_x, y - to_y
    return dx * dx + dy * dy


@rule
def between2(g, a, b):  # type: ignore[no-untyped-def]
    """float32: squared distance of two units."""
    return distance2(g.x[a], g.y[a], g.x[b], g.y[b])


@rule
def reference(g, slot):  # type: ignore[no-untyped-def]
    """A lasting reference to the unit in a slot."""
    return g.serial[slot] * SLOTS + slot


@rule
def resolve(g, ref):  # type: ignore[no-untyped-def]
    """The slot of a unit that is meant, or -1 if it is gone."""
    if ref < 0:
        return NO_ONE
    slot = ref % SLOTS
    return slot if g.serial[slot] == ref // SLOTS else NO_ONE


@rule
def passable(g, cell, kind):  # type: ignore[no-untyped-def]
    """True if a type may be on a cell."""
    return g.terrain[cell] != WATER or FLIES[kind]


@rule
def _outside(x, y):  # type: ignore[no-untyped-def]
    return x < _LOW or x > _HIGH or y < _LOW or y > _HIGH


@rule
def clear_of_discs(g, x, y, but):  # type: ignore[no-untyped-def]
    """True if no unit but that in slot `but` stands closer than two radii."""
    outside = _outside(x, y)
    for player in range(2):
        for i in range(g.count[player]):
            slot = g.roster[player, i]
            close = distance2(x, y, g.x[slot], g.y[slot]) < _TOO_CLOSE
            if close and slot != but and _outside(g.x[slot], g.y[slot]) == outside:
                return False
    return True


@rule
def free(g, x, y, kind, but):  # type: ignore[no-untyped-def]
    """True if a type could stand at a place: in the map, on its terrain, clear of discs."""
    column, row = axis_cell(x), axis_cell(y)
    if column < 0 or row < 0 or column >= SIZE or row >= SIZE:
        return False
    return passable(g, row * SIZE + column, kind) and clear_of_discs(g, x, y, but)


@rule
def _look(g, player, cell, change):  # type: ignore[no-untyped-def]
    """Adds to or takes from a player's sight a unit at a cell."""
    row, column = cell // SIZE, cell % SIZE
    for y in range(max(0, row - SIGHT), min(SIZE, row + SIGHT + 1)):
        wide = SIGHT - abs(y - row)
        for x in range(max(0, column - wide), min(SIZE, column + wide + 1)):
            g.sight[player, y * SIZE + x] += change
            if change > 0:
                g.seen[player, y * SIZE + x] = 1


@rule
def _close_eyes(g, slot):  # type: ignore[no-untyped-def]
    """A unit no longer sees what it saw, from the next fog on."""
    if g.sight_cell[slot] >= 0:
        at = g.num_closed
        g.closed_player[at], g.closed_cell[at] = g.owner[slot], g.sight_cell[slot]
        g.num_closed = at + 1
        g.sight_cell[slot] = NO_ONE


@rule
def take_off(g, slot):  # type: ignore[no-untyped-def]
    """Takes a unit off the board."""
    _close_eyes(g, slot)
    player, kept = g.owner[slot], 0
    for i in range(g.count[player]):
        if g.roster[player, i] != slot:
            g.roster[player, kept] = g.roster[player, i]
            kept += 1
    g.count[player] = kept
    g.serial[slot] = 0


@rule
def update_fog(g):  # type: ignore[no-untyped-def]
    """Updates the sight of both players at the end of a tick; buildings and resources in sight are remembered."""
    for player in range(2):
        for i in range(g.count[player]):
            slot = g.roster[player, i]
            cell = cell_of(g, slot)
            if g.type[slot] != RESOURCE and cell != g.sight_cell[slot]:
                _close_eyes(g, slot)
                _look(g, player, cell, 1)
                g.sight_cell[slot] = cell
    for i in range(g.num_closed):
        _look(g, g.closed_player[i], g.closed_cell[i], -1)
    g.num_closed = 0
    for player in range(2):
        for i in range(g.count[player]):
            slot = g.roster[player, i]
            if IS_BUILDING[g.type[slot]] or g.type[slot] == RESOURCE:
                cell = cell_of(g, slot)
                for watcher in range(2):
                    if g.sight[watcher, cell] > 0:
                        g.known[watcher, slot] = 1


@rule
def in_sight(g, player, slot):  # type: ignore[no-untyped-def]
    """True if a player sees the cell a unit stands on."""
    return g.sight[player, cell_of(g, slot)] > 0


@rule
def knows(g, player, slot):  # type: ignore[no-untyped-def]
    """True if a player sees a unit or remembers a building or resource."""
    return g.known[player, slot] > 0 or in_sight(g, player, slot)


@rule
def listed(g, player, slot):  # type: ignore[no-untyped-def]
    """True if a player is told of a unit of the other, or of a resource."""
    return g.stage[slot] == FINISHED and knows(g, player, slot)
