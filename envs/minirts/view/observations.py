"""Numeric observations of a commander: planes of the map, lists of units, counts.

Laid out after the original's learning interface (RULES of the engine: 42 planes, lists of up to 50, counts), with one
plane and one column more that tell which units are the commander's own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from rllib_llm_comm.envs.minirts.collective_command import MOST_UNITS, SIZES
from rllib_llm_comm.envs.minirts.engine.mapgen import SIZE, WATER
from rllib_llm_comm.envs.minirts.engine.rts_game import Unit
from rllib_llm_comm.envs.minirts.engine.state import ORDER_NAMES
from rllib_llm_comm.envs.minirts.engine.units import HP, NUM_TYPES, RESOURCE
from rllib_llm_comm.envs.minirts.side import Side

PARTS = ("text", "vector", "planes", "lists", "officer")
NUM_PLANES = 43
TERRAIN_PLANE, OWN_PLANE, ENEMY_PLANE, RESOURCE_PLANE, MINE_PLANE = 5, 11, 26, 41, 42
"""First planes of the terrain, of the side's units, of enemies, and those of resources and of the commander's own."""
FOG = 5
"""Number of the unknown terrain."""
UNIT_COLUMNS, OTHER_COLUMNS = 12, 5
_LARGE = 100_000.0
BOUNDS = (-_LARGE, _LARGE)
"""Least and largest number of a vector."""
VECTOR = 5 + 4 * (NUM_TYPES - 1)
_MONEY, _COUNT = 1000.0, 10.0


def spaces_of(part: str) -> dict[str, spaces.Space[Any]]:
    """The spaces of a part of the observation, by field.

    Args:
        part: "vector", "planes" or "lists".
    """
    if part == "vector":
        return {"vector": vector_space()}
    if part == "planes":
        return {"planes": spaces.Box(0, MOST_UNITS * 10, (NUM_PLANES, SIZE, SIZE), np.float32)}
    return {
        "own": spaces.Box(-1, 2, (MOST_UNITS, UNIT_COLUMNS), np.float32),
        "enemies": spaces.Box(0, 2, (MOST_UNITS, OTHER_COLUMNS), np.float32),
        "resources": spaces.Box(0, 2, (MOST_UNITS, OTHER_COLUMNS), np.float32),
    }


def vector_space(more: int = 0) -> spaces.Box:
    """The space of `vector`.

    Args:
        more: Numbers that come on top.
    """
    return spaces.Box(*BOUNDS, (VECTOR + more,), np.float32)


def head_mask_space() -> spaces.Box:
    """The space of `collective_command.masks`."""
    return spaces.Box(0, 1, (sum(SIZES),), np.int8)


def vector(side: Side, commander: int, max_tick: int) -> np.ndarray:
    """float32 (65,): share of the time, money / 1000, threats / 10, shares of cells seen now and ever; then per type
    but resources, each / 10, own units, the whole side's, those under construction or trained, and known enemies.

    Args:
        side: The side.
        commander: Its number.
        max_tick: Tick at which the game is a draw; 0 for never.
    """
    game = side.game
    mine, ours, theirs = side.counts(commander), side.counts(), side.enemy_counts()
    coming = [unit.making for unit in side.own if unit.making >= 0]
    head = [
        game.tick / max_tick if max_tick else 0.0,
        side.money / _MONEY,
        len(side.threats()) / _COUNT,
        float(game.visible(side.player).mean()),
        float(game.explored(side.player).mean()),
    ]
    rows = [[counts[kind] / _COUNT for kind in range(RESOURCE + 1, NUM_TYPES)] for counts in (mine, ours)]
    rows.append([coming.count(kind) / _COUNT for kind in range(RESOURCE + 1, NUM_TYPES)])
    rows.append([theirs[kind] / _COUNT for kind in range(RESOURCE + 1, NUM_TYPES)])
    return np.array([*head, *(value for row in rows for value in row)], np.float32)


def whole(side: Side, max_tick: int) -> list[float]:
    """Share of the time, money of both sides / 1000, then per type but resources, each / 10, finished units of each
    commander, of the enemy, and units that are not finished, own and the enemy's; without fog, without places.

    Args:
        side: The side.
        max_tick: Tick at which the game is a draw; 0 for never.
    """
    game, enemy = side.game, 1 - side.player
    rows = [side.counts(commander) for commander in range(side.size)]
    theirs = [unit for unit in game.units(enemy) if unit.type != RESOURCE]
    for units in ([u for u in theirs if u.finished], side.sites, [u for u in theirs if not u.finished]):
        rows.append(Counter(unit.type for unit in units))
    told = [game.tick / max_tick if max_tick else 0.0, side.money / _MONEY, game.money(enemy) / _MONEY]
    return [*told, *(counts[kind] / _COUNT for counts in rows for kind in range(RESOURCE + 1, NUM_TYPES))]


def planes(side: Side, commander: int) -> np.ndarray:
    """float32 (43, 32, 32) by row and column: y / 32 and x / 32; one-hot never, once, now seen; one-hot terrain (grass,
    water, three that do not occur, unknown); numbers of the side's units by type (15), of known enemies by type (15),
    of resources; and of the commander's own units.

    Args:
        side: The side.
        commander: Its number.
    """
    game, out = side.game, np.zeros((NUM_PLANES, SIZE, SIZE), np.float32)
    steps = np.arange(SIZE, dtype=np.float32) / SIZE
    out[0], out[1] = steps[:, None], steps[None, :]
    now, ever = game.visible(side.player), game.explored(side.player)
    out[2], out[3], out[4] = ~ever, ever & ~now, now
    water = (game.record["terrain"][0] == WATER).reshape(SIZE, SIZE)
    out[TERRAIN_PLANE], out[TERRAIN_PLANE + 1], out[TERRAIN_PLANE + FOG] = ever & ~water, ever & water, ~ever
    for unit in side.own:
        x, y = inside(unit)
        out[OWN_PLANE + unit.type - 1, y, x] += 1
        if side.owner(unit) == commander:
            out[MINE_PLANE, y, x] += 1
    for base, units in ((ENEMY_PLANE - 1, side.enemies), (RESOURCE_PLANE, side.resources)):
        for unit in units:
            x, y = inside(unit)
            out[base + unit.type, y, x] += 1
    return out


def lists(side: Side, commander: int) -> dict[str, np.ndarray]:
    """Up to 50 rows each, all values as shares; rows of nothing are 0.

    own: 1, type / 16, hp, x / 32, y / 32, kind of order / 6, type it makes / 16 (or -1), x and y of its target / 32 (or
    -1), whether the commander commands it, whether it is a building site, hp that is missing. The commander's finished
    units come first, in the order of its flags. enemies and resources: 1, type / 16, hp, x / 32, y / 32.

    Args:
        side: The side.
        commander: Its number.
    """
    first = side.units_of(commander)
    others = [unit for unit in (*side.own, *side.sites) if not unit.finished or side.owner(unit) != commander]
    own = np.zeros((MOST_UNITS, UNIT_COLUMNS), np.float32)
    for row, (number, unit) in zip(own, enumerate([*first, *others]), strict=False):
        row[:] = _own_row(side, unit, number < len(first))
    return {"own": own, "enemies": _rows(side.enemies), "resources": _rows(side.resources)}


def _own_row(side: Side, unit: Unit, mine: bool) -> list[float]:
    target = side.game.unit(unit.target) if unit.target >= 0 else None
    place = (-1.0, -1.0) if target is None else (target.cell[0] / SIZE, target.cell[1] / SIZE)
    making = unit.making / NUM_TYPES if unit.making >= 0 else -1.0
    order = ORDER_NAMES.index(unit.order) / len(ORDER_NAMES)
    return [*_row(unit), order, making, *place, float(mine), float(not unit.finished), 1 - unit.hp / HP[unit.type]]


def _row(unit: Unit) -> list[float]:
    x, y = inside(unit)
    return [1.0, unit.type / NUM_TYPES, unit.hp / float(HP[unit.type]), x / SIZE, y / SIZE]


def _rows(units: Sequence[Unit]) -> np.ndarray:
    out = np.zeros((MOST_UNITS, OTHER_COLUMNS), np.float32)
    for row, unit in zip(out, units, strict=False):
        row[:] = _row(unit)
    return out


def inside(unit: Unit) -> tuple[int, int]:
    """(x, y) of a unit's cell; units can stand slightly outside of the map."""
    x, y = unit.cell
    return min(max(x, 0), SIZE - 1), min(max(y, 0), SIZE - 1)
