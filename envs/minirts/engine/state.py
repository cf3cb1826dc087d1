"""State of a game in memory: two numpy records that the compiled rules change in place.

`GAME` is everything that is a game's state but what its path planners learned, which lies in `MEMORY`: that one is big,
but almost all of it is never touched, so the system never gives memory for it.

Units lie in slots. A slot is used again after its unit is gone; therefore whoever means a unit later holds a reference,
`serial * SLOTS + slot`, which no other unit ever has. -1 refers to nothing.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit

from rllib_llm_comm.envs.minirts.engine.units import NUM_TYPES

rule: Any = njit(nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)  # type: ignore[call-overload]
"""Compiles a function without ways in for Python and C, each of which would be the whole function once more."""


_LENGTH, _AHEAD = 624, 397
_WORD = 2**32


def seed_stream(record: np.ndarray, player: int, seed: int) -> None:
    """Begins a player's stream anew, from any whole number; streams repeat modulo 2**32."""
    state = np.random.RandomState(seed % _WORD).get_state(legacy=False)["state"]
    record["rng"][0, player], record["rng_at"][0, player] = state["key"], state["pos"]


@rule
def _refill(g, player):  # type: ignore[no-untyped-def]
    for i in range(_LENGTH):
        above, below = np.int64(g.rng[player, i]), np.int64(g.rng[player, (i + 1) % _LENGTH])
        mixed = (above & 0x80000000) | (below & 0x7FFFFFFF)
        value = np.int64(g.rng[player, (i + _AHEAD) % _LENGTH]) ^ (mixed >> 1)
        if mixed & 1:
            value ^= 0x9908B0DF
        g.rng[player, i] = value
    g.rng_at[player] = 0


@rule
def word(g, player):  # type: ignore[no-untyped-def]
    """The next 32 bits, as int64."""
    if g.rng_at[player] >= _LENGTH:
        _refill(g, player)
    y = np.int64(g.rng[player, g.rng_at[player]])
    g.rng_at[player] += 1
    y ^= y >> 11
    y ^= (y << 7) & 0x9D2C5680
    y ^= (y << 15) & 0xEFC60000
    return y ^ (y >> 18)


@rule
def uniform(g, player, low, high):  # type: ignore[no-untyped-def]
    """A whole number from low to high, both included; what would favour some is drawn again."""
    size = np.int64(high - low + 1)
    product = word(g, player) * size
    while product % _WORD < (_WORD - size) % size:
        product = word(g, player) * size
    return low + (product >> 32)


SLOTS = 512
"""Most units in a game at a time, both players and resources together."""
BULLETS = 1024
PENDING = 2048
"""Most new orders in a tick."""
QUEUE = 8192
"""Most immediate commands in a tick."""
CELLS = 1024
FAILURE_TICKS = 30
"""Ticks over which failed moves are summed up."""
NO_ONE = -1

IDLE, GATHER, ATTACK, BUILD, TRAIN, MOVE = range(6)
"""Kinds of running orders."""
ORDER_NAMES = ("IDLE", "GATHER", "ATTACK", "BUILD", "TRAIN", "MOVE")

FINISHED, PLACEHOLDER, SITE = range(3)
"""Progress of a building; everything but a building is finished."""

ENEMIES, IN_RANGE, THREATS, BASES, RESOURCES = range(5)
"""Kinds of lists that scripted opponents keep."""
NUM_LISTS = 5

RUNNING, WON, DRAWN, BROKEN = range(4)
"""State of play; a broken game had so many failed moves that the original gives up."""

_ORDER: list[Any] = [
    ("player", np.int32),
    ("unit", np.int32),
    ("kind", np.int32),
    ("target", np.int32),
    ("hall", np.int32),
    ("what", np.int32),
    ("x", np.float32),
    ("y", np.float32),
]
ORDER = np.dtype(_ORDER, align=True)
"""An order to a unit: references `unit`, `target` (ATTACK, GATHER) and `hall` (GATHER), type `what` (BUILD, TRAIN),
place (MOVE, BUILD)."""

_UNITS = [
    ("serial", np.int32),
    ("owner", np.int32),
    ("type", np.int32),
    ("hp", np.int32),
    ("stage", np.int32),
    ("created", np.int32),
    ("x", np.float32),
    ("y", np.float32),
    ("last_attack", np.int32),
    ("last_gather", np.int32),
    ("last_build", np.int32),
    ("sight_cell", np.int32),
    # The running order.
    ("order", np.int32),
    ("started", np.int32),
    ("stamp", np.int32),
    ("number", np.int32),
    ("step", np.int32),
    ("target", np.int32),
    ("hall", np.int32),
    ("what", np.int32),
    ("site", np.int32),
    ("to_x", np.float32),
    ("to_y", np.float32),
    ("listed", np.int32),
]
_QUEUED = [
    ("q_kind", np.int32),
    ("q_unit", np.int32),
    ("q_other", np.int32),
    ("q_value", np.int32),
    ("q_extra", np.int32),
    ("q_cost", np.int32),
    ("q_x", np.float32),
    ("q_y", np.float32),
]
_PENDING = [
    ("p_unit", np.int32),
    ("p_stamp", np.int32),
    ("p_kind", np.int32),
    ("p_target", np.int32),
    ("p_hall", np.int32),
    ("p_what", np.int32),
    ("p_x", np.float32),
    ("p_y", np.float32),
]
_BULLETS = [
    ("b_shooter", np.int32),
    ("b_target", np.int32),
    ("b_type", np.int32),
    ("b_x", np.float32),
    ("b_y", np.float32),
    ("b_gone_at", np.int32),
]
_OPPONENTS = [
    # Scripted opponents, one per player.
    ("ai_kind", np.int32, (2,)),
    ("ai_every", np.int32, (2,)),
    ("ai_types", np.int32, (2, 3)),
    ("ai_mins", np.int32, (2, 3)),
    ("ai_num_types", np.int32, (2,)),
    ("ai_max", np.int32, (2,)),
    ("ai_towers", np.int32, (2,)),
    ("ai_queued", np.int32, (2,)),
    ("ai_last_army", np.int32, (2,)),
    ("ai_found_base", np.int32, (2,)),
    ("rng", np.uint32, (2, 624)),
    ("rng_at", np.int32, (2,)),
]

