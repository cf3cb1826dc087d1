"""Numeric observations of a commander: planes of the map, lists of units, counts.

Laid out after the original's learning interface (RULES of the engine: 42 planes, lists of up to 50, counts), with one
plane and one column more that tell which units are the commander's own.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from numba import njit

from rllib_llm_comm.envs.compiling import compiling
from rllib_llm_comm.envs.minirts.collective_command import MOST_UNITS
from rllib_llm_comm.envs.minirts.engine import state
from rllib_llm_comm.envs.minirts.engine.mapgen import SIZE, WATER
from rllib_llm_comm.envs.minirts.engine.state import (
    ATTACK,
    BUILD,
    CELLS,
    FINISHED,
    GATHER,
    ORDER_NAMES,
    SLOTS,
    TRAIN,
    fingerprint,
    rule,
)
from rllib_llm_comm.envs.minirts.engine.units import HP, IS_BUILDING, NUM_TYPES, RESOURCE
from rllib_llm_comm.envs.minirts.side import Side

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
    """The spaces of the part "vector", "planes" or "lists" of the observation, by field."""
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
    """The space of `vector`, with more numbers on top."""
    return spaces.Box(*BOUNDS, (VECTOR + more,), np.float32)


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
    """
    game, enemy = side.game, 1 - side.player
    rows = [side.counts(commander) for commander in range(side.size)]
    theirs = [unit for unit in game.units(enemy) if unit.type != RESOURCE]
    for units in ([u for u in theirs if u.finished], side.sites, [u for u in theirs if not u.finished]):
        rows.append(Counter(unit.type for unit in units))
    told = [game.tick / max_tick if max_tick else 0.0, side.money / _MONEY, game.money(enemy) / _MONEY]
    return [*told, *(counts[kind] / _COUNT for counts in rows for kind in range(RESOURCE + 1, NUM_TYPES))]


_NUM_ORDERS = len(ORDER_NAMES)
# Of a game: what is read of each slot, and what is read of the player's own row.
OF_SLOTS = ("serial", "type", "hp", "stage", "x", "y", "order", "what", "target")
OF_PLAYER = ("known", "sight", "seen")


def planes(side: Side, commander: int) -> np.ndarray:
    """float32 (43, 32, 32) by row and column: y / 32 and x / 32; one-hot never, once, now seen; one-hot terrain (grass,
    water, three that do not occur, unknown); numbers of the side's units by type (15), of known enemies by type (15),
    of resources; and of the commander's own units. Nothing has happened since the latest `look` of the side.
    """
    out = np.zeros((NUM_PLANES, CELLS), np.float32)
    _compiled()[0](*arguments_of(side), side.game.record["terrain"][0], commander, out)
    return out.reshape(NUM_PLANES, SIZE, SIZE)


def lists(side: Side, commander: int) -> dict[str, np.ndarray]:
    """Up to 50 rows each, all values as shares; rows of nothing are 0.

    own: 1, type / 16, hp, x / 32, y / 32, kind of order / 6, type it makes / 16 (or -1), x and y of its target / 32 (or
    -1), whether the commander commands it, whether it is a building site, hp that is missing. The commander's finished
    units come first, in the order of its flags. enemies and resources: 1, type / 16, hp, x / 32, y / 32. Nothing has
    happened since the latest `look` of the side.
    """
    own = np.zeros((MOST_UNITS, UNIT_COLUMNS), np.float32)
    enemies, resources = (np.zeros((MOST_UNITS, OTHER_COLUMNS), np.float32) for _ in range(2))
    _compiled()[1](*arguments_of(side), commander, own, enemies, resources)
    return {"own": own, "enemies": enemies, "resources": resources}


def arguments_of(side: Side) -> tuple[Any, ...]:
    """Input of both functions: units by slot, rosters, whose units they are, and what the player knows and sees."""
    g, player = side.game.record[0], side.player
    of_player = (g[name][player] for name in OF_PLAYER)
    return (*(g[name] for name in OF_SLOTS), g["roster"], g["count"], player, side.owner_of_slot, *of_player)


