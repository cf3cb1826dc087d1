"""Functions for people who take a seat: the keys by which one walks, and the picture of what a walker sees."""

from __future__ import annotations

from typing import Any

import numpy as np

from rllib_llm_comm.envs.frozen_lake import render
from rllib_llm_comm.envs.frozen_lake.rules import ACTION_NAMES

_KEYS = {"ArrowLeft": "left", "ArrowDown": "down", "ArrowRight": "right", "ArrowUp": "up", ".": "stay"}


def keys(env: Any, agent: str) -> dict[str, int]:
    """Key of the keyboard -> action.

    Args:
        env: The (unwrapped) environment.
        agent: The walker.
    """
    return {key: ACTION_NAMES.index(name) for key, name in _KEYS.items()}


def picture(env: Any, agent: str) -> np.ndarray:
    """The walkers on plain ice as pixels, uint8 (height, width, 3): nobody sees holes and targets.

    Args:
        env: The (unwrapped) environment.
        agent: The walker.
    """
    return render.places_alone(env.lake)
