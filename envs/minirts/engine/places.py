"""Choice of places: building sites, resources to mine, cells to scout."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from rllib_llm_comm.envs.minirts.engine import unit_order as order
from rllib_llm_comm.envs.minirts.engine.mapgen import SIZE, WATER
from rllib_llm_comm.envs.minirts.engine.rts_game import Unit
from rllib_llm_comm.envs.minirts.engine.unit_order import Order
from rllib_llm_comm.envs.minirts.engine.units import GUARD_TOWER, IS_ARMY
from rllib_llm_comm.envs.minirts.side import Side, distance

Cell = tuple[int, int]
_REACH, _EDGE = 6, 1
_ROOM = 1.5
_CROWD = 0.7
_DANGER = 6.0


def building_spot(side: Side, kind: int, taken: Sequence[Cell] = ()) -> Cell | None:
    """A free cell near the town hall for a new building: as near as there is room to walk around it.

    Towers come on the side of the middle of the map, other buildings on the far side. The ways of the peasants, between
    hall and resources, stay free.

    Args:
        side: The side.
        kind: Type to build.
        taken: Cells that are given away already.
    """
    home = side.home
    cells = [(x, y) for x, y in _around(home) if _is_land(side, x, y)]
    things = [(u.x, u.y) for u in (*side.own, *side.sites, *side.resources, *side.enemies)] + list(taken)
    free = [cell for cell in cells if all(_apart(cell, thing) for thing in things)]
    lanes = [resource for resource in side.resources if distance(resource, home) < 9]
    open_ = [cell for cell in free if all(_off_lane(cell, home, (r.x, r.y)) for r in lanes)] or free
    if not open_:
        return None
    middle = SIZE / 2 if kind == GUARD_TOWER else home[0]
    return min(open_, key=lambda c: (np.hypot(c[0] - home[0], c[1] - home[1]), abs(c[0] - middle), c))


def _around(home: tuple[float, float]) -> Iterator[Cell]:
    cx, cy = round(home[0]), round(home[1])
    for x in range(max(_EDGE, cx - _REACH), min(SIZE - _EDGE, cx + _REACH + 1)):
        for y in range(max(_EDGE, cy - _REACH), min(SIZE - _EDGE, cy + _REACH + 1)):
            yield x, y


def _is_land(side: Side, x: int, y: int) -> bool:
    return bool(side.game.record["terrain"][0, y * SIZE + x] != WATER and side.game.explored(side.player)[y, x])


def _apart(cell: Cell, thing: tuple[float, float]) -> bool:
    return bool(np.hypot(cell[0] - thing[0], cell[1] - thing[1]) >= _ROOM)


def _off_lane(cell: Cell, home: tuple[float, float], resource: tuple[float, float]) -> bool:
    """True if a cell is at least a cell away from the straight way between two places."""
    start, way = np.array(home), np.array(resource) - home
    share = float(np.clip(np.dot(np.array(cell) - start, way) / max(1e-9, float(way @ way)), 0, 1))
    return float(np.hypot(*(np.array(cell) - start - share * way))) >= 1.0


def mine(side: Side, peasants: Sequence[Unit]) -> Iterator[Order]:
    """Sends peasants to dig: near the hall, not all to one place, not where enemies stand.

    Args:
        side: The side.
        peasants: Idle ones.
    """
    if not side.halls:
        return
    fighters = [enemy for enemy in side.enemies if IS_ARMY[enemy.type] or enemy.type == GUARD_TOWER]
    safe = [r for r in side.resources if all(distance(r, enemy) > _DANGER for enemy in fighters)]
    digging = Counter(unit.target for unit in side.own if unit.order == "GATHER")
    for peasant in peasants:
        if not safe:
            return
        hall = min(side.halls, key=lambda h: distance(h, peasant))
        best = min(safe, key=lambda r: (distance(hall, r) + _CROWD * digging[r.ref], r.ref))
        digging[best.ref] += 1
        yield order.gather(peasant, hall, best)


def unexplored(side: Side, from_: Unit) -> Cell | None:
    """Next cell to scout: one that was never seen, far from home and near to the one who goes.

    Both town halls lie near opposite edges of the map, so cells on the far side are looked at first.

    Args:
        side: The side.
        from_: The unit that goes.
    """
    home = side.home
    seen = side.game.explored(side.player)
    rows, columns = np.nonzero(~seen[2 : SIZE - 2, 2 : SIZE - 2])
    if not rows.size:
        return None
    x, y = columns + 2, rows + 2
    far = np.hypot(x - (SIZE - 1 - home[0]), y - (SIZE - 1 - home[1]))
    near = np.hypot(x - from_.x, y - from_.y)
    best = int(np.argmin(far + 0.5 * near))
    return int(x[best]), int(y[best])
