"""Movement of units: collisions, sight and ways. Compiled; `g` is a `state.GAME`."""

from __future__ import annotations

import math

import numpy as np

from rllib_llm_comm.envs.minirts.engine.mapgen import SIZE, WATER
from rllib_llm_comm.envs.minirts.engine.state import CELLS, FINISHED, NO_ONE, SLOTS, rule
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


_REMEMBERED_TICKS = 10
_MAX_EXPANSIONS = 1000
_STRAIGHT = CELLS
_NO_WAY = -1
_ROUTE = 2048
_SAMPLES_PER_CELL = np.float32(10)
_NEAR2 = np.float32(4)
_STEP = np.float32(1)
_OFF_PATH = np.float32(1e-5)
_DX = np.array([1, 0, -1, 0], np.int32)
_DY = np.array([0, 1, 0, -1], np.int32)


@rule
def _known_terrain_passable(g, player, cell, kind):  # type: ignore[no-untyped-def]
    return g.seen[player, cell] == 0 or passable(g, cell, kind)


@rule
def straight(g, slot, to_x, to_y):  # type: ignore[no-untyped-def]
    """True if a unit could walk straight to a place, as far as its player knows.

    Samples lie about 0.1 cells apart; only the first in each cell between start and target is looked at, and the target
    itself is no sample. Their number is the product with 10, rounded to float32, plus 0.5 in float64: a quotient with
    0.1 in float32 can be one less.
    """
    player, kind = g.owner[slot], g.type[slot]
    x, y = g.x[slot], g.y[slot]
    start = axis_cell(y) * SIZE + axis_cell(x)
    target = axis_cell(to_y) * SIZE + axis_cell(to_x)
    dx, dy = to_x - x, to_y - y
    length = np.float32(math.sqrt(dx * dx + dy * dy))
    samples = int(np.float64(length * _SAMPLES_PER_CELL) + 0.5)
    if samples < 2:
        return True
    apart = length / np.float32(samples)
    # Rounded in this order, as the original does.
    step_x, step_y = dx / length * apart, dy / length * apart
    last = start
    for i in range(1, samples):
        x, y = g.x[slot] + step_x * np.float32(i), g.y[slot] + step_y * np.float32(i)
        column, row = axis_cell(x), axis_cell(y)
        cell = row * SIZE + column
        if cell == last:
            continue
        last = cell
        if cell in (start, target):
            continue
        if column < 0 or row < 0 or column >= SIZE or row >= SIZE:
            return False
        if not _known_terrain_passable(g, player, cell, kind) or not clear_of_discs(g, x, y, slot):
            return False
    return True


@rule
def _before(m, a, b):  # type: ignore[no-untyped-def]
    """True if heap entry a comes before b: smaller sum, then smaller cost so far, then larger cell."""
    if m.heap_f[a] != m.heap_f[b]:
        return m.heap_f[a] < m.heap_f[b]
    if m.heap_g[a] != m.heap_g[b]:
        return m.heap_g[a] < m.heap_g[b]
    return m.heap_cell[a] > m.heap_cell[b]


@rule
def _swap(m, a, b):  # type: ignore[no-untyped-def]
    m.heap_f[a], m.heap_f[b] = m.heap_f[b], m.heap_f[a]
    m.heap_g[a], m.heap_g[b] = m.heap_g[b], m.heap_g[a]
    m.heap_cell[a], m.heap_cell[b] = m.heap_cell[b], m.heap_cell[a]


@rule
def _push(m, f, cost, cell):  # type: ignore[no-untyped-def]
    at = m.heap_size
    m.heap_f[at], m.heap_g[at], m.heap_cell[at] = f, cost, cell
    m.heap_size = at + 1
    while at > 0:
        above = (at - 1) // 2
        if not _before(m, at, above):
            break
        _swap(m, at, above)
        at = above


@rule
def _pop(m):  # type: ignore[no-untyped-def]
    """Takes the first entry off the heap and returns its cell."""
    cell = m.heap_cell[0]
    last = m.heap_size - 1
    _swap(m, 0, last)
    m.heap_size = last
    at = 0
    while True:
        first = at
        for below in (2 * at + 1, 2 * at + 2):
            if below < last and _before(m, below, first):
                first = below
        if first == at:
            return cell
        _swap(m, at, first)
        at = first


