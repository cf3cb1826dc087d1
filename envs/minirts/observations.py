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
from rllib_llm_comm.envs.minirts.engine.movement import resolve
from rllib_llm_comm.envs.minirts.engine.state import (
    ATTACK,
    BUILD,
    CELLS,
    FINISHED,
    GATHER,
    NO_ONE,
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


def planes(side: Side, commander: int) -> np.ndarray:
    """float32 (43, 32, 32) by row and column: y / 32 and x / 32; one-hot never, once, now seen; one-hot terrain (grass,
    water, three that do not occur, unknown); numbers of the side's units by type (15), of known enemies by type (15),
    of resources; and of the commander's own units. Nothing has happened since the latest `look` of the side.
    """
    out = np.zeros((NUM_PLANES, CELLS), np.float32)
    _compiled()[0](side.game.record, side.player, side.owner_of_slot, commander, out)
    return out.reshape(NUM_PLANES, SIZE, SIZE)


def lists(side: Side, commander: int) -> dict[str, np.ndarray]:
    """Up to 50 rows each, all values as shares; rows of nothing are 0.

    own: 1, type / 16, hp, x / 32, y / 32, kind of order / 6, type it makes / 16 (or -1), x and y of its target / 32 (or
    -1), whether the commander commands it, whether it is a building site, hp that is missing. The commander's finished
    units come first, in the order of its flags. enemies and resources: 1, type / 16, hp, x / 32, y / 32. Nothing has
    happened since the latest `look` of the side.
    """
    own, enemies, resources = _empty()
    _compiled()[1](side.game.record, side.player, side.owner_of_slot, commander, own, enemies, resources)
    return {"own": own, "enemies": enemies, "resources": resources}


def _empty() -> tuple[np.ndarray, ...]:
    return tuple(np.zeros((MOST_UNITS, n), np.float32) for n in (UNIT_COLUMNS, OTHER_COLUMNS, OTHER_COLUMNS))


@cache
def _compiled() -> tuple[Callable[..., None], Callable[..., None]]:
    fill_planes, fill_lists = _entrances(fingerprint(), zlib.crc32(Path(__file__).read_bytes()))
    nothing = state.new_game(), 0, np.zeros(SLOTS, np.int32), 0
    with compiling("the views of MiniRTS", "some seconds"):
        fill_planes(*nothing, np.zeros((NUM_PLANES, CELLS), np.float32))
        fill_lists(*nothing, *_empty())
    return fill_planes, fill_lists


@rule
def _fill_map(g, player, out):  # type: ignore[no-untyped-def]
    """The planes of places, sight and terrain."""
    for cell in range(CELLS):
        ever, now, water = g.seen[player, cell] > 0, g.sight[player, cell] > 0, g.terrain[cell] == WATER
        out[0, cell], out[1, cell] = np.float32(cell // SIZE) / SIZE, np.float32(cell % SIZE) / SIZE
        out[2 if not ever else 4 if now else 3, cell] = 1.0
        if now and not ever:
            out[4, cell] = 1.0
        out[TERRAIN_PLANE + (FOG if not ever else 1 if water else 0), cell] = 1.0


@rule
def cell_of(g, slot):  # type: ignore[no-untyped-def]
    """The cell of a unit, as of `Unit.cell`: rounded in float64; a little outside of the map is possible."""
    return int(np.float64(g.x[slot]) + 0.5), int(np.float64(g.y[slot]) + 0.5)


@rule
def inside_map(g, slot):  # type: ignore[no-untyped-def]
    """The cell of a unit, or the next one of the map."""
    column, row = cell_of(g, slot)
    return min(max(column, 0), SIZE - 1), min(max(row, 0), SIZE - 1)


@rule
def is_known(g, player, slot):  # type: ignore[no-untyped-def]
    """True if a unit is finished and a player sees or remembers it, as of `Game.known_to`."""
    column, row = cell_of(g, slot)
    cell = min(row * SIZE + column, CELLS - 1)
    fixed = IS_BUILDING[g.type[slot]] or g.type[slot] == RESOURCE
    return g.stage[slot] == FINISHED and (g.sight[player, cell] > 0 or (fixed and g.known[player, slot] != 0))


@rule
def list_own(g, player, owners, commander, slots):  # type: ignore[no-untyped-def]
    """Slots of the side's units: the commander's, those of the others, building sites; how many, and of the first."""
    filled, of_commander = 0, 0
    for group in range(3):
        for i in range(g.count[player]):
            slot = g.roster[player, i]
            finished = g.stage[slot] == FINISHED
            if filled == MOST_UNITS or (finished and g.type[slot] == RESOURCE) or finished == (group == 2):
                continue
            mine = finished and owners[slot] == commander
            if group == 2 or mine == (group == 0):
                slots[filled] = slot
                filled += 1
                of_commander += mine
    return filled, of_commander


@rule
def list_known(g, player, enemies, resources):  # type: ignore[no-untyped-def]
    """Slots of the enemies and of the resources that a player knows, and how many there are of each."""
    met, found = 0, 0
    for owner in range(2):
        for i in range(g.count[owner]):
            slot = g.roster[owner, i]
            if not is_known(g, player, slot):
                continue
            if g.type[slot] == RESOURCE and found < MOST_UNITS:
                resources[found] = slot
                found += 1
            elif g.type[slot] != RESOURCE and owner != player and met < MOST_UNITS:
                enemies[met] = slot
                met += 1
    return met, found


@rule
def target_slot(g, slot):  # type: ignore[no-untyped-def]
    """The slot of what a unit attacks or gathers from, or -1."""
    return resolve(g, g.target[slot]) if g.order[slot] == ATTACK or g.order[slot] == GATHER else NO_ONE


@rule
def _write_row(g, slot, out):  # type: ignore[no-untyped-def]
    column, row = inside_map(g, slot)
    out[0] = 1.0
    out[1] = g.type[slot] / NUM_TYPES
    out[2] = g.hp[slot] / HP[g.type[slot]]
    out[3] = column / SIZE
    out[4] = row / SIZE


@rule
def _write_own(g, slot, mine, out):  # type: ignore[no-untyped-def]
    _write_row(g, slot, out)
    out[5] = g.order[slot] / _NUM_ORDERS
    making = g.order[slot] == BUILD or g.order[slot] == TRAIN
    out[6] = g.what[slot] / NUM_TYPES if making and g.what[slot] >= 0 else -1.0
    out[7] = out[8] = -1.0
    target = target_slot(g, slot)
    if target != NO_ONE:
        column, row = cell_of(g, target)
        out[7], out[8] = column / SIZE, row / SIZE
    out[9] = 1.0 if mine else 0.0
    out[10] = 0.0 if g.stage[slot] == FINISHED else 1.0
    out[11] = 1 - g.hp[slot] / HP[g.type[slot]]


def _entrances(sources: int, layout: int) -> tuple[Callable[..., None], Callable[..., None]]:
    """Entry points for Python, which numba keeps on disk as long as `sources` and `layout` stay."""

    @njit(cache=True, nogil=True)
    def fill_planes(games, player, owners, commander, out):  # type: ignore[no-untyped-def]
        """Adds `planes` of a commander to zeros.

        Args:
            games: The game, `state.GAME` of shape (1,); numba takes an array more quickly than a record.
            player: The commander's side.
            owners: As of `Side.owner_of_slot`.
            commander: The commander's number.
            out: float32 (43, 1024): the planes by cell.
        """
        _ = sources, layout
        g = games[0]
        _fill_map(g, player, out)
        for owner in range(2):
            for i in range(g.count[owner]):
                slot = g.roster[owner, i]
                kind = g.type[slot]
                column, row = inside_map(g, slot)
                cell = row * SIZE + column
                if owner == player and g.stage[slot] == FINISHED and kind != RESOURCE:
                    out[OWN_PLANE + kind - 1, cell] += 1.0
                    if owners[slot] == commander:
                        out[MINE_PLANE, cell] += 1.0
                elif is_known(g, player, slot):
                    if kind == RESOURCE:
                        out[RESOURCE_PLANE, cell] += 1.0
                    elif owner != player:
                        out[ENEMY_PLANE + kind - 1, cell] += 1.0

    @njit(cache=True, nogil=True)
    def fill_lists(games, player, owners, commander, own, enemies, resources):  # type: ignore[no-untyped-def]
        """Writes `lists` of a commander into zeros.

        Args:
            games: With `player`, `owners` and `commander`: as of `fill_planes`.
            own: float32 (50, 12): the side's units.
            enemies: float32 (50, 5): the enemies that the player knows.
            resources: float32 (50, 5): the resources that it knows.
        """
        _ = sources, layout
        g = games[0]
        slots, others, places = np.empty((3, MOST_UNITS), np.int32)
        listed, of_commander = list_own(g, player, owners, commander, slots)
        for i in range(listed):
            _write_own(g, slots[i], i < of_commander, own[i])
        met, found = list_known(g, player, others, places)
        for i in range(met):
            _write_row(g, others[i], enemies[i])
        for i in range(found):
            _write_row(g, places[i], resources[i])

    return fill_planes, fill_lists
