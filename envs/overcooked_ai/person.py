"""Functions for people who take a seat: the keys by which one walks, and the picture of what a cook sees."""

from __future__ import annotations

from typing import Any

import numpy as np

from rllib_llm_comm.envs.overcooked_ai.kernel import EAST, INTERACT, NORTH, SOUTH, STAY, WEST

_KEYS = {"ArrowUp": NORTH, "ArrowDown": SOUTH, "ArrowRight": EAST, "ArrowLeft": WEST, " ": INTERACT, ".": STAY}


def keys(env: Any, agent: str) -> dict[str, int]:
    """Key of the keyboard -> action; empty unless actions are single steps.

    Args:
        env: The (unwrapped) environment.
        agent: The cook.
    """
    return dict(_KEYS) if env.settings["action_level"] == "primitive" else {}


def picture(env: Any, agent: str) -> np.ndarray:
    """The kitchen as pixels, uint8 (height, width, 3): both cooks see all of it; a wanted pot is not drawn.

    Args:
        env: The (unwrapped) environment.
        agent: The cook.
    """
    drawn: np.ndarray = env.draw_rgb()
    return drawn
