"""Views of MiniRTS made unit by unit, as their docstrings tell them: what the compiled ones must give."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rllib_llm_comm.envs.minirts import officer_view
from rllib_llm_comm.envs.minirts.collective_command import MOST_UNITS
from rllib_llm_comm.envs.minirts.engine.mapgen import SIZE, WATER
from rllib_llm_comm.envs.minirts.engine.rts_game import Unit
from rllib_llm_comm.envs.minirts.engine.state import ORDER_NAMES
from rllib_llm_comm.envs.minirts.engine.units import HP, NUM_TYPES
from rllib_llm_comm.envs.minirts.executor import Instruction
from rllib_llm_comm.envs.minirts.observations import (
    ENEMY_PLANE,
    FOG,
    MINE_PLANE,
    NUM_PLANES,
    OTHER_COLUMNS,
    OWN_PLANE,
    RESOURCE_PLANE,
    TERRAIN_PLANE,
    UNIT_COLUMNS,
)
from rllib_llm_comm.envs.minirts.side import Side


def planes(side: Side, commander: int) -> np.ndarray:
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


def officer(side: Side, commander: int, told: Sequence[Instruction] = ()) -> dict[str, np.ndarray]:
    first = side.units_of(commander)
    others = [unit for unit in (*side.own, *side.sites) if not unit.finished or side.owner(unit) != commander]
    own = np.zeros((MOST_UNITS, officer_view.OWN_COLUMNS), np.uint8)
    for row, (number, unit) in zip(own, enumerate([*first, *others]), strict=False):
        row[:] = _officer_own_row(side, unit, number < len(first))
    game = side.game
    ever, water = game.explored(side.player).reshape(-1), game.record["terrain"][0] == WATER
    cells = np.stack([ever, game.visible(side.player).reshape(-1), ever & water])
    return {
        officer_view.OWN: own,
        officer_view.ENEMIES: _officer_rows(side.enemies),
        officer_view.RESOURCES: _officer_rows(side.resources),
        officer_view.SIGHT: np.packbits(cells, axis=1),
        **officer_view.of_money_and_words(side, told),
    }


def _officer_own_row(side: Side, unit: Unit, mine: bool) -> list[int]:
    target = side.game.unit(unit.target) if unit.target >= 0 else None
    x, y = (-1, -1) if target is None else inside(target)
    order = ORDER_NAMES.index(unit.order)
    return [*_officer_row(unit), order, unit.making + 1, x + 1, y + 1, int(mine), int(not unit.finished)]


def _officer_row(unit: Unit) -> list[int]:
    share = min(max(unit.hp / float(HP[unit.type]), 0.0), 1.0)
    return [unit.type + 1, round(share * 255), *inside(unit)]


def _officer_rows(units: Sequence[Unit]) -> np.ndarray:
    out = np.zeros((MOST_UNITS, officer_view.OTHER_COLUMNS), np.uint8)
    for row, unit in zip(out, units, strict=False):
        row[:] = _officer_row(unit)
    return out
