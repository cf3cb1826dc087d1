"""Orders of units, tick by tick: how they begin and run, and the immediate commands in which they result.

What the phases of a tick want to be done is queued, and carried out at the tick's end, first in, first out. Compiled;
`g` is a `state.GAME`.
"""

from __future__ import annotations

import math

import numpy as np

from rllib_llm_comm.envs.minirts.engine.mapgen import SIZE
from rllib_llm_comm.envs.minirts.engine.movement import (
    between2,
    distance2,
    free,
    knows,
    reference,
    resolve,
    take_off,
    way,
)
from rllib_llm_comm.envs.minirts.engine.state import (
    ATTACK,
    BUILD,
    BULLETS,
    CELLS,
    FAILURE_TICKS,
    FINISHED,
    GATHER,
    IDLE,
    MOVE,
    NO_ONE,
    PENDING,
    PLACEHOLDER,
    QUEUE,
    SITE,
    SLOTS,
    TRAIN,
    rule,
)
from rllib_llm_comm.envs.minirts.engine.units import (
    ATTACK_TICKS,
    BUILD_TICKS,
    CAN_ATTACK,
    COST,
    DAMAGE,
    GATHER_TICKS,
    HP,
    IS_BUILDING,
    IS_MOBILE,
    LOAD,
    MADE_BY,
    PEASANT,
    POWER,
    RANGE,
    RESOURCE,
    SPEED,
    TRAIN_TICKS,
)

Q_MOVE, Q_SHOOT, Q_START_ATTACK, Q_START_GATHER, Q_START_BUILD, Q_HIT, Q_REMOVE, Q_CREATE, Q_PAY, Q_DIG = range(10)


@rule
def _put(g, kind, unit, other, value):  # type: ignore[no-untyped-def]
    at = g.queue_end
    if at >= QUEUE:
        return at - 1
    g.q_kind[at], g.q_unit[at], g.q_other[at], g.q_value[at] = kind, unit, other, value
    g.queue_end = at + 1
    return at


@rule
def queue_move(g, slot, x, y):  # type: ignore[no-untyped-def]
    """A unit goes to a place, if it is still free then."""
    at = _put(g, Q_MOVE, reference(g, slot), NO_ONE, 0)
    g.q_x[at], g.q_y[at] = x, y


@rule
def queue_shot(g, slot, target):  # type: ignore[no-untyped-def]
    """A unit fires at a unit (a reference)."""
    _put(g, Q_SHOOT, reference(g, slot), target, 0)


@rule
def queue_cooldown(g, slot, kind):  # type: ignore[no-untyped-def]
    """A unit's cool-down (`Q_START_ATTACK`, `Q_START_GATHER` or `Q_START_BUILD`) begins."""
    _put(g, kind, reference(g, slot), NO_ONE, 0)


@rule
def queue_hit(g, target, shooter, kind):  # type: ignore[no-untyped-def]
    """A bullet of a shooter of a type hits; both are references."""
    _put(g, Q_HIT, target, shooter, kind)


@rule
def queue_removal(g, unit):  # type: ignore[no-untyped-def]
    """A unit (a reference) goes."""
    _put(g, Q_REMOVE, unit, NO_ONE, 0)


@rule
def queue_creation(g, maker, kind, stage, x, y, cost):  # type: ignore[no-untyped-def]
    """A unit or a stage of a building comes; its maker is the unit in that slot."""
    at = _put(g, Q_CREATE, reference(g, maker), g.owner[maker], kind)
    g.q_extra[at], g.q_cost[at], g.q_x[at], g.q_y[at] = stage, cost, x, y


@rule
def queue_payment(g, player, amount, slot):  # type: ignore[no-untyped-def]
    """A player gets (or with a negative amount gives) money for what the unit in a slot does."""
    _put(g, Q_PAY, reference(g, slot), player, amount)


@rule
def queue_digging(g, resource):  # type: ignore[no-untyped-def]
    """A load is taken from a resource (a reference)."""
    _put(g, Q_DIG, resource, NO_ONE, 0)


DONE, DROPPED, NOT_ALLOWED = range(3)
"""End of an order: it runs, it is silently dropped, or it is one the unit can never get."""


@rule
def _send(g, unit, kind, target, hall, what, x, y):  # type: ignore[no-untyped-def]
    at = g.num_pending
    if at < PENDING:
        g.p_unit[at], g.p_kind[at], g.p_stamp[at] = unit, kind, g.tick
        g.p_target[at], g.p_hall[at], g.p_what[at] = target, hall, what
        g.p_x[at], g.p_y[at] = x, y
        g.num_pending = at + 1


