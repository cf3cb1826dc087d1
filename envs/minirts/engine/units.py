"""Unit types and what they can do: costs, strengths, ranges, who makes whom.

Facts: Hu et al., "Hierarchical Decision Making by Generating and Following Natural Language Instructions" (2019), as
the game plays and not as papers tell; for instance, guard towers do attack.
"""

from __future__ import annotations

import numpy as np

NAMES = (
    "RESOURCE",
    "PEASANT",
    "SPEARMAN",
    "SWORDMAN",
    "CAVALRY",
    "DRAGON",
    "ARCHER",
    "CATAPULT",
    "BARRACK",
    "BLACKSMITH",
    "STABLE",
    "WORKSHOP",
    "AVIARY",
    "ARCHERY",
    "GUARD_TOWER",
    "TOWN_HALL",
)
"""Names by number. AVIARY and ARCHERY only keep their numbers; nobody builds them."""
(
    RESOURCE,
    PEASANT,
    SPEARMAN,
    SWORDMAN,
    CAVALRY,
    DRAGON,
    ARCHER,
    CATAPULT,
    BARRACK,
    BLACKSMITH,
    STABLE,
    WORKSHOP,
    AVIARY,
    ARCHERY,
    GUARD_TOWER,
    TOWN_HALL,
) = range(16)
NUM_TYPES = len(NAMES)
TYPE_OF = {name: number for number, name in enumerate(NAMES)}
"""Numbers by name."""

ARMY = (SPEARMAN, SWORDMAN, CAVALRY, DRAGON, ARCHER, CATAPULT)
"""Mobile fighters."""
BUILDINGS = (BARRACK, BLACKSMITH, STABLE, WORKSHOP, GUARD_TOWER, TOWN_HALL)
"""Types that peasants build."""

_STATS = {
    # type: cost, hp, defence, speed, attack, range, attack cool-down
    RESOURCE: (100_000, 1000, 1000, 0.0, 0, 0, 0),
    PEASANT: (50, 30, 0, 0.05, 3, 2, 25),
    SPEARMAN: (100, 100, 1, 0.05, 7, 2, 20),
    SWORDMAN: (100, 100, 1, 0.05, 7, 2, 20),
    CAVALRY: (100, 100, 1, 0.05, 7, 2, 20),
    DRAGON: (200, 100, 2, 0.04, 10, 5, 40),
    ARCHER: (100, 75, 0, 0.03, 7, 5, 40),
    CATAPULT: (100, 75, 2, 0.03, 10, 7, 40),
    BARRACK: (150, 250, 5, 0.0, 0, 0, 0),
    BLACKSMITH: (150, 250, 5, 0.0, 0, 0, 0),
    STABLE: (150, 250, 5, 0.0, 0, 0, 0),
    WORKSHOP: (200, 250, 5, 0.0, 0, 0, 0),
    GUARD_TOWER: (150, 100, 3, 0.0, 10, 5, 30),
    TOWN_HALL: (250, 350, 5, 0.0, 0, 0, 0),
}


def _column(number: int, dtype: type) -> np.ndarray:
    return np.array([_STATS[kind][number] if kind in _STATS else 0 for kind in range(NUM_TYPES)], dtype)


COST = _column(0, np.int32)
HP = _column(1, np.int32)
DEFENCE = _column(2, np.int32)
SPEED = _column(3, np.float32)
"""Cells per tick."""
ATTACK = _column(4, np.int32)
RANGE = _column(5, np.int32)
"""Cells."""
ATTACK_TICKS = _column(6, np.int32)
"""Ticks between two shots."""
SIGHT = 7
"""Manhattan distance that everything but a RESOURCE sees, in cells."""
GATHER_TICKS, BUILD_TICKS = 120, 250
"""Ticks a peasant needs to dig out a load, and to put up any building."""
TRAIN_TICKS = np.array([0] * 8 + [200, 200, 200, 200, 0, 0, 0, 50], np.int32)
"""Ticks a building needs for a unit."""
LOAD = 10
"""Money and resource hp per trip."""

MADE_BY = np.full(NUM_TYPES, -1, np.int32)
"""The type that makes a type; -1 if none does."""
MADE_BY[[PEASANT, SPEARMAN, SWORDMAN, CAVALRY]] = TOWN_HALL, BARRACK, BLACKSMITH, STABLE
MADE_BY[[DRAGON, ARCHER, CATAPULT]] = WORKSHOP
MADE_BY[list(BUILDINGS)] = PEASANT

