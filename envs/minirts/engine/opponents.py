"""Scripted opponents, as the original plays them: simple, medium with one, two or three army types, strong.

Their names and random choices, then what they see, plan and order, which is compiled; `g` is a `state.GAME`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rllib_llm_comm.core.errors import UserError, did_you_mean, require_choice
from rllib_llm_comm.envs.minirts.engine.mapgen import SIZE
from rllib_llm_comm.envs.minirts.engine.movement import between2, distance2, free, in_sight, listed, reference
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
    draw,
    rule,
    seed_stream,
    uniform,
    word,
)
from rllib_llm_comm.envs.minirts.engine.units import (
    ARCHER,
    ARMY,
    BARRACK,
    BLACKSMITH,
    CAVALRY,
    COST,
    DRAGON,
    GUARD_TOWER,
    IS_ARMY,
    IS_BUILDING,
    MADE_BY,
    NAMES,
    NUM_TYPES,
    PEASANT,
    POWER,
    RANK,
    RESOURCE,
    SPEARMAN,
    STABLE,
    SWORDMAN,
    TOWN_HALL,
    TYPE_OF,
    UNLISTED,
    WORKSHOP,
)

LEVELS = ("simple", "medium", "medium2", "medium3", "strong")
"""simple attacks with three units, medium with three to five of one type, medium2 and medium3 mix two or three types,
strong makes what beats what it sees."""
TOWER = "_tower"
"""Ending of a name, such as "medium_tower": up to two guard towers are built, too. strong builds them anyway."""
DRAWN_TYPES = (SPEARMAN, SWORDMAN, CAVALRY, ARCHER, DRAGON)
"""Army types that opponents draw, each as likely."""
_SIMPLE_ARMY = 3


@dataclass(frozen=True)
class Opponent:
    """Scripted opponent as its name describes it.

    Attributes:
        level: One of `LEVELS`.
        towers: Whether it builds guard towers.
        types: Army types that are fixed; the others are drawn for each game.
    """

    level: str
    towers: bool
    types: tuple[int, ...]

    @property
    def num_types(self) -> int:
        """Number of army types that it keeps to; "strong" keeps to none."""
        return {"medium2": 2, "medium3": 3, "strong": 0}.get(self.level, 1)


@dataclass(frozen=True)
class Drawn:
    """Random choices of an opponent for one game.

    Attributes:
        types: Its army types; none for strong.
        least: Size of the army from which on it attacks.
        most: Size up to which the army grows.
    """

    types: tuple[int, ...]
    least: int
    most: int


def parse(name: str) -> Opponent:
    """Reads an opponent's name.

    Args:
        name: A level, perhaps with the ending "_tower", perhaps with army types: "medium_tower:DRAGON",
            "medium2:SPEARMAN+ARCHER".

    Raises:
        UserError: If there is no such opponent.
    """
    level, _, listed = str(name).partition(":")
    towers = level.endswith(TOWER)
    level = level.removesuffix(TOWER)
    if level not in LEVELS:
        raise UserError(
            f"`opponent` is {name!r} but must be one of {', '.join(map(repr, LEVELS))}, perhaps with {TOWER!r} "
            f"behind it and army types, such as 'medium{TOWER}:DRAGON'.{did_you_mean(level, LEVELS)}",
            "unknown",
        )
    kinds = listed.split("+") if listed else []
    for kind in kinds:
        require_choice(f"opponent {name}", kind, [NAMES[army] for army in ARMY])
    opponent = Opponent(level, towers, tuple(TYPE_OF[kind] for kind in kinds))
    if len(kinds) > opponent.num_types:
        raise UserError(
            f"`opponent` is {name!r} with {len(kinds)} army types, but {level!r} takes at most {opponent.num_types}; "
            "omit some, or take medium2 or medium3."
        )
    return opponent


def enter(record: np.ndarray, player: int, name: str, seed: int, every: int) -> None:
    """Lets a scripted opponent play from now on, every so many ticks; it draws its types and army sizes.

    Both sides may have the same seed.
    """
    opponent = parse(name)
    g = record[0]
    seed_stream(record, player, (player << 20) + seed)
    g["ai_kind"][player] = STRONG if opponent.level == "strong" else FIXED
    g["ai_every"][player], g["ai_towers"][player] = every, opponent.towers
    g["ai_queued"][player] = g["ai_last_army"][player] = NO_ONE
    g["ai_found_base"][player] = 0
    types = list(opponent.types)
    while len(types) < opponent.num_types:
        left = [kind for kind in DRAWN_TYPES if kind not in types]
        types.append(left[draw(g, player, 0, len(left) - 1)])
    if opponent.level == "simple":
        least = most = _SIMPLE_ARMY
    elif opponent.level == "strong":
        least, most = draw(g, player, 3, 5), draw(g, player, 5, 7)
    else:
        most, least = draw(g, player, 5, 7), draw(g, player, 3, 5)
    count = max(1, len(types))
    g["ai_num_types"][player], g["ai_max"][player] = count, most
    g["ai_types"][player, : len(types)] = types
    # The first types make up what cannot be shared out evenly.
    g["ai_mins"][player, :count] = [least // count + (i < least % count) for i in range(count)]


def drawn(record: np.ndarray, player: int) -> Drawn:
    """Random choices of a scripted opponent."""
    g = record[0]
    count = int(g["ai_num_types"][player])
    types = () if g["ai_kind"][player] == STRONG else tuple(g["ai_types"][player, :count].tolist())
    return Drawn(types, int(g["ai_mins"][player, :count].sum()), int(g["ai_max"][player]))


_ANYWHERE = np.float32(1e9)

_THREAT2 = np.float32(25)


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
    """Preferred target of a fighter on a list, up to a squared distance: a slot, or -1 if there is nothing."""
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
    """The type against what was seen (archers: the first melee type that has or gets a producer), or -1 for none."""
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
