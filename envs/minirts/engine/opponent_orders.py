"""Orders by which a scripted opponent carries out its plan. Compiled; it reads the view of `opponent_view`.

A unit gets at most one order per act, so the sequence matters: towers, peasants that drive off others, builders, a
scout, defenders, attackers, gatherers.
"""

from __future__ import annotations

import numpy as np

from rllib_llm_comm.envs.minirts.engine.collisions_and_sight import between2, distance2, free, reference
from rllib_llm_comm.envs.minirts.engine.compiled_rule import rule
from rllib_llm_comm.envs.minirts.engine.mapgen import SIZE
from rllib_llm_comm.envs.minirts.engine.opponent_plan import plan
from rllib_llm_comm.envs.minirts.engine.opponent_view import best_target, look
from rllib_llm_comm.envs.minirts.engine.random_stream import word
from rllib_llm_comm.envs.minirts.engine.state import (
    ATTACK,
    BASES,
    BUILD,
    ENEMIES,
    FINISHED,
    GATHER,
    IDLE,
    IN_RANGE,
    MOVE,
    NO_ONE,
    RESOURCES,
    THREATS,
    TRAIN,
)
from rllib_llm_comm.envs.minirts.engine.units import (
    ARCHER,
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
    SWORDMAN,
    TOWN_HALL,
)

_ANYWHERE = np.float32(1e9)
_TOWER_REACH2 = np.float32(24.999998)
_BUILDER_REACH2, _PEASANT_REACH2 = np.float32(64), np.float32(9)
_ARMY_REACH2 = np.float32(200)
_BUILD_REACH, _EDGE = 3, 2
_SCOUTS = np.array([DRAGON, PEASANT, SPEARMAN, CAVALRY, SWORDMAN, ARCHER], np.int32)
_RING_STEP = 4


@rule
def _wish_attack(g, m, slot, target):  # type: ignore[no-untyped-def]
    if target != NO_ONE:
        m.wish[slot], m.wish_target[slot] = ATTACK, reference(g, target)


@rule
def _free_peasant(g, m, slot):  # type: ignore[no-untyped-def]
    idle = g.order[slot] == IDLE or g.order[slot] == GATHER
    return g.type[slot] == PEASANT and idle and m.wish[slot] == IDLE


@rule
def _peasant_to_drive_off(g, m, slot):  # type: ignore[no-untyped-def]
    """An enemy peasant that builds less than 8 cells away, or is at most 3 away."""
    for i in range(m.list_size[ENEMIES]):
        enemy = m.lists[ENEMIES, i]
        if g.type[enemy] == PEASANT:
            away2 = between2(g, slot, enemy)
            if away2 <= _PEASANT_REACH2 or (away2 < _BUILDER_REACH2 and g.order[enemy] == BUILD):
                return enemy
    return NO_ONE


@rule
def _fight_at_home(g, m, player):  # type: ignore[no-untyped-def]
    for i in range(g.count[player]):
        slot = g.roster[player, i]
        # A tower that shoots already is left alone.
        if g.stage[slot] == FINISHED and g.type[slot] == GUARD_TOWER and g.order[slot] == IDLE:
            _wish_attack(g, m, slot, best_target(g, m, slot, IN_RANGE, _TOWER_REACH2))
    for i in range(g.count[player]):
        slot = g.roster[player, i]
        if _free_peasant(g, m, slot):
            _wish_attack(g, m, slot, _peasant_to_drive_off(g, m, slot))


@rule
def _idle_house(g, m, player, house):  # type: ignore[no-untyped-def]
    """The first idle building of a type; of town halls only the first comes into question."""
    for i in range(g.count[player]):
        slot = g.roster[player, i]
        if g.type[slot] == house and g.stage[slot] == FINISHED:
            if g.order[slot] == IDLE and m.wish[slot] == IDLE:
                return slot
            if house == TOWN_HALL:
                return NO_ONE
    return NO_ONE


