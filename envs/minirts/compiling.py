"""Compiles the rules at the first game, and says so if that takes time."""

from __future__ import annotations

import logging
import threading
import time
from functools import cache

import numpy as np

from rllib_llm_comm.envs.minirts import state, ticks

logger = logging.getLogger(__name__)

_SILENT_SECONDS = 3.0


@cache
def compile_rules() -> float:
    """Makes sure that the rules are compiled; numba keeps them on disk, so that later processes only load them.

    Returns:
        Seconds that it took.
    """
    note = threading.Timer(
        _SILENT_SECONDS,
        logger.warning,
        ("Compiling the rules of MiniRTS; this takes about a minute and is kept for later.",),
    )
    note.daemon = True
    note.start()
    start = time.perf_counter()
    try:
        game, memory = state.new_game()[0], state.new_memory()[0]
        ticks.run(game, memory, np.zeros(0, state.ORDER), np.zeros(0, np.int32), True, 0, True)
    finally:
        note.cancel()
    return time.perf_counter() - start
