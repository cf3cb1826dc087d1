"""View of a scripted opponent before it decides. Compiled; `g` is a `state.GAME`, `m` a `state.MEMORY`."""

from __future__ import annotations

import numpy as np

from rllib_llm_comm.envs.minirts.engine.collisions_and_sight import between2, in_sight, listed
from rllib_llm_comm.envs.minirts.engine.compiled_rule import rule
from rllib_llm_comm.envs.minirts.engine.state import (
    BASES,
    BUILD,
    ENEMIES,
    FINISHED,
    IDLE,
    IN_RANGE,
    NO_ONE,
    RESOURCES,
    THREATS,
    TRAIN,
)
from rllib_llm_comm.envs.minirts.engine.units import (
    GUARD_TOWER,
    IS_BUILDING,
    PEASANT,
    POWER,
    RANK,
    RESOURCE,
    TOWN_HALL,
    UNLISTED,
)

_THREAT2 = np.float32(25)
_ANYWHERE = np.float32(1e9)


@rule
def _add(m, which, slot):  # type: ignore[no-untyped-def]
    m.lists[which, m.list_size[which]] = slot
    m.list_size[which] += 1


@rule
def _look_at_own(g, m, player):  # type: ignore[no-untyped-def]
    m.own[:] = 0
    m.coming[:] = 0
    m.hall = NO_ONE
    for i in range(g.count[player]):
        slot = g.roster[player, i]
        kind = g.type[slot]
        if g.stage[slot] != FINISHED or kind == RESOURCE:
            continue
        m.own[kind] += 1
        if kind == TOWN_HALL and m.hall == NO_ONE:
            m.hall = slot
        if g.order[slot] == BUILD or g.order[slot] == TRAIN:
            m.coming[g.what[slot]] += 1
        m.wish[slot] = IDLE
    if g.ai_queued[player] >= 0:
        m.coming[g.ai_queued[player]] += 1


@rule
def _threatens(g, player, enemy):  # type: ignore[no-untyped-def]
    """True if an enemy is near a town hall or tower of the player."""
    for i in range(g.count[player]):
        slot = g.roster[player, i]
        guarded = g.type[slot] in (TOWN_HALL, GUARD_TOWER) and g.stage[slot] == FINISHED
        if guarded and between2(g, slot, enemy) < _THREAT2:
            return True
    return False


@rule
def look(g, m, player):  # type: ignore[no-untyped-def]
    """Fills the lists and counts.

    `own` are finished units by type, `coming` those under construction or queued, `hall` is the first town hall. Lists
    hold slots: `ENEMIES` listed, those `IN_RANGE` (in sight now), `THREATS` near halls and towers, `BASES` (buildings
    but towers) and `RESOURCES`.
    """
    _look_at_own(g, m, player)
    m.list_size[:] = 0
    for owner in range(2):
        for i in range(g.count[owner]):
            slot = g.roster[owner, i]
            kind = g.type[slot]
            if kind == RESOURCE:
                if listed(g, player, slot):
                    _add(m, RESOURCES, slot)
            elif owner != player and listed(g, player, slot):
                _add(m, ENEMIES, slot)
                if in_sight(g, player, slot):
                    _add(m, IN_RANGE, slot)
                if _threatens(g, player, slot):
                    _add(m, THREATS, slot)
                if IS_BUILDING[kind] and kind != GUARD_TOWER:
                    _add(m, BASES, slot)


@rule
def enemies_of(g, m, kind):  # type: ignore[no-untyped-def]
    """Listed enemies of a type."""
    count = 0
    for i in range(m.list_size[ENEMIES]):
        count += g.type[m.lists[ENEMIES, i]] == kind
    return count


@rule
def _nearest_builder(g, m, slot, which, reach2):  # type: ignore[no-untyped-def]
    best, best2 = NO_ONE, _ANYWHERE
    for i in range(m.list_size[which]):
        enemy = m.lists[which, i]
        away2 = between2(g, slot, enemy)
        if (g.order[enemy] == BUILD or g.order[enemy] == TRAIN) and away2 < best2 and away2 <= reach2:
            best, best2 = enemy, away2
    return best


@rule
def best_target(g, m, slot, which, reach2):  # type: ignore[no-untyped-def]
    """Preferred target of a fighter.

    Args:
        g: The game.
        m: With the lists.
        slot: The fighter.
        which: The list.
        reach2: Squared distance up to which enemies count.

    Returns:
        A slot, or -1 if there is nothing.
    """
    kind = g.type[slot]
    best, best_rank = NO_ONE, UNLISTED + 1
    for i in range(m.list_size[which]):
        enemy = m.lists[which, i]
        rank = RANK[kind, g.type[enemy]]
        if rank == UNLISTED and POWER[kind, g.type[enemy]] == 0:
            continue
        if between2(g, slot, enemy) <= reach2 and rank < best_rank:
            best, best_rank = enemy, rank
    if best != NO_ONE and g.type[best] == PEASANT:
        builder = _nearest_builder(g, m, slot, which, reach2 if kind == GUARD_TOWER else _ANYWHERE)
        if builder != NO_ONE:
            return builder
    return best