IS_BUILDING = np.arange(NUM_TYPES) >= BARRACK
IS_MOBILE = (np.arange(NUM_TYPES) >= PEASANT) & ~IS_BUILDING
IS_ARMY = np.isin(np.arange(NUM_TYPES), ARMY)
CAN_ATTACK = ATTACK > 0
FLIES = np.arange(NUM_TYPES) == DRAGON
"""Types that cross water."""


def _multipliers() -> np.ndarray:
    melee = (SPEARMAN, SWORDMAN, CAVALRY)
    table = np.zeros((NUM_TYPES, NUM_TYPES), np.float32)
    houses = [kind for kind in range(BARRACK, NUM_TYPES) if kind != GUARD_TOWER]
    table[[*melee, DRAGON, GUARD_TOWER], PEASANT:] = 1
    table[list(melee), DRAGON] = 0
    for strong, weak in zip((SWORDMAN, SPEARMAN, CAVALRY), (SPEARMAN, CAVALRY, SWORDMAN), strict=True):
        table[strong, weak], table[weak, strong] = 1.5, 0.5
    table[DRAGON, ARCHER] = 0.5
    table[PEASANT, PEASANT] = 1
    table[PEASANT, SPEARMAN:BARRACK] = 0.7
    table[PEASANT, GUARD_TOWER], table[PEASANT, houses] = 1.5, 2
    table[ARCHER, PEASANT:BARRACK] = 0.5
    table[ARCHER, DRAGON] = 2
    table[ARCHER, CATAPULT:] = 1
    table[CATAPULT, [PEASANT, CATAPULT]] = 1
    table[CATAPULT, BARRACK:] = 2
    return table


MULTIPLIER = _multipliers()
"""float32 (attacker, target): what an attack is multiplied with before the target's defence is taken off."""
POWER = (ATTACK[:, None].astype(np.float32) * MULTIPLIER).astype(np.int32)
"""int32 (attacker, target): strength of a hit, cut to a whole number; 0 where an attack is pointless."""
DAMAGE = np.maximum(POWER - DEFENCE[None, :], 0)
"""int32 (attacker, target): hp taken per hit."""

COUNTER = {
    SPEARMAN: SWORDMAN,
    SWORDMAN: CAVALRY,
    CAVALRY: SPEARMAN,
    DRAGON: ARCHER,
    ARCHER: SWORDMAN,
    CATAPULT: SPEARMAN,
}
"""Type to make against each army type, by RED's oracle."""
VICTIM = {
    SWORDMAN: SPEARMAN,
    CAVALRY: SWORDMAN,
    SPEARMAN: CAVALRY,
    DRAGON: SPEARMAN,
    ARCHER: DRAGON,
    CATAPULT: CATAPULT,
}
"""Types that each army type beats."""

_PREFERENCES = {
    SWORDMAN: (SPEARMAN, GUARD_TOWER, ARCHER, CATAPULT, SWORDMAN, CAVALRY, PEASANT, TOWN_HALL),
    SPEARMAN: (CAVALRY, GUARD_TOWER, ARCHER, CATAPULT, SPEARMAN, SWORDMAN, PEASANT, TOWN_HALL),
    CAVALRY: (SWORDMAN, GUARD_TOWER, ARCHER, CATAPULT, CAVALRY, SPEARMAN, PEASANT, TOWN_HALL),
    **dict.fromkeys(
        (ARCHER, DRAGON, GUARD_TOWER),
        (DRAGON, GUARD_TOWER, ARCHER, CATAPULT, CAVALRY, SWORDMAN, SPEARMAN, PEASANT, TOWN_HALL),
    ),
    CATAPULT: (GUARD_TOWER, TOWN_HALL),
    PEASANT: (SWORDMAN, SPEARMAN, CAVALRY, DRAGON, ARCHER, CATAPULT, GUARD_TOWER, PEASANT, TOWN_HALL),
}
UNLISTED = 100
RANK = np.full((NUM_TYPES, NUM_TYPES), UNLISTED, np.int32)
"""int32 (attacker, target): place of a target in what scripted opponents like to attack; `UNLISTED` if it has none."""
for _attacker, _targets in _PREFERENCES.items():
    for _place, _target in enumerate(_targets):
        RANK[_attacker, _target] = _place
