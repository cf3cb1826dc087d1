"""Compiles the rules at the first game, and says so if that takes time."""

from __future__ import annotations

import time
from functools import cache

import numpy as np

from rllib_llm_comm.envs.compiling import compiling
from rllib_llm_comm.envs.minirts.engine import state, tick_rules
from rllib_llm_comm.envs.minirts.engine.random_stream import seed_stream


@cache
def compile_rules() -> float:
    """Makes sure that the rules are compiled; numba keeps them on disk, so that later processes only load them.

    Returns:
        Seconds that it took.
    """
    start = time.perf_counter()
    with compiling("MiniRTS", "about a minute"):
        record, memory = state.new_game(), state.new_memory()
        tick_rules.begin(record[0], ())
        seed_stream(record, 0, 0)
        tick_rules.draw(record[0], 0, 0, 1)
        tick_rules.run(record[0], memory[0], np.zeros(0, state.ORDER), np.zeros(0, np.int32), True, 0, True)
    return time.perf_counter() - start
