"""Observations of an officer as small whole numbers: `planes` and `lists` hold the same, a hundred times as large."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from rllib_llm_comm.envs.minirts.collective_command import MOST_UNITS
from rllib_llm_comm.envs.minirts.commanders.executor import MOST_SENTENCES, OLDEST, Instruction
from rllib_llm_comm.envs.minirts.commanders.tasks import MOST_WORDS, NUM_WORDS, word_numbers
from rllib_llm_comm.envs.minirts.engine.mapgen import SIZE, WATER
from rllib_llm_comm.envs.minirts.engine.state import CELLS, ORDER_NAMES
from rllib_llm_comm.envs.minirts.engine.units import NUM_TYPES
from rllib_llm_comm.envs.minirts.side import Side
from rllib_llm_comm.envs.minirts.view.observations import (
    ENEMY_ROWS,
    HEALTH,
    MOST_HEALTH,
    OF_OTHERS,
    OWN_ROWS,
    RESOURCE_ROWS,
    TARGET_COLUMN,
    TARGET_ROW,
    TYPE,
    unit_table,
)

OWN, ENEMIES, RESOURCES, SIGHT, MONEY = "own_units", "enemy_units", "resource_units", "sight", "money"
SENTENCES, AGES = "sentences", "ages"
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
    table = unit_table(side, commander)
    health = np.clip(table[:, HEALTH] / MOST_HEALTH[table[:, TYPE]], 0, 1)
    table[:, HEALTH] = np.rint(health * _FULL)
    targets = table[:, TARGET_COLUMN : TARGET_ROW + 1]
    np.minimum(targets, SIZE, out=targets)
    rows, g = table.astype(np.uint8), side.game.record[0]
    ever, now = g["seen"][side.player] > 0, g["sight"][side.player] > 0
    return {
        OWN: rows[OWN_ROWS],
        ENEMIES: rows[ENEMY_ROWS, :OF_OTHERS].copy(),
        RESOURCES: rows[RESOURCE_ROWS, :OF_OTHERS].copy(),
        SIGHT: np.packbits([ever, now, ever & (g["terrain"] == WATER)], axis=1),
        **of_money_and_words(side, told),
    }
