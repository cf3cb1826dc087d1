"""The picture of what commanders see, for people who take a seat."""

from __future__ import annotations

from typing import Any

import numpy as np

from rllib_llm_comm.envs.minirts.view import render


def picture(env: Any, agent: str) -> np.ndarray:
    """The map as the side knows it as pixels, uint8 (height, width, 3): own units, and enemies in sight.

    Args:
        env: The (unwrapped) environment.
        agent: The commander; all of a side share their sight.
    """
    return render.known_map(env.game, env.team)