@rule
def _chosen_already(g, m, player, x, y):  # type: ignore[no-untyped-def]
    for i in range(g.count[player]):
        slot = g.roster[player, i]
        if g.stage[slot] == FINISHED and m.wish[slot] == BUILD and m.wish_x[slot] == x and m.wish_y[slot] == y:
            return True
    return False


@rule
def _building_spot(g, m, player):  # type: ignore[no-untyped-def]
    """The first free place around the town hall, from the side of the map's centre; (-1, -1) if there is none."""
    hall_x, hall_y = g.x[m.hall], g.y[m.hall]
    sign_x = 1 if hall_x < SIZE // 2 else -1
    sign_y = 1 if hall_y < SIZE // 2 else -1
    for i in range(2 * _BUILD_REACH + 1):
        for j in range(2 * _BUILD_REACH + 1):
            x = hall_x + np.float32(sign_x * (_BUILD_REACH - i))
            y = hall_y + np.float32(sign_y * (_BUILD_REACH - j))
            if x < _EDGE or y < _EDGE or x >= SIZE - _EDGE or y >= SIZE - _EDGE:
                continue
            if free(g, x, y, PEASANT, NO_ONE) and not _chosen_already(g, m, player, x, y):
                return x, y
    return np.float32(-1), np.float32(-1)


@rule
def _nearest_unit(g, m, player, kind, x, y):  # type: ignore[no-untyped-def]
    """The nearest own unit of a type that neither builds nor has got an order."""
    best, best2 = NO_ONE, _ANYWHERE
    for i in range(g.count[player]):
        slot = g.roster[player, i]
        if g.type[slot] == kind and g.order[slot] != BUILD and m.wish[slot] == IDLE:
            away2 = distance2(g.x[slot], g.y[slot], x, y)
            if away2 < best2:
                best, best2 = slot, away2
    return best


@rule
def _make(g, m, player, kind):  # type: ignore[no-untyped-def]
    """Orders somebody to make a thing. Returns whether there is somebody."""
    if IS_BUILDING[kind]:
        x, y = _building_spot(g, m, player)
        maker = NO_ONE if x < 0 else _nearest_unit(g, m, player, PEASANT, x, y)
        if maker == NO_ONE:
            return False
        m.wish[maker], m.wish_x[maker], m.wish_y[maker] = BUILD, x, y
    else:
        maker = _idle_house(g, m, player, MADE_BY[kind])
        if maker == NO_ONE:
            return False
        m.wish[maker] = TRAIN
    m.wish_what[maker] = kind
    m.money_left -= COST[kind]
    return True


@rule
def _production(g, m, player):  # type: ignore[no-untyped-def]
    """First what is queued, then all that is wanted, in random order; what is too dear is queued."""
    types = np.arange(NUM_TYPES)
    for i in range(1, NUM_TYPES):
        j = word(g, player) % (i + 1)
        types[i], types[j] = types[j], types[i]
    m.money_left = g.money[player]
    queued = g.ai_queued[player]
    if queued >= 0 and m.money_left >= COST[queued]:
        _make(g, m, player, queued)
        g.ai_queued[player] = NO_ONE
    for kind in types:
        if m.wanted[kind] == 0:
            continue
        if m.money_left >= COST[kind]:
            _make(g, m, player, kind)
        elif g.ai_queued[player] < 0:
            g.ai_queued[player] = kind
        else:
            break


@rule
def _first_side(g, m):  # type: ignore[no-untyped-def]
    left, top = g.x[m.hall] <= SIZE // 2, g.y[m.hall] <= SIZE // 2
    if left:
        return 0 if top else 1
    return 3 if top else 2


