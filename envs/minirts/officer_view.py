"""Observations of an officer as small whole numbers: `planes` and `lists` hold the same, a hundred times as large."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from numba import njit

from rllib_llm_comm.envs.compiling import compiling
from rllib_llm_comm.envs.minirts import observations
from rllib_llm_comm.envs.minirts.collective_command import MOST_UNITS
from rllib_llm_comm.envs.minirts.engine import state
from rllib_llm_comm.envs.minirts.engine.mapgen import SIZE, WATER
from rllib_llm_comm.envs.minirts.engine.state import (
    BUILD,
    CELLS,
    FINISHED,
    NO_ONE,
    ORDER_NAMES,
    SLOTS,
    TRAIN,
    fingerprint,
    rule,
)
from rllib_llm_comm.envs.minirts.engine.units import HP, NUM_TYPES
from rllib_llm_comm.envs.minirts.executor import MOST_SENTENCES, OLDEST, Instruction
from rllib_llm_comm.envs.minirts.observations import inside_map, list_known, list_own, target_slot
from rllib_llm_comm.envs.minirts.side import Side
from rllib_llm_comm.envs.minirts.words import MOST_WORDS, NUM_WORDS, word_numbers

OWN, ENEMIES, RESOURCES, SIGHT, MONEY = "own_units", "enemy_units", "resource_units", "sight", "money"
SENTENCES, AGES = "sentences", "ages"
OWN_COLUMNS, OTHER_COLUMNS = 10, 4
TYPE, HEALTH, COLUMN, ROW, ORDER, MAKING, TARGET_COLUMN, TARGET_ROW, IS_MINE, IS_SITE = range(OWN_COLUMNS)
"""Columns of `OWN`; the first four are those of `ENEMIES` and `RESOURCES`, too."""
_BYTES, _FULL, _MOST_MONEY = CELLS // 8, 255, 100.0
_MONEY_UNIT = 1000.0


def officer_spaces() -> dict[str, spaces.Space[Any]]:
    """The spaces of `observe`, by part."""
    others = np.array([NUM_TYPES, _FULL, SIZE - 1, SIZE - 1], np.uint8)
    own = np.array([*others, len(ORDER_NAMES) - 1, NUM_TYPES, SIZE, SIZE, 1, 1], np.uint8)
    return {
        OWN: _bytes(np.tile(own, (MOST_UNITS, 1))),
        ENEMIES: _bytes(np.tile(others, (MOST_UNITS, 1))),
        RESOURCES: _bytes(np.tile(others, (MOST_UNITS, 1))),
        SIGHT: _bytes(np.full((3, _BYTES), _FULL, np.uint8)),
        MONEY: spaces.Box(0, _MOST_MONEY, (1,), np.float32),
        SENTENCES: _bytes(np.full((MOST_SENTENCES, MOST_WORDS), NUM_WORDS - 1, np.uint8)),
        AGES: _bytes(np.full(MOST_SENTENCES, OLDEST, np.uint8)),
    }


def of_money_and_words(side: Side, told: Sequence[Instruction]) -> dict[str, np.ndarray]:
    """The last three parts of the observation; `told` are the sentences in force."""
    sentences, ages = np.zeros((MOST_SENTENCES, MOST_WORDS), np.uint8), np.zeros(MOST_SENTENCES, np.uint8)
    for number, one in enumerate(told):
        sentences[number], ages[number] = word_numbers(one.sentence), one.age
    money = np.array([min(side.money / _MONEY_UNIT, _MOST_MONEY)], np.float32)
    return {MONEY: money, SENTENCES: sentences, AGES: ages}


def _bytes(most: np.ndarray) -> spaces.Box:
    return spaces.Box(np.zeros_like(most), most, dtype=np.uint8)


def observe(side: Side, commander: int, told: Sequence[Instruction] = ()) -> dict[str, np.ndarray]:
    """Observation of an officer: its side as it sees it, and the sentences in force.

    own_units, uint8 (50, 10): type + 1, hp as a share of 255, column and row of its cell, kind of order, type it makes
    + 1, column + 1 and row + 1 of its target (0 for none), whether the commander commands it, whether it is a building
    site. The commander's finished units come first, in the order of its flags. enemy_units and resource_units, uint8
    (50, 4): the first four. sight, uint8 (3, 128): cells ever seen, seen now, and known as water, eight to a byte.
    money, float32 (1,): in thousands. sentences, uint8 (6, 15), and ages, uint8 (6,): what is in force, the oldest
    first. Rows of nothing are 0.
    """
    parts = _empty()
    _compiled()(side.game.record, side.player, side.owner_of_slot, commander, *parts)
    own, enemies, resources, sight = parts
    found = {OWN: own, ENEMIES: enemies, RESOURCES: resources, SIGHT: sight}
    return {**found, **of_money_and_words(side, told)}


def _empty() -> tuple[np.ndarray, ...]:
    shapes = (MOST_UNITS, OWN_COLUMNS), (MOST_UNITS, OTHER_COLUMNS), (MOST_UNITS, OTHER_COLUMNS), (3, _BYTES)
    return tuple(np.zeros(shape, np.uint8) for shape in shapes)


@cache
def _compiled() -> Callable[..., None]:
    files = (__file__, observations.__file__)
    layout = zlib.crc32(b"".join(Path(file).read_bytes() for file in files))
    fill = _entrance(fingerprint(), layout)
    with compiling("the view of MiniRTS officers", "some seconds"):
        fill(state.new_game(), 0, np.zeros(SLOTS, np.int32), 0, *_empty())
    return fill


@rule
def _write_row(g, slot, out):  # type: ignore[no-untyped-def]
    share = min(max(np.float64(g.hp[slot]) / np.float64(HP[g.type[slot]]), 0.0), 1.0)
    out[TYPE] = g.type[slot] + 1
    out[HEALTH] = np.uint8(np.rint(share * _FULL))
    out[COLUMN], out[ROW] = inside_map(g, slot)


@rule
def _write_own(g, slot, mine, out):  # type: ignore[no-untyped-def]
    _write_row(g, slot, out)
    out[ORDER] = g.order[slot]
    if g.order[slot] == BUILD or g.order[slot] == TRAIN:
        out[MAKING] = g.what[slot] + 1
    target = target_slot(g, slot)
    if target != NO_ONE:
        column, row = inside_map(g, target)
        out[TARGET_COLUMN], out[TARGET_ROW] = column + 1, row + 1
    out[IS_MINE] = 1 if mine else 0
    out[IS_SITE] = 0 if g.stage[slot] == FINISHED else 1


@rule
def _write_sight(g, player, out):  # type: ignore[no-untyped-def]
    for cell in range(CELLS):
        bit = np.uint8(128 >> cell % 8)
        if g.seen[player, cell] > 0:
            out[0, cell // 8] |= bit
            if g.terrain[cell] == WATER:
                out[2, cell // 8] |= bit
        if g.sight[player, cell] > 0:
            out[1, cell // 8] |= bit


def _entrance(sources: int, layout: int) -> Callable[..., None]:
    """The way in for Python, which numba keeps on disk as long as `sources` and `layout` stay."""

    @njit(cache=True, nogil=True)
    def fill(games, player, owners, commander, own, enemies, resources, cells):  # type: ignore[no-untyped-def]
        """Writes what an officer sees of units and sight into zeros, as of `observe`.

        Args:
            games: The game, `state.GAME` of shape (1,); numba takes an array more quickly than a record.
            player: The commander's side.
            owners: As of `Side.owner_of_slot`.
            commander: The commander's number.
            own: uint8 (50, 10): the side's units.
            enemies: uint8 (50, 4): the enemies that the player knows.
            resources: uint8 (50, 4): the resources that it knows.
            cells: uint8 (3, 128): cells ever seen, seen now, and known as water, eight to a byte.
        """
        _ = sources, layout
        g = games[0]
        _write_sight(g, player, cells)
        slots, others, places = np.empty((3, MOST_UNITS), np.int32)
        met, found = list_known(g, player, others, places)
        for i in range(met):
            _write_row(g, others[i], enemies[i])
        for i in range(found):
            _write_row(g, places[i], resources[i])
        listed, of_commander = list_own(g, player, owners, commander, slots)
        for i in range(listed):
            _write_own(g, slots[i], i < of_commander, own[i])

    return fill
