"""Begin and end of orders to units. Compiled; `g` is a record `state.GAME`."""

from __future__ import annotations

import numpy as np

from rllib_llm_comm.envs.minirts.engine.collisions_and_sight import reference, resolve, take_off
from rllib_llm_comm.envs.minirts.engine.compiled_rule import rule
from rllib_llm_comm.envs.minirts.engine.state import ATTACK, BUILD, FINISHED, GATHER, IDLE, MOVE, NO_ONE, PENDING, TRAIN
from rllib_llm_comm.envs.minirts.engine.units import CAN_ATTACK, COST, IS_BUILDING, IS_MOBILE, MADE_BY, PEASANT

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