@cache
def _compiled() -> tuple[Callable[..., None], Callable[..., None]]:
    layout = zlib.crc32(Path(__file__).read_bytes())
    fill_planes, fill_lists = _entrances(fingerprint(), layout)
    g = state.new_game()[0]
    nothing = (*(g[name] for name in OF_SLOTS), g["roster"], g["count"], 0, np.zeros(SLOTS, np.int32))
    nothing += tuple(g[name][0] for name in OF_PLAYER)
    rows = [np.zeros((MOST_UNITS, columns), np.float32) for columns in (UNIT_COLUMNS, OTHER_COLUMNS, OTHER_COLUMNS)]
    with compiling("the views of MiniRTS", "some seconds"):
        fill_planes(*nothing, g["terrain"], 0, np.zeros((NUM_PLANES, CELLS), np.float32))
        fill_lists(*nothing, 0, *rows)
    return fill_planes, fill_lists


@rule
def _fill_map(terrain, sight, seen, out):  # type: ignore[no-untyped-def]
    """The planes of places, sight and terrain."""
    for cell in range(CELLS):
        ever, now, water = seen[cell] > 0, sight[cell] > 0, terrain[cell] == WATER
        out[0, cell], out[1, cell] = np.float32(cell // SIZE) / SIZE, np.float32(cell % SIZE) / SIZE
        out[2 if not ever else 4 if now else 3, cell] = 1.0
        if now and not ever:
            out[4, cell] = 1.0
        out[TERRAIN_PLANE + (FOG if not ever else 1 if water else 0), cell] = 1.0


@rule
def cell_of(x, y):  # type: ignore[no-untyped-def]
    """The cell of a place, as of `Unit.cell`: rounded in float64; a little outside of the map is possible."""
    return int(np.float64(x) + 0.5), int(np.float64(y) + 0.5)


@rule
def inside_map(x, y):  # type: ignore[no-untyped-def]
    """The cell of a place, or the next one of the map."""
    column, row = cell_of(x, y)
    return min(max(column, 0), SIZE - 1), min(max(row, 0), SIZE - 1)


@rule
def is_known(slot, kind, stage, x, y, known, sight):  # type: ignore[no-untyped-def]
    """True if a unit is finished and a player sees or remembers it, as of `Game.known_to`."""
    column, row = cell_of(x[slot], y[slot])
    cell = min(row * SIZE + column, CELLS - 1)
    fixed = IS_BUILDING[kind[slot]] or kind[slot] == RESOURCE
    return stage[slot] == FINISHED and (sight[cell] > 0 or (fixed and known[slot] != 0))


@rule
def list_own(roster, count, player, owners, kind, stage, commander, slots):  # type: ignore[no-untyped-def]
    """Slots of the side's units: the commander's, those of the others, building sites; how many, and of the first."""
    filled, of_commander = 0, 0
    for group in range(3):
        for i in range(count[player]):
            slot = roster[player, i]
            finished = stage[slot] == FINISHED
            if filled == MOST_UNITS or (finished and kind[slot] == RESOURCE) or finished == (group == 2):
                continue
            mine = finished and owners[slot] == commander
            if group == 2 or mine == (group == 0):
                slots[filled] = slot
                filled += 1
                of_commander += mine
    return filled, of_commander


@rule
def list_known(  # type: ignore[no-untyped-def]
    roster, count, player, kind, stage, x, y, known, sight, enemies, resources
):  # fmt: skip
    """Slots of the enemies and of the resources that a player knows, and how many there are of each."""
    met, found = 0, 0
    for owner in range(2):
        for i in range(count[owner]):
            slot = roster[owner, i]
            if not is_known(slot, kind, stage, x, y, known, sight):
                continue
            if kind[slot] == RESOURCE and found < MOST_UNITS:
                resources[found] = slot
                found += 1
            elif kind[slot] != RESOURCE and owner != player and met < MOST_UNITS:
                enemies[met] = slot
                met += 1
    return met, found


@rule
def _write_row(out, slot, kind, hp, x, y):  # type: ignore[no-untyped-def]
    column, row = inside_map(x[slot], y[slot])
    out[0] = 1.0
    out[1] = kind[slot] / NUM_TYPES
    out[2] = hp[slot] / HP[kind[slot]]
    out[3] = column / SIZE
    out[4] = row / SIZE


@rule
def _write_own(out, slot, serial, kind, hp, stage, x, y, order, what, target, mine):  # type: ignore[no-untyped-def]
    _write_row(out, slot, kind, hp, x, y)
    out[5] = order[slot] / _NUM_ORDERS
    making = order[slot] == BUILD or order[slot] == TRAIN
    out[6] = what[slot] / NUM_TYPES if making and what[slot] >= 0 else -1.0
    out[7] = out[8] = -1.0
    if order[slot] == ATTACK or order[slot] == GATHER:
        ref = target[slot]
        if ref >= 0 and serial[ref % SLOTS] == ref // SLOTS:
            column, row = cell_of(x[ref % SLOTS], y[ref % SLOTS])
            out[7], out[8] = column / SIZE, row / SIZE
    out[9] = 1.0 if mine else 0.0
    out[10] = 0.0 if stage[slot] == FINISHED else 1.0
    out[11] = 1 - hp[slot] / HP[kind[slot]]


def _entrances(sources: int, layout: int) -> tuple[Callable[..., None], Callable[..., None]]:
    """Entry points for Python, which numba keeps on disk as long as `sources` and `layout` stay."""

    @njit(cache=True, nogil=True)
    def fill_planes(  # type: ignore[no-untyped-def]
        serial, kind, hp, stage, x, y, order, what, target, roster, count, player, owners, known, sight, seen,
        terrain, commander, out,
    ):  # fmt: skip
        """Adds `planes` of a commander to zeros.

        Args:
            serial: With all up to `seen`: as of `arguments_of`.
            terrain: int32 (1024,): kind of ground of each cell.
            commander: The commander's number.
            out: float32 (43, 1024): the planes by cell.
        """
        _ = sources, layout
        _fill_map(terrain, sight, seen, out)
        for owner in range(2):
            for i in range(count[owner]):
                slot = roster[owner, i]
                column, row = inside_map(x[slot], y[slot])
                cell = row * SIZE + column
                if owner == player and stage[slot] == FINISHED and kind[slot] != RESOURCE:
                    out[OWN_PLANE + kind[slot] - 1, cell] += 1.0
                    if owners[slot] == commander:
                        out[MINE_PLANE, cell] += 1.0
                elif is_known(slot, kind, stage, x, y, known, sight):
                    if kind[slot] == RESOURCE:
                        out[RESOURCE_PLANE, cell] += 1.0
                    elif owner != player:
                        out[ENEMY_PLANE + kind[slot] - 1, cell] += 1.0

    @njit(cache=True, nogil=True)
    def fill_lists(  # type: ignore[no-untyped-def]
        serial, kind, hp, stage, x, y, order, what, target, roster, count, player, owners, known, sight, seen,
        commander, own, enemies, resources,
    ):  # fmt: skip
        """Writes `lists` of a commander into zeros.

        Args:
            serial: With all up to `seen`: as of `arguments_of`.
            commander: The commander's number.
            own: float32 (50, 12): the side's units.
            enemies: float32 (50, 5): the enemies that the player knows.
            resources: float32 (50, 5): the resources that it knows.
        """
        _ = sources, layout
        slots, others, places = np.empty((3, MOST_UNITS), np.int32)
        listed, of_commander = list_own(roster, count, player, owners, kind, stage, commander, slots)
        for i in range(listed):
            mine = i < of_commander
            _write_own(own[i], slots[i], serial, kind, hp, stage, x, y, order, what, target, mine)
        met, found = list_known(roster, count, player, kind, stage, x, y, known, sight, others, places)
        for i in range(met):
            _write_row(enemies[i], others[i], kind, hp, x, y)
        for i in range(found):
            _write_row(resources[i], places[i], kind, hp, x, y)

    return fill_planes, fill_lists
