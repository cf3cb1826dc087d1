"""Choices for armies and peasants: targets, times to move, building sites, resources, cells to scout."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from rllib_llm_comm.envs.minirts.commanders.tasks import ATTACK, SCOUT
from rllib_llm_comm.envs.minirts.engine import unit_order as order
from rllib_llm_comm.envs.minirts.engine.mapgen import SIZE, WATER
from rllib_llm_comm.envs.minirts.engine.rts_game import Unit
from rllib_llm_comm.envs.minirts.engine.unit_order import Order
from rllib_llm_comm.envs.minirts.engine.units import (
    ATTACK_TICKS,
    DAMAGE,
    DRAGON,
    GUARD_TOWER,
    IS_ARMY,
    IS_BUILDING,
    PEASANT,
    RANGE,
    SPEED,
    TOWN_HALL,
)
from rllib_llm_comm.envs.minirts.side import Side, distance

Cell = tuple[int, int]
_REACH, _EDGE = 6, 1
_ROOM = 1.5
_CROWD = 0.7
_DANGER = 6.0


def building_spot(side: Side, kind: int, taken: Sequence[Cell] = ()) -> Cell | None:
    """A free cell near the town hall for a new building: as near as there is room to walk around it.

    Towers come on the side of the middle of the map, other buildings on the far side. The ways of the peasants, between
    hall and resources, stay free, and so do cells that are taken already.
    """
    home = side.home
    columns, rows = (range(max(_EDGE, at - _REACH), min(SIZE - _EDGE, at + _REACH + 1)) for at in map(round, home))
    known = side.game.explored(side.player)
    land = known & (side.game.record["terrain"][0] != WATER).reshape(SIZE, SIZE)
    cells = [(x, y) for x in columns for y in rows if land[y, x]]
    things = [(u.x, u.y) for u in (*side.own, *side.sites, *side.resources, *side.enemies)] + list(taken)
    free = [(x, y) for x, y in cells if all(np.hypot(x - left, y - top) >= _ROOM for left, top in things)]
    lanes = [resource for resource in side.resources if distance(resource, home) < 9]
    open_ = [cell for cell in free if all(_off_lane(cell, home, (r.x, r.y)) for r in lanes)] or free
    if not open_:
        return None
    middle = SIZE / 2 if kind == GUARD_TOWER else home[0]
    return min(open_, key=lambda c: (np.hypot(c[0] - home[0], c[1] - home[1]), abs(c[0] - middle), c))


def _off_lane(cell: Cell, home: tuple[float, float], resource: tuple[float, float]) -> bool:
    """True if a cell is at least a cell away from the straight way between two places."""
    start, way = np.array(home), np.array(resource) - home
    share = float(np.clip(np.dot(np.array(cell) - start, way) / max(1e-9, float(way @ way)), 0, 1))
    return float(np.hypot(*(np.array(cell) - start - share * way))) >= 1.0


def mine(side: Side, peasants: Sequence[Unit]) -> Iterator[Order]:
    """Sends idle peasants to dig: near the hall, not all to one place, not where enemies stand."""
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
    """Next cell for a unit to scout: one that was never seen, far from home and near to it.

    Both town halls lie near opposite edges of the map, so cells on the far side are looked at first.
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


_AWARE = 9.0
"""Enemies this near to a fighter are fought before anything else, in cells."""
_RALLY = 4.0
_WALK = 1.0
_LATER = 1e6


def towers(side: Side, units: Sequence[Unit]) -> Iterator[Order]:
    """Guard towers shoot at what is in reach."""
    for tower in units:
        near = [enemy for enemy in side.enemies if distance(tower, enemy) <= RANGE[GUARD_TOWER]]
        if tower.order == "IDLE" and (best := best_target(tower, near)):
            yield order.attack(tower, best)


def army(side: Side, commander: int, stance: str) -> Iterator[Order]:
    """Orders of a commander's fighters in a stance; one peasant where "scout" finds no fighter."""
    fighters = side.army_of(commander)
    if stance == SCOUT:
        scout = _scout(side, commander, fighters)
        if scout is not None:
            fighters = [unit for unit in fighters if unit.ref != scout.ref]
            yield from _explore(side, scout)
    for unit in fighters:
        yield from _fight(side, unit, stance)


def _scout(side: Side, commander: int, fighters: Sequence[Unit]) -> Unit | None:
    """The one that is on its way, or else the fastest flyer or walker."""
    free = list(fighters) or [u for u in side.units_of(commander, PEASANT) if u.order in ("IDLE", "GATHER", "MOVE")]
    moving = [unit for unit in free if unit.order == "MOVE"]
    return max(moving or free, key=lambda u: (u.type == DRAGON, SPEED[u.type], -u.ref), default=None)


def _explore(side: Side, unit: Unit) -> Iterator[Order]:
    cell = unexplored(side, unit)
    if cell is not None:
        yield order.move(unit, *cell)


def _fight(side: Side, unit: Unit, stance: str) -> Iterator[Order]:
    reach = _AWARE if stance == ATTACK else _AWARE - 2
    near = [enemy for enemy in side.enemies if distance(unit, enemy) <= reach and _fights(enemy)]
    if stance != ATTACK:
        near += [enemy for enemy in side.threats() if enemy not in near]
    target = best_target(unit, near)
    if target is None and stance == ATTACK:
        target = best_target(unit, side.enemies)
    if target is not None:
        if _worth_changing(side, unit, target):
            yield order.attack(unit, target)
    elif stance == ATTACK:
        yield from _explore(side, unit)
    else:
        yield from _go_home(side, unit)


def _worth_changing(side: Side, unit: Unit, target: Unit) -> bool:
    """True if a fighter should leave what it attacks: not while that is armed and in reach."""
    if unit.order != "ATTACK":
        return True
    current = side.game.unit(unit.target)
    armed = current is not None and _fights(current) and DAMAGE[unit.type, current.type] > 0
    return not (armed and current is not None and distance(unit, current) <= RANGE[unit.type] + 1)


def _fights(enemy: Unit) -> bool:
    return bool(IS_ARMY[enemy.type] or enemy.type == GUARD_TOWER)


def _go_home(side: Side, unit: Unit) -> Iterator[Order]:
    """To the side of the own hall that looks to the middle of the map."""
    x, y = side.home
    spot = (x + (_RALLY if x < SIZE / 2 else -_RALLY) * 0.6, y + (_RALLY if y < SIZE / 2 else -_RALLY) * 0.6)
    if unit.order == "IDLE" and distance(unit, spot) > _RALLY:
        yield order.move(unit, *spot)


def best_target(unit: Unit, enemies: Sequence[Unit]) -> Unit | None:
    """Best target of a unit: soon dead and soon reached; fighters before peasants before buildings."""
    hurt = [enemy for enemy in enemies if DAMAGE[unit.type, enemy.type] > 0]
    return min(hurt, key=lambda enemy: (_urgency(unit, enemy), enemy.ref), default=None)


def _urgency(unit: Unit, enemy: Unit) -> float:
    """About how many ticks until an enemy is dead; more for one that does no harm."""
    shots = enemy.hp / DAMAGE[unit.type, enemy.type]
    walk = max(0.0, distance(unit, enemy) - RANGE[unit.type]) / max(0.01, float(SPEED[unit.type]))
    ticks = shots * float(ATTACK_TICKS[unit.type]) + _WALK * walk
    if IS_BUILDING[enemy.type] and enemy.type not in (GUARD_TOWER, TOWN_HALL):
        return ticks + 2 * _LATER
    return ticks + (0 if _fights(enemy) else _LATER)