@rule
def begin(g, at):  # type: ignore[no-untyped-def]
    """Begins a pending order instead of what its unit did. Returns the unit's slot, or -1 if it is gone."""
    slot = resolve(g, g.p_unit[at])
    if slot == NO_ONE:
        return NO_ONE
    cancel(g, slot)
    g.order[slot], g.started[slot], g.stamp[slot] = g.p_kind[at], g.p_stamp[at], g.p_stamp[at]
    g.step[slot], g.site[slot] = 0, NO_ONE
    g.number[slot] = g.next_number
    g.next_number += 1
    g.target[slot], g.hall[slot], g.what[slot] = g.p_target[at], g.p_hall[at], g.p_what[at]
    g.to_x[slot], g.to_y[slot] = g.p_x[at], g.p_y[at]
    if g.listed[slot] == 0:
        g.listed[slot] = 1
        g.agenda[g.agenda_size] = slot
        g.agenda_size += 1
    return slot


@rule
def cancel(g, slot):  # type: ignore[no-untyped-def]
    """Ends a unit's order before it is done, at once: what was paid comes back, an unfinished building goes."""
    kind = g.order[slot]
    g.order[slot] = IDLE
    if kind in (BUILD, TRAIN) and g.step[slot] > 0:
        g.money[g.owner[slot]] += COST[g.what[slot]]
        site = resolve(g, g.site[slot])
        if site != NO_ONE:
            take_off(g, site)


@rule
def _fits(g, slot, kind, what):  # type: ignore[no-untyped-def]
    """True if a unit is of a type that may get an order."""
    own = g.type[slot]
    if kind == MOVE:
        return IS_MOBILE[own]
    if kind == ATTACK:
        return CAN_ATTACK[own]
    if kind == GATHER:
        return own == PEASANT
    if what < 0 or what >= MADE_BY.size or MADE_BY[what] != own:
        return False
    return kind == BUILD or (kind == TRAIN and IS_BUILDING[own])


@rule
def _superfluous(g, slot, kind, target, hall):  # type: ignore[no-untyped-def]
    """True if an order says what the unit already does, or asks what cannot be."""
    if kind == ATTACK:
        enemy = resolve(g, target)
        same = g.order[slot] == ATTACK and g.target[slot] == target
        return same or (enemy != NO_ONE and g.stage[enemy] != FINISHED)
    if kind == GATHER:
        return g.order[slot] == GATHER and g.target[slot] == target and g.hall[slot] == hall
    return kind == TRAIN and g.order[slot] == TRAIN


@rule
def give(g, player, unit, kind, target, hall, what, x, y, filtered):  # type: ignore[no-untyped-def]
    """Takes over a player's order; the arguments are those of `state.ORDER`, and whether orders that say what the unit
    already does are dropped. Returns what became of it."""
    slot = resolve(g, unit)
    if slot == NO_ONE:
        return DROPPED
    if g.owner[slot] != player or g.stage[slot] != FINISHED or not _fits(g, slot, kind, what):
        return NOT_ALLOWED
    if filtered and _superfluous(g, slot, kind, target, hall):
        return DROPPED
    _send(g, unit, kind, target, hall, what, x, y)
    return DONE


@rule
def strike_back(g, slot, shooter):  # type: ignore[no-untyped-def]
    """A unit that was hit and has nothing to do attacks the shooter (a reference), from the next tick on."""
    if g.order[slot] == IDLE and CAN_ATTACK[g.type[slot]]:
        _send(g, reference(g, slot), ATTACK, shooter, NO_ONE, NO_ONE, np.float32(0), np.float32(0))


_NEAR2 = np.float32(1)
_STAY = np.float32(0.4)


