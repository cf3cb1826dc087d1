"""A tick of the game, and many. Compiled; `g` is a record `state.GAME`, `m` a record `state.MEMORY`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import numpy as np
from numba import njit

from rllib_llm_comm.envs.compiling import compiling
from rllib_llm_comm.envs.minirts.engine import command_queue as commands
from rllib_llm_comm.envs.minirts.engine import state
from rllib_llm_comm.envs.minirts.engine import unit_commands as orders
from rllib_llm_comm.envs.minirts.engine.movement import reference, resolve, update_fog
from rllib_llm_comm.envs.minirts.engine.opponent_rules import act
from rllib_llm_comm.envs.minirts.engine.state import (
    BROKEN,
    DRAWN,
    FAILURE_TICKS,
    FINISHED,
    IDLE,
    NO_ONE,
    RUNNING,
    SITE,
    WON,
    fingerprint,
    rule,
    seed_stream,
    uniform,
)
from rllib_llm_comm.envs.minirts.engine.unit_commands import add_unit, carry_out_all, run_orders
from rllib_llm_comm.envs.minirts.engine.units import BUILD_TICKS, HP, IS_MOBILE, TOWN_HALL

_BULLET_STEP = np.float32(0.2)
_HITS2 = np.float32(0.3) * np.float32(0.3)
_EXPLOSION_TICKS = 3
_MAX_FAILURES = 250
_POOR = 50


@rule
def _progress(g):  # type: ignore[no-untyped-def]
    """Construction sites grow."""
    for player in range(2):
        for i in range(g.count[player]):
            slot = g.roster[player, i]
            if g.stage[slot] == SITE:
                full = HP[g.type[slot]]
                # In this order and in float64, as the original rounds.
                g.hp[slot] = min(full, np.int32((g.tick - g.created[slot]) / BUILD_TICKS * full))


@rule
def _fly(g, at, target):  # type: ignore[no-untyped-def]
    """Moves a bullet towards the unit in a slot. Returns whether it is there already."""
    dx, dy = g.x[target] - g.b_x[at], g.y[target] - g.b_y[at]
    if dx * dx + dy * dy < _HITS2:
        return True
    length = np.float32(math.sqrt(dx * dx + dy * dy))
    # The quotient is rounded first, as in the original.
    shorter = _BULLET_STEP / length
    g.b_x[at] += dx * shorter
    g.b_y[at] += dy * shorter
    return False


@rule
def _drop_gone(g):  # type: ignore[no-untyped-def]
    """Takes off the bullets that are gone; the last one gets the number of each."""
    for at in range(g.num_bullets - 1, -1, -1):
        if 0 < g.b_gone_at[at] <= g.tick:
            last = g.num_bullets - 1
            g.b_shooter[at], g.b_target[at], g.b_type[at] = g.b_shooter[last], g.b_target[last], g.b_type[last]
            g.b_x[at], g.b_y[at], g.b_gone_at[at] = g.b_x[last], g.b_y[last], g.b_gone_at[last]
            g.num_bullets = last


@rule
def _bullets(g):  # type: ignore[no-untyped-def]
    """Bullets fly on, hit, or are lost because their target is gone.

    One that hit keeps its number for a while. This matters because the numbers tell which of two hits in a tick comes
    first, and so at whom a unit strikes back.
    """
    for at in range(g.num_bullets):
        if g.b_gone_at[at] > 0:
            continue
        target = resolve(g, g.b_target[at])
        if target == NO_ONE:
            g.b_gone_at[at] = g.tick
        elif _fly(g, at, target):
            commands.hit(g, g.b_target[at], g.b_shooter[at], g.b_type[at])
            g.b_gone_at[at] = g.tick + _EXPLOSION_TICKS
    _drop_gone(g)


@rule
def winner(g):  # type: ignore[no-untyped-def]
    """Present winner, or -1: the only one with a town hall, else the only one that is not ruined.

    Ruined is who has no money for a peasant and nothing that walks.
    """
    has_hall, ruined = np.zeros(2, np.bool_), np.zeros(2, np.bool_)
    for player in range(2):
        mobile = False
        for i in range(g.count[player]):
            kind = g.type[g.roster[player, i]]
            has_hall[player] |= kind == TOWN_HALL
            mobile |= IS_MOBILE[kind]
        ruined[player] = not mobile and g.money[player] < _POOR
    if has_hall[0] != has_hall[1]:
        return 0 if has_hall[0] else 1
    if ruined[0] != ruined[1]:
        return 1 if ruined[0] else 0
    return NO_ONE


@rule
def _judge(g):  # type: ignore[no-untyped-def]
    g.winner = winner(g)
    failures = 0
    for i in range(FAILURE_TICKS):
        failures += g.failed[i]
    if g.winner != NO_ONE:
        g.status = WON
    elif failures >= _MAX_FAILURES:
        g.status = BROKEN
    elif g.max_tick > 0 and g.tick >= g.max_tick:
        g.status = DRAWN


@rule
def _give_wishes(g, m, player):  # type: ignore[no-untyped-def]
    for i in range(g.count[player]):
        slot = g.roster[player, i]
        if g.stage[slot] != FINISHED or m.wish[slot] == IDLE:
            continue
        kind, target, hall, what = m.wish[slot], m.wish_target[slot], m.wish_hall[slot], m.wish_what[slot]
        orders.give(g, player, reference(g, slot), kind, target, hall, what, m.wish_x[slot], m.wish_y[slot], True)


@rule
def _opponents_act(g, m):  # type: ignore[no-untyped-def]
    """Scripted opponents whose turn it is think on the same state; then their orders are given, by unit."""
    for player in range(2):
        for i in range(g.count[player]):
            slot = g.roster[player, i]
            m.wish[slot], m.wish_target[slot], m.wish_hall[slot], m.wish_what[slot] = IDLE, NO_ONE, NO_ONE, NO_ONE
            m.wish_x[slot] = m.wish_y[slot] = 0
    for player in range(2):
        if g.ai_kind[player] and (g.tick + 1) % g.ai_every[player] == 0:
            act(g, m, player)
    for player in range(2):
        _give_wishes(g, m, player)


@rule
def tick(g, m, given, codes, filtered):  # type: ignore[no-untyped-def]
    """One tick; `g.tick` stays.

    Args:
        g: The game.
        m: Memory of the path planners.
        given: Records `state.ORDER` that players give in this tick.
        codes: int32, as long: what became of each order; see `rllib_llm_comm.envs.minirts.engine.unit_commands`.
        filtered: Whether orders that say what the unit already does are dropped.
    """
    g.failed[g.tick % FAILURE_TICKS] = 0
    _progress(g)
    for i in range(given.size):
        o = given[i]
        codes[i] = orders.give(g, o.player, o.unit, o.kind, o.target, o.hall, o.what, o.x, o.y, filtered)
    if g.ai_kind[0] or g.ai_kind[1]:
        _opponents_act(g, m)
    _bullets(g)
    run_orders(g, m)
    carry_out_all(g)
    update_fog(g)
    _judge(g)


def _entrances(sources: int) -> tuple[Callable[..., Any], ...]:
    """Entry points for Python; numba keeps only these on disk, with all that they call, as long as `sources` stays."""

    @njit(cache=True, nogil=True)
    def run(g, m, given, codes, filtered, ticks, to_the_end):  # type: ignore[no-untyped-def]
        """Ticks until so many have passed or, with `to_the_end`, the game is over; `tick` tells the other arguments."""
        _ = sources
        none = given[:0]
        for i in range(ticks):
            if to_the_end and g.status != RUNNING:
                return
            tick(g, m, given if i == 0 else none, codes, filtered)
            if not to_the_end or g.status == RUNNING:
                g.tick += 1

    @njit(cache=True, nogil=True)
    def begin(g, owners, kinds, places):  # type: ignore[no-untyped-def]
        """As `begin` below, with players and types, int32 (N,), and places, float32 (N, 2), of the units."""
        _ = sources
        for i in range(owners.size):
            add_unit(g, owners[i], kinds[i], FINISHED, places[i, 0], places[i, 1])
        update_fog(g)

    @njit(cache=True, nogil=True)
    def draw(g, player, low, high):  # type: ignore[no-untyped-def]
        """A whole number from low to high, both included, of a scripted opponent's stream."""
        _ = sources
        return uniform(g, player, low, high)

    return run, begin, draw


run, _begin, draw = _entrances(fingerprint())


def begin(g: Any, units: Iterable[tuple[int, int, float, float]]) -> None:
    """Puts the first units, (player, type, x, y) in the order of creation, into a new game and looks around."""
    table = np.array(list(units), np.float32).reshape(-1, 4)
    _begin(g, table[:, 0].astype(np.int32), table[:, 1].astype(np.int32), np.ascontiguousarray(table[:, 2:]))


@cache
def compile_rules() -> None:
    """Makes sure that the rules are compiled; numba keeps them on disk, so that later processes only load them."""
    with compiling("MiniRTS", "about a minute"):
        record, memory = state.new_game(), state.new_memory()
        begin(record[0], ())
        seed_stream(record, 0, 0)
        draw(record[0], 0, 0, 1)
        run(record[0], memory[0], np.zeros(0, state.ORDER), np.zeros(0, np.int32), True, 0, True)
