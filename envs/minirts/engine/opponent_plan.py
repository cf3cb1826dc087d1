"""Plan of a scripted opponent: buildings, scouting and attack. Compiled; it reads the view of `opponent_view`."""

from __future__ import annotations

import numpy as np

from rllib_llm_comm.envs.minirts.engine.compiled_rule import rule
from rllib_llm_comm.envs.minirts.engine.opponent_view import enemies_of
from rllib_llm_comm.envs.minirts.engine.random_stream import uniform
from rllib_llm_comm.envs.minirts.engine.state import ENEMIES, IN_RANGE, NO_ONE, RESOURCES, THREATS
from rllib_llm_comm.envs.minirts.engine.units import (
    ARCHER,
    BARRACK,
    BLACKSMITH,
    CAVALRY,
    COST,
    DRAGON,
    GUARD_TOWER,
    IS_ARMY,
    IS_BUILDING,
    MADE_BY,
    NUM_TYPES,
    PEASANT,
    SPEARMAN,
    STABLE,
    SWORDMAN,
    TOWN_HALL,
    WORKSHOP,
)

FIXED, STRONG = 1, 2
"""Kinds of opponents: one that keeps to its types (simple, medium), and one that counters what it sees."""
_PEASANTS, _TOWERS = 5, 2
_RICH = 250
_ARMY_SEEN = np.array([DRAGON, SWORDMAN, SPEARMAN, CAVALRY, ARCHER], np.int32)
_PRODUCER_SEEN = np.array([WORKSHOP, BLACKSMITH, BARRACK, STABLE], np.int32)
_MELEE_CHOICE = np.array([SWORDMAN, CAVALRY, SPEARMAN], np.int32)
_MELEE_DRAWN = np.array([SPEARMAN, SWORDMAN, CAVALRY], np.int32)
_COUNTER = np.full(NUM_TYPES, NO_ONE, np.int32)
_COUNTER[[DRAGON, SWORDMAN, BLACKSMITH]] = ARCHER, CAVALRY, CAVALRY
_COUNTER[[SPEARMAN, BARRACK, CAVALRY, STABLE]] = SWORDMAN, SWORDMAN, SPEARMAN, SPEARMAN
_COUNTER[WORKSHOP] = DRAGON


@rule
def _want(m, kind):  # type: ignore[no-untyped-def]
    """Wants a thing if the budget allows it."""
    if m.budget >= COST[kind]:
        m.wanted[kind] = 1
        m.budget -= COST[kind]


@rule
def _army(m):  # type: ignore[no-untyped-def]
    size = 0
    for kind in range(NUM_TYPES):
        if IS_ARMY[kind]:
            size += m.own[kind]
    return size


@rule
def _producer(m, kind):  # type: ignore[no-untyped-def]
    house = MADE_BY[kind]
    if m.own[house] + m.coming[house] == 0:
        _want(m, house)


@rule
def _go(g, m, army, enough):  # type: ignore[no-untyped-def]
    """Attacks with a big enough army, or when nothing else is left."""
    if army >= enough or m.list_size[RESOURCES] == 0 or m.own[PEASANT] == 0:
        quiet = m.list_size[THREATS] == 0 and m.list_size[IN_RANGE] == 0
        if quiet and enemies_of(g, m, TOWN_HALL) == 0:
            m.scout = 1
        m.assault = 1


@rule
def _one_type(g, m, kind, enough, most):  # type: ignore[no-untyped-def]
    _producer(m, kind)
    army = _army(m)
    if m.own[MADE_BY[kind]] > 0 and army < most:
        _want(m, kind)
    _go(g, m, army, enough)


@rule
def _several_types(g, m, player):  # type: ignore[no-untyped-def]
    """The producers of all types first; then each type until it has its share, and the last one beyond."""
    size, enough = g.ai_num_types[player], 0
    for i in range(size):
        _producer(m, g.ai_types[player, i])
        enough += g.ai_mins[player, i]
    army = _army(m)
    for i in range(size):
        kind = g.ai_types[player, i]
        short = m.own[kind] < g.ai_mins[player, i] or i == size - 1
        if short and m.own[MADE_BY[kind]] > 0 and army < g.ai_max[player]:
            _want(m, kind)
            break
    _go(g, m, army, enough)


@rule
def _own_types(g, m, player):  # type: ignore[no-untyped-def]
    if g.ai_num_types[player] == 1:
        _one_type(g, m, g.ai_types[player, 0], g.ai_mins[player, 0], g.ai_max[player])
    else:
        _several_types(g, m, player)


@rule
def _towers(m):  # type: ignore[no-untyped-def]
    if m.own[GUARD_TOWER] + m.coming[GUARD_TOWER] < _TOWERS:
        _want(m, GUARD_TOWER)


@rule
def _remember(g, m, player):  # type: ignore[no-untyped-def]
    """Keeps for the whole game the army type seen last, and that a building of the enemy was known."""
    for i in range(m.list_size[ENEMIES]):
        if IS_BUILDING[g.type[m.lists[ENEMIES, i]]]:
            g.ai_found_base[player] = 1
    for kind in _ARMY_SEEN:
        if enemies_of(g, m, kind) > 0:
            g.ai_last_army[player] = kind
            return


@rule
def _seen(g, m, player):  # type: ignore[no-untyped-def]
    """The enemy's army type seen last, else a producer that is listed now, or -1."""
    if g.ai_last_army[player] >= 0:
        return g.ai_last_army[player]
    for kind in _PRODUCER_SEEN:
        if enemies_of(g, m, kind) > 0:
            return kind
    return np.int32(NO_ONE)


@rule
def _counter(g, m, player):  # type: ignore[no-untyped-def]
    """The type against what was seen, or -1 if nothing was.

    Against archers it is the first melee type whose producer stands, is under construction or is queued.
    """
    seen = _seen(g, m, player)
    if seen != ARCHER:
        return _COUNTER[seen] if seen >= 0 else NO_ONE
    for kind in _MELEE_CHOICE:
        if m.own[MADE_BY[kind]] + m.coming[MADE_BY[kind]] > 0:
            return kind
    return _MELEE_DRAWN[uniform(g, player, 0, 2)]


@rule
def _strong(g, m, player):  # type: ignore[no-untyped-def]
    _remember(g, m, player)
    kind = _counter(g, m, player)
    if kind != NO_ONE:
        _one_type(g, m, kind, g.ai_mins[player, 0], g.ai_max[player])
    else:
        # Scouts carefully: until any building of the enemy is known.
        if not g.ai_found_base[player]:
            m.scout = 1
        _towers(m)
        if g.money[player] >= _RICH:
            _one_type(g, m, DRAGON, g.ai_mins[player, 0], g.ai_max[player])


@rule
def plan(g, m, player):  # type: ignore[no-untyped-def]
    """Decides what is `wanted`, whether to `scout` and whether to start an `assault` on the enemy's base."""
    m.wanted[:] = 0
    m.scout = m.assault = 0
    m.budget = g.money[player]
    if m.own[PEASANT] + m.coming[PEASANT] < _PEASANTS:
        _want(m, PEASANT)
    if g.ai_kind[player] == STRONG:
        _strong(g, m, player)
    else:
        if g.ai_towers[player]:
            _towers(m)
        _own_types(g, m, player)
    if enemies_of(g, m, DRAGON) > 0:
        # Dragons are rushed.
        m.assault = 1
        if enemies_of(g, m, TOWN_HALL) == 0:
            m.scout = 1
