"""One tick of each kind of running order. Compiled; `g` is a record `state.GAME`, `m` a record `state.MEMORY`.

Orders read the state as it was at the tick's begin and only queue commands. Functions return whether an order ends.
"""

from __future__ import annotations

import numpy as np

from rllib_llm_comm.envs.minirts.engine import command_queue as commands
from rllib_llm_comm.envs.minirts.engine import order_rules as orders
from rllib_llm_comm.envs.minirts.engine.collisions_and_sight import between2, distance2, free, knows, resolve
from rllib_llm_comm.envs.minirts.engine.compiled_rule import rule
from rllib_llm_comm.envs.minirts.engine.state import (
    ATTACK,
    BUILD,
    FINISHED,
    GATHER,
    IDLE,
    MOVE,
    NO_ONE,
    PLACEHOLDER,
    SITE,
)
from rllib_llm_comm.envs.minirts.engine.units import (
    ATTACK_TICKS,
    BUILD_TICKS,
    COST,
    GATHER_TICKS,
    LOAD,
    POWER,
    RANGE,
    TRAIN_TICKS,
)
from rllib_llm_comm.envs.minirts.engine.walking import walk

_ARRIVED2 = np.float32(0.4)
_BESIDE2 = np.float32(1)
_AROUND_X = np.array([-1, 1, 0, 0, -1, -1, 1, 1, -2, 2, 0, 0], np.float32)
_AROUND_Y = np.array([0, 0, -1, 1, -1, 1, -1, 1, 0, 0, -2, 2], np.float32)


@rule
def _free_around(g, x, y, kind):  # type: ignore[no-untyped-def]
    """Number of the first free place around a place, or -1."""
    for i in range(_AROUND_X.size):
        if free(g, x + _AROUND_X[i], y + _AROUND_Y[i], kind, NO_ONE):
            return i
    return NO_ONE


@rule
def _move(g, m, slot):  # type: ignore[no-untyped-def]
    return walk(g, m, slot, g.to_x[slot], g.to_y[slot]) < _ARRIVED2


@rule
def _attack(g, m, slot):  # type: ignore[no-untyped-def]
    target, kind = resolve(g, g.target[slot]), g.type[slot]
    if target == NO_ONE or not knows(g, g.owner[slot], target) or POWER[kind, g.type[target]] == 0:
        return True
    if np.int32(between2(g, slot, target)) > RANGE[kind] * RANGE[kind]:
        walk(g, m, slot, g.x[target], g.y[target])
    elif g.stamp[slot] - g.last_attack[slot] >= ATTACK_TICKS[kind]:
        commands.shoot(g, slot, g.target[slot])
        commands.start_cooldown(g, slot, commands.START_ATTACK)
    return False


@rule
def _gather(g, m, slot):  # type: ignore[no-untyped-def]
    resource, hall = resolve(g, g.target[slot]), resolve(g, g.hall[slot])
    if resource == NO_ONE or hall == NO_ONE:
        return True
    if g.step[slot] == 0:
        if walk(g, m, slot, g.x[resource], g.y[resource]) < _BESIDE2:
            commands.start_cooldown(g, slot, commands.START_GATHER)
            g.step[slot] = 1
    elif g.step[slot] == 1:
        if g.stamp[slot] - g.last_gather[slot] >= GATHER_TICKS:
            commands.dig(g, g.target[slot])
            g.step[slot] = 2
    elif walk(g, m, slot, g.x[hall], g.y[hall]) < _BESIDE2:
        commands.pay(g, g.owner[slot], LOAD, slot)
        g.step[slot] = 0
    return False


