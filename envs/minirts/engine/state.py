"""State of a game in memory: two numpy records that the compiled rules change in place.

`GAME` is everything that is a game's state but what its path planners learned, which lies in `MEMORY`: that one is big,
but almost all of it is never touched, so the system never gives memory for it.

Units lie in slots. A slot is used again after its unit is gone; therefore whoever means a unit later holds a reference,
`serial * SLOTS + slot`, which no other unit ever has. -1 refers to nothing.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
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


def _fields(dtype: type, names: str, *shape: int) -> list[Any]:
    """Fields of a record that have one type and shape, by their names."""
    return [(name, dtype, shape) for name in names.split()]


ORDER = np.dtype(
    _fields(np.int32, "player unit kind target hall what") + _fields(np.float32, "x y"),
    align=True,
)
"""An order to a unit: references `unit`, `target` (ATTACK, GATHER) and `hall` (GATHER), type `what` (BUILD, TRAIN),
place (MOVE, BUILD)."""

GAME = np.dtype(
    [
        *_fields(np.int32, "tick status winner max_tick unit_cap next_serial next_number"),
        *_fields(np.int32, "money", 2),
        *_fields(np.int32, "failed", FAILURE_TICKS),
        *_fields(np.int32, "count", 2),
        *_fields(np.int32, "roster", 2, SLOTS),
        *_fields(np.int32, "agenda_size"),
        *_fields(np.int32, "agenda", SLOTS),
        # Units, and below them the running orders.
        *_fields(np.int32, "serial owner type hp stage created", SLOTS),
        *_fields(np.float32, "x y", SLOTS),
        *_fields(np.int32, "last_attack last_gather last_build sight_cell", SLOTS),
        *_fields(np.int32, "order started stamp number step target hall what site", SLOTS),
        *_fields(np.float32, "to_x to_y", SLOTS),
        *_fields(np.int32, "listed", SLOTS),
        *_fields(np.int32, "known", 2, SLOTS),
        *_fields(np.int32, "terrain", CELLS),
        *_fields(np.int32, "sight seen", 2, CELLS),
        *_fields(np.int32, "num_closed"),
        *_fields(np.int32, "closed_player closed_cell", 2 * SLOTS),
        *_fields(np.int32, "num_pending"),
        *_fields(np.int32, "p_unit p_stamp p_kind p_target p_hall p_what", PENDING),
        *_fields(np.float32, "p_x p_y", PENDING),
        *_fields(np.int32, "num_bullets"),
        *_fields(np.int32, "b_shooter b_target b_type", BULLETS),
        *_fields(np.float32, "b_x b_y", BULLETS),
        *_fields(np.int32, "b_gone_at", BULLETS),
        *_fields(np.int32, "queue_end"),
        *_fields(np.int32, "q_kind q_unit q_other q_value q_extra q_cost", QUEUE),
        *_fields(np.float32, "q_x q_y", QUEUE),
        # Scripted opponents, one per player.
        *_fields(np.int32, "ai_kind ai_every", 2),
        *_fields(np.int32, "ai_types ai_mins", 2, 3),
        *_fields(np.int32, "ai_num_types ai_max ai_towers ai_queued ai_last_army ai_found_base", 2),
        *_fields(np.uint32, "rng", 2, _LENGTH),
        *_fields(np.int32, "rng_at", 2),
    ],
    align=True,
)
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

MEMORY = np.dtype(
    [
        *_fields(np.float32, "learned", 2, CELLS, CELLS),
        *_fields(np.int32, "route", 2, CELLS, CELLS),
        *_fields(np.int32, "touched", 2, CELLS),
        *_fields(np.int32, "search"),
        *_fields(np.int32, "mark", CELLS),
        *_fields(np.float32, "cost", CELLS),
        *_fields(np.int32, "parent popped", CELLS),
        *_fields(np.int32, "heap_size"),
        *_fields(np.float32, "heap_f heap_g", CELLS),
        *_fields(np.int32, "heap_cell", CELLS),
        # The thoughts of a scripted opponent while it acts.
        *_fields(np.int32, "lists", NUM_LISTS, SLOTS),
        *_fields(np.int32, "list_size", NUM_LISTS),
        *_fields(np.int32, "own coming wanted", NUM_TYPES),
        *_fields(np.int32, "hall budget money_left scout assault"),
        *_fields(np.int32, "wish wish_target wish_hall wish_what", SLOTS),
        *_fields(np.float32, "wish_x wish_y", SLOTS),
    ],
    align=True,
)
"""Memory of the path planners, and room for their searches.

learned: per player, target cell and cell: the learned distance, 0 if there is none.
route: per player, target cell and start cell: the last way found and its tick; see
    `rllib_llm_comm.envs.minirts.engine.movement`.
touched: per player and target cell, whether its rows of `learned` and `route` hold anything.
lists to wish_y: room for scripted opponents; see `rllib_llm_comm.envs.minirts.engine.opponents`.
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


def _drawing(sources: int) -> Callable[..., int]:
    """The way in for Python, which numba keeps on disk as long as `sources` stays."""

    @njit(cache=True, nogil=True)
    def draw(g, player, low, high):  # type: ignore[no-untyped-def]
        """A whole number from low to high, both included, of a scripted opponent's stream."""
        _ = sources
        return uniform(g, player, low, high)

    drawing: Callable[..., int] = draw
    return drawing


draw = _drawing(fingerprint())