@rule
def _as_the_crow_flies(cell, target):  # type: ignore[no-untyped-def]
    dx = np.float32(cell % SIZE - target % SIZE)
    dy = np.float32(cell // SIZE - target // SIZE)
    return np.float32(math.sqrt(dx * dx + dy * dy))


@rule
def _estimate(m, player, cell, target):  # type: ignore[no-untyped-def]
    learned = m.learned[player, target, cell]
    return learned if learned > 0 else _as_the_crow_flies(cell, target)


@rule
def _learn(m, player, cell, target, value):  # type: ignore[no-untyped-def]
    m.learned[player, target, cell] = max(value, _as_the_crow_flies(cell, target))


@rule
def _open(g, m, slot, cell):  # type: ignore[no-untyped-def]
    """True if a search may enter a cell; discs count only near the unit."""
    x, y = np.float32(cell % SIZE), np.float32(cell // SIZE)
    if not _known_terrain_passable(g, g.owner[slot], cell, g.type[slot]):
        return False
    return distance2(g.x[slot], g.y[slot], x, y) >= _NEAR2 or clear_of_discs(g, x, y, slot)


@rule
def _enter(m, player, cell, parent, cost, target):  # type: ignore[no-untyped-def]
    m.mark[cell] = m.search
    m.cost[cell] = cost
    m.parent[cell] = parent
    _push(m, cost + _estimate(m, player, cell, target), cost, cell)


@rule
def _search(g, m, slot, start, target):  # type: ignore[no-untyped-def]
    """A* from start to target. Returns the goal (the target, or the best cell after 1000 expansions) or -1, and the
    number of cells in `m.popped`."""
    player = g.owner[slot]
    m.search += 1
    m.heap_size = 0
    _enter(m, player, start, NO_ONE, np.float32(0), target)
    popped = 0
    while m.heap_size > 0:
        cell = _pop(m)
        m.popped[popped] = cell
        popped += 1
        if cell == target or popped >= _MAX_EXPANSIONS:
            return cell, popped
        for k in range(4):
            column, row = cell % SIZE + _DX[k], cell // SIZE + _DY[k]
            neighbour = row * SIZE + column
            inside = 0 <= column < SIZE and 0 <= row < SIZE
            if not (neighbour == target or inside) or m.mark[neighbour] == m.search:
                continue
            if neighbour == target or _open(g, m, slot, neighbour):
                _enter(m, player, neighbour, cell, m.cost[cell] + _STEP, target)
    return _NO_WAY, popped


@rule
def _learn_from_search(m, player, target, goal, popped):  # type: ignore[no-untyped-def]
    best = m.cost[goal] + _estimate(m, player, goal, target)
    for i in range(popped):
        cell = m.popped[i]
        _learn(m, player, cell, target, best + _OFF_PATH - m.cost[cell])
    cell = goal
    while cell != NO_ONE:
        _learn(m, player, cell, target, best - m.cost[cell])
        cell = m.parent[cell]


@rule
def _farthest_straight(g, m, slot, goal):  # type: ignore[no-untyped-def]
    """The last cell of a path that the unit can walk to straight; at worst its own."""
    cell = goal
    while m.parent[cell] != NO_ONE and not straight(g, slot, np.float32(cell % SIZE), np.float32(cell // SIZE)):
        cell = m.parent[cell]
    return cell


@rule
def way(g, m, slot, to_x, to_y, tick):  # type: ignore[no-untyped-def]
    """Next cell on a unit's way to a place, or `CELLS` if it should walk straight; `tick` is its order's time."""
    player = g.owner[slot]
    start = axis_cell(g.y[slot]) * SIZE + axis_cell(g.x[slot])
    target = axis_cell(to_y) * SIZE + axis_cell(to_x)
    remembered = m.route[player, target, start]
    if remembered > 0 and tick - (remembered // _ROUTE - 1) < _REMEMBERED_TICKS:
        return remembered % _ROUTE
    found = _STRAIGHT
    if not straight(g, slot, to_x, to_y):
        goal, popped = _search(g, m, slot, start, target)
        if goal == _NO_WAY:
            return _STRAIGHT
        _learn_from_search(m, player, target, goal, popped)
        found = _farthest_straight(g, m, slot, goal)
    m.touched[player, target] = 1
    m.route[player, target, start] = (tick + 1) * _ROUTE + found
    return found
