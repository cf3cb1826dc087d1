"""`officer_view.observe_plainly`, compiled: the same numbers, read from the game's record."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit

from rllib_llm_comm.envs.compiling import compiling
from rllib_llm_comm.envs.minirts.collective_command import MOST_UNITS
from rllib_llm_comm.envs.minirts.commanders.instructions import Instruction
from rllib_llm_comm.envs.minirts.engine import state
from rllib_llm_comm.envs.minirts.engine.compiled_rule import rule
from rllib_llm_comm.envs.minirts.engine.fingerprint import fingerprint
from rllib_llm_comm.envs.minirts.engine.mapgen import WATER
from rllib_llm_comm.envs.minirts.engine.state import ATTACK, BUILD, CELLS, FINISHED, GATHER, SLOTS, TRAIN
from rllib_llm_comm.envs.minirts.engine.units import HP
from rllib_llm_comm.envs.minirts.side import Side
from rllib_llm_comm.envs.minirts.view import compiled_views, officer_view
from rllib_llm_comm.envs.minirts.view.compiled_views import (
    OF_PLAYER,
    OF_SLOTS,
    arguments_of,
    inside_map,
    list_known,
    list_own,
)
from rllib_llm_comm.envs.minirts.view.officer_view import (
    COLUMN,
    ENEMIES,
    HEALTH,
    IS_MINE,
    IS_SITE,
    MAKING,
    ORDER,
    OTHER_COLUMNS,
    OWN,
    OWN_COLUMNS,
    RESOURCES,
    ROW,
    SIGHT,
    TARGET_COLUMN,
    TARGET_ROW,
    TYPE,
)

_BYTES, _FULL = CELLS // 8, 255


def observe(side: Side, commander: int, told: Sequence[Instruction] = ()) -> dict[str, np.ndarray]:
    """As `officer_view.observe_plainly`, which says what the arrays are.

    Args:
        side: The side; nothing has happened since its latest `look`.
        commander: Its number.
        told: The sentences in force for it.
    """
    parts = _empty()
    _compiled()(*arguments_of(side), side.game.record["terrain"][0], commander, *parts)
    own, enemies, resources, sight = parts
    found = {OWN: own, ENEMIES: enemies, RESOURCES: resources, SIGHT: sight}
    return {**found, **officer_view.of_money_and_words(side, told)}


def _empty() -> tuple[np.ndarray, ...]:
    shapes = (MOST_UNITS, OWN_COLUMNS), (MOST_UNITS, OTHER_COLUMNS), (MOST_UNITS, OTHER_COLUMNS), (3, _BYTES)
    return tuple(np.zeros(shape, np.uint8) for shape in shapes)


@cache
def _compiled() -> Callable[..., None]:
    files = (officer_view.__file__, compiled_views.__file__)
    layout = zlib.crc32(b"".join(Path(file).read_bytes() for file in files))
    fill = _entrance(fingerprint(), layout)
    g = state.new_game()[0]
    nothing: tuple[Any, ...] = (*(g[name] for name in OF_SLOTS), g["roster"], g["count"], 0, np.zeros(SLOTS, np.int32))
    nothing += tuple(g[name][0] for name in OF_PLAYER)
    with compiling("the view of MiniRTS officers", "some seconds"):
        fill(*nothing, g["terrain"], 0, *_empty())
    return fill


@rule
def _write_row(out, slot, kind, hp, x, y):  # type: ignore[no-untyped-def]
    share = min(max(np.float64(hp[slot]) / np.float64(HP[kind[slot]]), 0.0), 1.0)
    out[TYPE] = kind[slot] + 1
    out[HEALTH] = np.uint8(np.rint(share * _FULL))
    out[COLUMN], out[ROW] = inside_map(x[slot], y[slot])


@rule
def _write_own(out, slot, serial, kind, hp, stage, x, y, order, what, target, mine):  # type: ignore[no-untyped-def]
    _write_row(out, slot, kind, hp, x, y)
    out[ORDER] = order[slot]
    if order[slot] == BUILD or order[slot] == TRAIN:
        out[MAKING] = what[slot] + 1
    if order[slot] == ATTACK or order[slot] == GATHER:
        ref = target[slot]
        if ref >= 0 and serial[ref % SLOTS] == ref // SLOTS:
            column, row = inside_map(x[ref % SLOTS], y[ref % SLOTS])
            out[TARGET_COLUMN], out[TARGET_ROW] = column + 1, row + 1
    out[IS_MINE] = 1 if mine else 0
    out[IS_SITE] = 0 if stage[slot] == FINISHED else 1


@rule
def _write_sight(terrain, sight, seen, out):  # type: ignore[no-untyped-def]
    for cell in range(CELLS):
        bit = np.uint8(128 >> cell % 8)
        if seen[cell] > 0:
            out[0, cell // 8] |= bit
            if terrain[cell] == WATER:
                out[2, cell // 8] |= bit
        if sight[cell] > 0:
            out[1, cell // 8] |= bit


def _entrance(sources: int, layout: int) -> Callable[..., None]:
    """The way in for Python, which numba keeps on disk as long as `sources` and `layout` stay."""

    @njit(cache=True, nogil=True)
    def fill(  # type: ignore[no-untyped-def]
        serial, kind, hp, stage, x, y, order, what, target, roster, count, player, owners, known, sight, seen,
        terrain, commander, own, enemies, resources, cells,
    ):  # fmt: skip
        _ = sources, layout
        _write_sight(terrain, sight, seen, cells)
        slots, others, places = np.empty((3, MOST_UNITS), np.int32)
        met, found = list_known(roster, count, player, kind, stage, x, y, known, sight, others, places)
        for i in range(met):
            _write_row(enemies[i], others[i], kind, hp, x, y)
        for i in range(found):
            _write_row(resources[i], places[i], kind, hp, x, y)
        listed, of_commander = list_own(roster, count, player, owners, kind, stage, commander, slots)
        for i in range(listed):
            _write_own(own[i], slots[i], serial, kind, hp, stage, x, y, order, what, target, i < of_commander)

    return fill
