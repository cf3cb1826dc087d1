"""Immediate commands: what a tick's phases want to be done at its end, first in, first out. Compiled.

`g` is a record `state.GAME`. `command_execution` carries them out.
"""

from __future__ import annotations

from rllib_llm_comm.envs.minirts.engine.movement import reference
from rllib_llm_comm.envs.minirts.engine.state import NO_ONE, QUEUE, rule

MOVE, SHOOT, START_ATTACK, START_GATHER, START_BUILD, HIT, REMOVE, CREATE, PAY, DIG = range(10)


@rule
def _put(g, kind, unit, other, value):  # type: ignore[no-untyped-def]
    at = g.queue_end
    if at >= QUEUE:
        return at - 1
    g.q_kind[at], g.q_unit[at], g.q_other[at], g.q_value[at] = kind, unit, other, value
    g.queue_end = at + 1
    return at


@rule
def move(g, slot, x, y):  # type: ignore[no-untyped-def]
    """A unit goes to a place, if it is still free then."""
    at = _put(g, MOVE, reference(g, slot), NO_ONE, 0)
    g.q_x[at], g.q_y[at] = x, y


@rule
def shoot(g, slot, target):  # type: ignore[no-untyped-def]
    """A unit fires at a unit (a reference)."""
    _put(g, SHOOT, reference(g, slot), target, 0)


@rule
def start_cooldown(g, slot, kind):  # type: ignore[no-untyped-def]
    """A unit's cool-down (`START_ATTACK`, `START_GATHER` or `START_BUILD`) begins."""
    _put(g, kind, reference(g, slot), NO_ONE, 0)


@rule
def hit(g, target, shooter, kind):  # type: ignore[no-untyped-def]
    """A bullet of a shooter of a type hits; both are references."""
    _put(g, HIT, target, shooter, kind)


@rule
def remove(g, unit):  # type: ignore[no-untyped-def]
    """A unit (a reference) goes."""
    _put(g, REMOVE, unit, NO_ONE, 0)


@rule
def create(g, maker, kind, stage, x, y, cost):  # type: ignore[no-untyped-def]
    """A unit or a stage of a building comes; its maker is the unit in that slot."""
    at = _put(g, CREATE, reference(g, maker), g.owner[maker], kind)
    g.q_extra[at], g.q_cost[at], g.q_x[at], g.q_y[at] = stage, cost, x, y


@rule
def pay(g, player, amount, slot):  # type: ignore[no-untyped-def]
    """A player gets (or with a negative amount gives) money for what the unit in a slot does."""
    _put(g, PAY, reference(g, slot), player, amount)


@rule
def dig(g, resource):  # type: ignore[no-untyped-def]
    """A load is taken from a resource (a reference)."""
    _put(g, DIG, resource, NO_ONE, 0)