@rule
def walk(g, m, slot, to_x, to_y):  # type: ignore[no-untyped-def]
    """Plans a step: straight on, or turned left or right where something is in the way.

    Returns:
        float32: the squared distance before the step.
    """
    x, y, kind = g.x[slot], g.y[slot], g.type[slot]
    left2 = distance2(x, y, to_x, to_y)
    dx, dy = to_x - x, to_y - y
    if left2 > _NEAR2:
        cell = way(g, m, slot, to_x, to_y, g.stamp[slot])
        if cell != CELLS:
            dx, dy = np.float32(cell % SIZE) - x, np.float32(cell // SIZE) - y
    if abs(dx) < _STAY and abs(dy) < _STAY:
        return left2
    length = np.float32(math.sqrt(dx * dx + dy * dy))
    if length > SPEED[kind]:
        shorter = SPEED[kind] / length
        dx, dy = dx * shorter, dy * shorter
    for step_x, step_y in ((dx, dy), (-dy, dx), (dy, -dx)):
        if free(g, x + step_x, y + step_y, kind, slot):
            queue_move(g, slot, x + step_x, y + step_y)
            return left2
    g.failed[g.tick % FAILURE_TICKS] += 1
    return left2


@rule
def counted(g, player):  # type: ignore[no-untyped-def]
    """A player's units and buildings, finished or not, without resources."""
    count = 0
    for i in range(g.count[player]):
        count += g.type[g.roster[player, i]] != RESOURCE
    return count


@rule
def add_unit(g, player, kind, stage, x, y):  # type: ignore[no-untyped-def]
    """Puts a new unit into a free slot. Returns the slot, or -1 if there is none left."""
    slot = 0
    while slot < SLOTS and g.serial[slot] != 0:
        slot += 1
    if slot == SLOTS:
        return NO_ONE
    g.serial[slot] = g.next_serial
    g.next_serial += 1
    g.owner[slot], g.type[slot], g.stage[slot], g.x[slot], g.y[slot] = player, kind, stage, x, y
    g.hp[slot] = HP[kind] if stage == FINISHED else 0
    g.created[slot] = g.tick
    g.last_attack[slot] = g.last_gather[slot] = g.last_build[slot] = 0
    g.sight_cell[slot] = NO_ONE
    g.known[0, slot] = g.known[1, slot] = 0
    g.order[slot] = IDLE
    g.roster[player, g.count[player]] = slot
    g.count[player] += 1
    return slot


@rule
def _move(g, slot, x, y):  # type: ignore[no-untyped-def]
    if free(g, x, y, g.type[slot], slot):
        g.x[slot], g.y[slot] = x, y


@rule
def _shoot(g, slot, target):  # type: ignore[no-untyped-def]
    at = g.num_bullets
    if at < BULLETS:
        g.b_shooter[at], g.b_target[at], g.b_type[at] = reference(g, slot), target, g.type[slot]
        g.b_x[at], g.b_y[at], g.b_gone_at[at] = g.x[slot], g.y[slot], 0
        g.num_bullets = at + 1


@rule
def _hit(g, slot, shooter, kind):  # type: ignore[no-untyped-def]
    damage = DAMAGE[kind, g.type[slot]]
    if damage == 0:
        return
    g.hp[slot] -= damage
    if g.hp[slot] <= 0:
        queue_removal(g, reference(g, slot))
    else:
        strike_back(g, slot, shooter)


@rule
def _create(g, at):  # type: ignore[no-untyped-def]
    player, kind, stage = g.q_other[at], g.q_value[at], g.q_extra[at]
    made = NO_ONE
    full = g.unit_cap > 0 and counted(g, player) >= g.unit_cap
    if not full and free(g, g.q_x[at], g.q_y[at], kind, NO_ONE):
        made = add_unit(g, player, kind, stage, g.q_x[at], g.q_y[at])
    if made == NO_ONE:
        g.money[player] += g.q_cost[at]
        return
    maker = resolve(g, g.q_unit[at])
    if stage != FINISHED and maker != NO_ONE and g.order[maker] == BUILD:
        g.site[maker] = reference(g, made)


@rule
def _pay(g, player, amount, slot):  # type: ignore[no-untyped-def]
    if g.money[player] + amount >= 0:
        g.money[player] += amount
    elif slot != NO_ONE:
        # Nothing was paid, so nothing comes back; a placeholder that is ordered already stays for ever.
        g.order[slot] = IDLE


@rule
def _dig(g, slot):  # type: ignore[no-untyped-def]
    g.hp[slot] -= LOAD
    if g.hp[slot] <= 0:
        queue_removal(g, reference(g, slot))


@rule
def _carry_out(g, at):  # type: ignore[no-untyped-def]
    kind, slot = g.q_kind[at], resolve(g, g.q_unit[at])
    if kind == Q_PAY:
        _pay(g, g.q_other[at], g.q_value[at], slot)
    elif kind == Q_CREATE:
        _create(g, at)
    elif slot == NO_ONE:
        return
    elif kind == Q_MOVE:
        _move(g, slot, g.q_x[at], g.q_y[at])
    elif kind == Q_SHOOT:
        _shoot(g, slot, g.q_other[at])
    elif kind == Q_START_ATTACK:
        g.last_attack[slot] = g.tick
    elif kind == Q_START_GATHER:
        g.last_gather[slot] = g.tick
    elif kind == Q_START_BUILD:
        g.last_build[slot] = g.tick
    elif kind == Q_HIT:
        _hit(g, slot, g.q_other[at], g.q_value[at])
    elif kind == Q_REMOVE:
        cancel(g, slot)
        take_off(g, slot)
    elif kind == Q_DIG:
        _dig(g, slot)


@rule
def carry_out_all(g):  # type: ignore[no-untyped-def]
    """Carries out all commands of the tick, also those that arise meanwhile."""
    at = 0
    while at < g.queue_end:
        _carry_out(g, at)
        at += 1
    g.queue_end = 0


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
def _move_on(g, m, slot):  # type: ignore[no-untyped-def]
    return walk(g, m, slot, g.to_x[slot], g.to_y[slot]) < _ARRIVED2


@rule
def _attack(g, m, slot):  # type: ignore[no-untyped-def]
    target, kind = resolve(g, g.target[slot]), g.type[slot]
    if target == NO_ONE or not knows(g, g.owner[slot], target) or POWER[kind, g.type[target]] == 0:
        return True
    if np.int32(between2(g, slot, target)) > RANGE[kind] * RANGE[kind]:
        walk(g, m, slot, g.x[target], g.y[target])
    elif g.stamp[slot] - g.last_attack[slot] >= ATTACK_TICKS[kind]:
        queue_shot(g, slot, g.target[slot])
        queue_cooldown(g, slot, Q_START_ATTACK)
    return False


@rule
def _gather(g, m, slot):  # type: ignore[no-untyped-def]
    resource, hall = resolve(g, g.target[slot]), resolve(g, g.hall[slot])
    if resource == NO_ONE or hall == NO_ONE:
        return True
    if g.step[slot] == 0:
        if walk(g, m, slot, g.x[resource], g.y[resource]) < _BESIDE2:
            queue_cooldown(g, slot, Q_START_GATHER)
            g.step[slot] = 1
    elif g.step[slot] == 1:
        if g.stamp[slot] - g.last_gather[slot] >= GATHER_TICKS:
            queue_digging(g, g.target[slot])
            g.step[slot] = 2
    elif walk(g, m, slot, g.x[hall], g.y[hall]) < _BESIDE2:
        queue_payment(g, g.owner[slot], LOAD, slot)
        g.step[slot] = 0
    return False


@rule
def _build(g, m, slot):  # type: ignore[no-untyped-def]
    kind, x, y = g.what[slot], g.to_x[slot], g.to_y[slot]
    if g.step[slot] == 0:
        queue_payment(g, g.owner[slot], -COST[kind], slot)
        if not free(g, x, y, kind, NO_ONE):
            queue_payment(g, g.owner[slot], COST[kind], slot)
            return True
        queue_creation(g, slot, kind, PLACEHOLDER, x, y, COST[kind])
        g.step[slot] = 1
    elif g.step[slot] == 1:
        if distance2(g.x[slot], g.y[slot], x, y) < _BESIDE2:
            queue_cooldown(g, slot, Q_START_BUILD)
            queue_removal(g, g.site[slot])
            queue_creation(g, slot, kind, SITE, x, y, COST[kind])
            g.step[slot] = 2
        elif _free_around(g, x, y, g.type[slot]) != NO_ONE:
            walk(g, m, slot, x, y)
    elif g.stamp[slot] - g.last_build[slot] >= BUILD_TICKS:
        queue_removal(g, g.site[slot])
        queue_creation(g, slot, kind, FINISHED, x, y, COST[kind])
        return True
    return False


@rule
def _train(g, slot):  # type: ignore[no-untyped-def]
    kind, house = g.what[slot], g.type[slot]
    if g.step[slot] == 0:
        queue_payment(g, g.owner[slot], -COST[kind], slot)
        g.step[slot] = 1
    elif g.step[slot] == 1:
        queue_cooldown(g, slot, Q_START_BUILD)
        g.step[slot] = 2
    elif g.stamp[slot] - g.last_build[slot] >= TRAIN_TICKS[house]:
        place = _free_around(g, g.x[slot], g.y[slot], house)
        if place != NO_ONE:
            x, y = g.x[slot] + _AROUND_X[place], g.y[slot] + _AROUND_Y[place]
            queue_creation(g, slot, kind, FINISHED, x, y, COST[kind])
            return True
    return False


@rule
def _run(g, m, slot):  # type: ignore[no-untyped-def]
    kind = g.order[slot]
    if kind == MOVE:
        return _move_on(g, m, slot)
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
        slot = np.int64(begin(g, at))
        if slot != NO_ONE:
            _run_and_close(g, m, slot)
    g.num_pending = 0
    _sort_agenda(g)
    for i in range(g.agenda_size):
        # The same type as above, or all of this would be compiled twice.
        slot = np.int64(g.agenda[i])
        if g.stamp[slot] == g.tick:
            _run_and_close(g, m, slot)