_GAME: list[Any] = [
    ("tick", np.int32),
    ("status", np.int32),
    ("winner", np.int32),
    ("max_tick", np.int32),
    ("unit_cap", np.int32),
    ("next_serial", np.int32),
    ("next_number", np.int32),
    ("money", np.int32, (2,)),
    ("failed", np.int32, (FAILURE_TICKS,)),
    ("count", np.int32, (2,)),
    ("roster", np.int32, (2, SLOTS)),
    ("agenda_size", np.int32),
    ("agenda", np.int32, (SLOTS,)),
    *((name, dtype, (SLOTS,)) for name, dtype in _UNITS),
    ("known", np.int32, (2, SLOTS)),
    ("terrain", np.int32, (CELLS,)),
    ("sight", np.int32, (2, CELLS)),
    ("seen", np.int32, (2, CELLS)),
    ("num_closed", np.int32),
    ("closed_player", np.int32, (2 * SLOTS,)),
    ("closed_cell", np.int32, (2 * SLOTS,)),
    ("num_pending", np.int32),
    *((name, dtype, (PENDING,)) for name, dtype in _PENDING),
    ("num_bullets", np.int32),
    *((name, dtype, (BULLETS,)) for name, dtype in _BULLETS),
    ("queue_end", np.int32),
    *((name, dtype, (QUEUE,)) for name, dtype in _QUEUED),
    *_OPPONENTS,
]
GAME = np.dtype(_GAME, align=True)
"""The state of a game.

serial to listed: per slot, a unit (`serial` 0: free) and its running order; `stamp` is the tick an order believes it
    is, `number` counts orders, `step` is how far an order is, `site` refers to the building under construction.
known: per player and slot, whether a building or resource was ever seen.
roster, count: the slots of each player's units in the order of creation.
agenda: the slots of units with orders, in the order in which they run.
sight: per player and cell, how many units see it. seen: whether it ever was.
closed_*: where units stood that saw something until this tick's fog.
p_*: new orders, in the order in which they begin. b_*: bullets; those that fly have no tick `b_gone_at` yet, 0.
q_*: commands of the running tick, empty between ticks.
ai_*, rng: scripted opponents; see `rllib_llm_comm.envs.minirts.engine.opponents`.
"""

_MEMORY: list[Any] = [
    ("learned", np.float32, (2, CELLS, CELLS)),
    ("route", np.int32, (2, CELLS, CELLS)),
    ("touched", np.int32, (2, CELLS)),
    ("search", np.int32),
    ("mark", np.int32, (CELLS,)),
    ("cost", np.float32, (CELLS,)),
    ("parent", np.int32, (CELLS,)),
    ("popped", np.int32, (CELLS,)),
    ("heap_size", np.int32),
    ("heap_f", np.float32, (CELLS,)),
    ("heap_g", np.float32, (CELLS,)),
    ("heap_cell", np.int32, (CELLS,)),
    # The thoughts of a scripted opponent while it acts.
    ("lists", np.int32, (NUM_LISTS, SLOTS)),
    ("list_size", np.int32, (NUM_LISTS,)),
    ("own", np.int32, (NUM_TYPES,)),
    ("coming", np.int32, (NUM_TYPES,)),
    ("wanted", np.int32, (NUM_TYPES,)),
    ("hall", np.int32),
    ("budget", np.int32),
    ("money_left", np.int32),
    ("scout", np.int32),
    ("assault", np.int32),
    ("wish", np.int32, (SLOTS,)),
    ("wish_target", np.int32, (SLOTS,)),
    ("wish_hall", np.int32, (SLOTS,)),
    ("wish_what", np.int32, (SLOTS,)),
    ("wish_x", np.float32, (SLOTS,)),
    ("wish_y", np.float32, (SLOTS,)),
]
MEMORY = np.dtype(_MEMORY, align=True)
"""Memory of the path planners, and room for their searches.

learned: per player, target cell and cell: the learned distance, 0 if there is none.
route: per player, target cell and start cell: the last way found and its tick; see
    `rllib_llm_comm.envs.minirts.engine.movement`.
touched: per player and target cell, whether its rows of `learned` and `route` hold anything.
lists to wish_y: room for scripted opponents; see `rllib_llm_comm.envs.minirts.engine.opponent_rules`.
"""


def new_game() -> np.ndarray:
    """A record of no game yet, shape (1,)."""
    game = np.zeros(1, GAME)
    game["winner"] = NO_ONE
    game["next_serial"] = 1
    return game


def new_memory() -> np.ndarray:
    """A memory of planners that know nothing, shape (1,)."""
    return np.zeros(1, MEMORY)


def fingerprint() -> int:
    """A number that changes with any source in this folder, which holds all that is compiled."""
    total = 0
    for path in sorted(Path(__file__).parent.glob("*.py")):
        total = zlib.crc32(path.read_bytes(), total)
    return total
