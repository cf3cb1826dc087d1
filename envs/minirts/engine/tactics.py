"""Tactics of armies: choice of targets, times to move, places to gather."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rllib_llm_comm.envs.minirts.commanders.tasks import ATTACK, SCOUT
from rllib_llm_comm.envs.minirts.engine import unit_order as order
from rllib_llm_comm.envs.minirts.engine.mapgen import SIZE
from rllib_llm_comm.envs.minirts.engine.places import unexplored
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

_AWARE = 9.0
"""Enemies this near to a fighter are fought before anything else, in cells."""
_RALLY = 4.0
_WALK = 1.0
_LATER = 1e6


def towers(side: Side, units: Sequence[Unit]) -> Iterator[Order]:
    """Guard towers shoot at what is in reach.

    Args:
        side: The side.
        units: The towers.
    """
    for tower in units:
        near = [enemy for enemy in side.enemies if distance(tower, enemy) <= RANGE[GUARD_TOWER]]
        if tower.order == "IDLE" and (best := best_target(tower, near)):
            yield order.attack(tower, best)


def army(side: Side, commander: int, stance: str) -> Iterator[Order]:
    """Orders of a commander's fighters; one peasant where "scout" finds no fighter.

    Args:
        side: The side.
        commander: Its number.
        stance: "attack", "defend" or "scout".
    """
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
    """Best target of a unit: soon dead and soon reached; fighters before peasants before buildings.

    Args:
        unit: The attacking unit.
        enemies: Among whom.
    """
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
