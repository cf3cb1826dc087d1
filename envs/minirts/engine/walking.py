"""One step of a unit towards a place. Compiled; see `rllib_llm_comm.envs.minirts.engine.paths` for the arguments."""

from __future__ import annotations

import math

import numpy as np

from rllib_llm_comm.envs.minirts.engine import command_queue as commands
from rllib_llm_comm.envs.minirts.engine.collisions_and_sight import distance2, free
from rllib_llm_comm.envs.minirts.engine.compiled_rule import rule
from rllib_llm_comm.envs.minirts.engine.mapgen import SIZE
from rllib_llm_comm.envs.minirts.engine.paths import way
from rllib_llm_comm.envs.minirts.engine.state import CELLS, FAILURE_TICKS
from rllib_llm_comm.envs.minirts.engine.units import SPEED

_NEAR2 = np.float32(1)
_STAY = np.float32(0.4)


@rule
def walk(g, m, slot, to_x, to_y):  # type: ignore[no-untyped-def]
    """Plans a step: straight on, or turned left or right where something is in the way.

    Returns:
        float32: the squared distance before the step.
    """
    x, y, kind = g.x[slot], g.y[slot], g.type[slot]
    left2 = distance2(x, y, to_x, to_y)
    dx, dy = to_x - x, to_y - y
    if left2 > _NEAR2:
        cell = way(g, m, slot, to_x, to_y, g.stamp[slot])
        if cell != CELLS:
            dx, dy = np.float32(cell % SIZE) - x, np.float32(cell // SIZE) - y
    if abs(dx) < _STAY and abs(dy) < _STAY:
        return left2
    length = np.float32(math.sqrt(dx * dx + dy * dy))
    if length > SPEED[kind]:
        shorter = SPEED[kind] / length
        dx, dy = dx * shorter, dy * shorter
    for step_x, step_y in ((dx, dy), (-dy, dx), (dy, -dx)):
        if free(g, x + step_x, y + step_y, kind, slot):
            commands.move(g, slot, x + step_x, y + step_y)
            return left2
    g.failed[g.tick % FAILURE_TICKS] += 1
    return left2
