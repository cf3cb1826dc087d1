"""The random numbers of scripted opponents: mt19937, as the original draws them. Compiled; `g` is a `state.GAME`."""

from __future__ import annotations

import numpy as np

from rllib_llm_comm.envs.minirts.engine.compiled_rule import rule

_LENGTH, _AHEAD = 624, 397
_WORD = 2**32


def seed_stream(record: np.ndarray, player: int, seed: int) -> None:
    """Begins a player's stream anew.

    Args:
        record: The game, `state.GAME` of shape (1,).
        player: The player.
        seed: Any whole number; streams repeat modulo 2**32.
    """
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