@rule
def _unseen_waypoint(g, m, player):  # type: ignore[no-untyped-def]
    """The first way-point that was never seen, on rings from outside to inside; (-1, -1) if all were."""
    first = _first_side(g, m)
    for d in range(2, SIZE // 2, _RING_STEP):
        far = SIZE - d
        for k in range(4):
            side = (first + k) % 4
            x = d if side < 2 else far
            y = d if side == 0 or side == 3 else far
            step_x = _RING_STEP if side == 1 else (-_RING_STEP if side == 3 else 0)
            step_y = _RING_STEP if side == 0 else (-_RING_STEP if side == 2 else 0)
            while 0 < x <= far and 0 < y <= far:
                if g.seen[player, y * SIZE + x] == 0:
                    return np.float32(x), np.float32(y)
                x += step_x
                y += step_y
    return np.float32(-1), np.float32(-1)


@rule
def _send_scout(g, m, player):  # type: ignore[no-untyped-def]
    x, y = _unseen_waypoint(g, m, player)
    if x < 0:
        return
    for kind in _SCOUTS:
        slot = _nearest_unit(g, m, player, kind, x, y)
        if slot != NO_ONE:
            m.wish[slot], m.wish_x[slot], m.wish_y[slot] = MOVE, x, y
            return


@rule
def _army_attacks(g, m, player, which, reach2):  # type: ignore[no-untyped-def]
    for i in range(g.count[player]):
        slot = g.roster[player, i]
        if IS_ARMY[g.type[slot]] and m.wish[slot] == IDLE:
            _wish_attack(g, m, slot, best_target(g, m, slot, which, reach2))


@rule
def _nearest_hall(g, player, slot):  # type: ignore[no-untyped-def]
    best, best2 = NO_ONE, _ANYWHERE
    for i in range(g.count[player]):
        hall = g.roster[player, i]
        if g.type[hall] == TOWN_HALL and g.stage[hall] == FINISHED and between2(g, slot, hall) < best2:
            best, best2 = hall, between2(g, slot, hall)
    return best


@rule
def _resource_for(g, m, player, hall):  # type: ignore[no-untyped-def]
    """The resource nearest to a hall among those that lie nearer to it than to other halls."""
    best, best2 = NO_ONE, _ANYWHERE
    for i in range(m.list_size[RESOURCES]):
        resource = m.lists[RESOURCES, i]
        if between2(g, resource, hall) < best2 and _nearest_hall(g, player, resource) == hall:
            best, best2 = resource, between2(g, resource, hall)
    return best


@rule
def _gatherers(g, m, player):  # type: ignore[no-untyped-def]
    """Idle peasants go to the hall that got the fewest so far."""
    sent = np.zeros(g.count[player], np.int32)
    for i in range(g.count[player]):
        slot = g.roster[player, i]
        if g.type[slot] != PEASANT or g.order[slot] != IDLE or m.wish[slot] != IDLE:
            continue
        best, best_resource = NO_ONE, NO_ONE
        for j in range(g.count[player]):
            hall = g.roster[player, j]
            if g.type[hall] == TOWN_HALL and g.stage[hall] == FINISHED and (best == NO_ONE or sent[j] < sent[best]):
                resource = _resource_for(g, m, player, hall)
                if resource != NO_ONE:
                    best, best_resource = j, resource
        if best != NO_ONE:
            sent[best] += 1
            m.wish[slot], m.wish_target[slot] = GATHER, reference(g, best_resource)
            m.wish_hall[slot] = reference(g, g.roster[player, best])


@rule
def act(g, m, player):  # type: ignore[no-untyped-def]
    """A scripted opponent thinks and fills `m.wish` for its units: `IDLE`, or the kind of order it gives."""
    look(g, m, player)
    if m.hall == NO_ONE:
        return
    plan(g, m, player)
    _fight_at_home(g, m, player)
    _production(g, m, player)
    if m.scout:
        _send_scout(g, m, player)
    _army_attacks(g, m, player, THREATS, _ANYWHERE)
    _army_attacks(g, m, player, IN_RANGE, _ARMY_REACH2)
    if m.assault:
        _army_attacks(g, m, player, BASES, _ANYWHERE)
    _gatherers(g, m, player)
