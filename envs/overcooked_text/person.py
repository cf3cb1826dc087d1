"""Functions for people who take a seat: the keys by which one walks, and the picture of what a cook sees."""

from __future__ import annotations

from typing import Any

import numpy as np

from rllib_llm_comm.envs.overcooked_text import render

_KEYS = {"ArrowRight": "right", "ArrowDown": "down", "ArrowLeft": "left", "ArrowUp": "up", ".": "stay"}


def keys(env: Any, agent: str) -> dict[str, int]:
    """Key of the keyboard -> action; empty where no single steps are offered.

    Args:
        env: The (unwrapped) environment.
        agent: The cook.
    """
    names = list(env.runner.names)
    found = {key: names.index(name) for key, name in _KEYS.items() if name in names}
    return found if "ArrowRight" in found else {}


def picture(env: Any, agent: str) -> np.ndarray:
    """The kitchen in the eyes of a cook as pixels, uint8 (height, width, 3); cells out of sight are dark and empty.

    Args:
        env: The (unwrapped) environment.
        agent: The cook.
    """
    return render.seen_by(env.kitchen, env.possible_agents.index(agent))
