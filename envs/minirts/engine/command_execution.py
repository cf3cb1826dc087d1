"""Carries out immediate commands. Compiled; `g` is a record `state.GAME`."""

from __future__ import annotations

from rllib_llm_comm.envs.minirts.engine import command_queue as commands
from rllib_llm_comm.envs.minirts.engine import order_rules as orders
from rllib_llm_comm.envs.minirts.engine.collisions_and_sight import free, reference, resolve, take_off
from rllib_llm_comm.envs.minirts.engine.compiled_rule import rule
from rllib_llm_comm.envs.minirts.engine.state import BUILD, BULLETS, FINISHED, IDLE, NO_ONE, SLOTS
from rllib_llm_comm.envs.minirts.engine.units import DAMAGE, HP, LOAD, RESOURCE


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
        commands.remove(g, reference(g, slot))
    else:
        orders.strike_back(g, slot, shooter)


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
        commands.remove(g, reference(g, slot))


@rule
def _carry_out(g, at):  # type: ignore[no-untyped-def]
    kind, slot = g.q_kind[at], resolve(g, g.q_unit[at])
    if kind == commands.PAY:
        _pay(g, g.q_other[at], g.q_value[at], slot)
    elif kind == commands.CREATE:
        _create(g, at)
    elif slot == NO_ONE:
        return
    elif kind == commands.MOVE:
        _move(g, slot, g.q_x[at], g.q_y[at])
    elif kind == commands.SHOOT:
        _shoot(g, slot, g.q_other[at])
    elif kind == commands.START_ATTACK:
        g.last_attack[slot] = g.tick
    elif kind == commands.START_GATHER:
        g.last_gather[slot] = g.tick
    elif kind == commands.START_BUILD:
        g.last_build[slot] = g.tick
    elif kind == commands.HIT:
        _hit(g, slot, g.q_other[at], g.q_value[at])
    elif kind == commands.REMOVE:
        orders.cancel(g, slot)
        take_off(g, slot)
    elif kind == commands.DIG:
        _dig(g, slot)


@rule
def carry_out_all(g):  # type: ignore[no-untyped-def]
    """Carries out all commands of the tick, also those that arise meanwhile."""
    at = 0
    while at < g.queue_end:
        _carry_out(g, at)
        at += 1
    g.queue_end = 0