@rule
def _build(g, m, slot):  # type: ignore[no-untyped-def]
    kind, x, y = g.what[slot], g.to_x[slot], g.to_y[slot]
    if g.step[slot] == 0:
        commands.pay(g, g.owner[slot], -COST[kind], slot)
        if not free(g, x, y, kind, NO_ONE):
            commands.pay(g, g.owner[slot], COST[kind], slot)
            return True
        commands.create(g, slot, kind, PLACEHOLDER, x, y, COST[kind])
        g.step[slot] = 1
    elif g.step[slot] == 1:
        if distance2(g.x[slot], g.y[slot], x, y) < _BESIDE2:
            commands.start_cooldown(g, slot, commands.START_BUILD)
            commands.remove(g, g.site[slot])
            commands.create(g, slot, kind, SITE, x, y, COST[kind])
            g.step[slot] = 2
        elif _free_around(g, x, y, g.type[slot]) != NO_ONE:
            walk(g, m, slot, x, y)
    elif g.stamp[slot] - g.last_build[slot] >= BUILD_TICKS:
        commands.remove(g, g.site[slot])
        commands.create(g, slot, kind, FINISHED, x, y, COST[kind])
        return True
    return False


@rule
def _train(g, slot):  # type: ignore[no-untyped-def]
    kind, house = g.what[slot], g.type[slot]
    if g.step[slot] == 0:
        commands.pay(g, g.owner[slot], -COST[kind], slot)
        g.step[slot] = 1
    elif g.step[slot] == 1:
        commands.start_cooldown(g, slot, commands.START_BUILD)
        g.step[slot] = 2
    elif g.stamp[slot] - g.last_build[slot] >= TRAIN_TICKS[house]:
        place = _free_around(g, g.x[slot], g.y[slot], house)
        if place != NO_ONE:
            x, y = g.x[slot] + _AROUND_X[place], g.y[slot] + _AROUND_Y[place]
            commands.create(g, slot, kind, FINISHED, x, y, COST[kind])
            return True
    return False


@rule
def _run(g, m, slot):  # type: ignore[no-untyped-def]
    kind = g.order[slot]
    if kind == MOVE:
        return _move(g, m, slot)
    if kind == ATTACK:
        return _attack(g, m, slot)
    if kind == GATHER:
        return _gather(g, m, slot)
    if kind == BUILD:
        return _build(g, m, slot)
    return _train(g, slot)


@rule
def _run_and_close(g, m, slot):  # type: ignore[no-untyped-def]
    if _run(g, m, slot):
        g.order[slot] = IDLE
    g.stamp[slot] = g.tick + 1


@rule
def _before(g, a, b):  # type: ignore[no-untyped-def]
    """True if the order of slot a runs before that of slot b: later ones first."""
    if g.started[a] != g.started[b]:
        return g.started[a] > g.started[b]
    return g.number[a] < g.number[b]


@rule
def _sort_agenda(g):  # type: ignore[no-untyped-def]
    """Drops what ended and sorts the rest; it is almost sorted from the tick before."""
    size = 0
    for i in range(g.agenda_size):
        slot = g.agenda[i]
        if g.serial[slot] == 0 or g.order[slot] == IDLE:
            g.listed[slot] = 0
            continue
        at = size
        while at > 0 and _before(g, slot, g.agenda[at - 1]):
            g.agenda[at] = g.agenda[at - 1]
            at -= 1
        g.agenda[at] = slot
        size += 1
    g.agenda_size = size


@rule
def run_orders(g, m):  # type: ignore[no-untyped-def]
    """One tick of all orders: new ones begin and run first, those of the tick before (counter-attacks) before all.

    A new order replaces the unit's old one only when it begins, so a unit that strikes back and is ordered to do
    something else in the next tick may still shoot once.
    """
    for at in range(g.num_pending):
        slot = np.int64(orders.begin(g, at))
        if slot != NO_ONE:
            _run_and_close(g, m, slot)
    g.num_pending = 0
    _sort_agenda(g)
    for i in range(g.agenda_size):
        # The same type as above, or all of this would be compiled twice.
        slot = np.int64(g.agenda[i])
        if g.stamp[slot] == g.tick:
            _run_and_close(g, m, slot)
