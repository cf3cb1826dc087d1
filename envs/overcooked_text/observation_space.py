"""Parts of an observation, and their space."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from rllib_llm_comm.envs.interface import text_spaces

PARTS = ("vector", "text")


def observation_space(parts: Sequence[str], size: int, num_actions: int, central_critic: bool) -> spaces.Dict:
    """The space of an agent's observations.

    Args:
        parts: Some of `PARTS`.
        size: Numbers of `vector`.
        num_actions: Number of actions.
        central_critic: Whether observations have `critic_text`.
    """
    fields: dict[str, spaces.Space[Any]] = {"action_mask": spaces.Box(0, 1, (num_actions,), np.int8)}
    if "vector" in parts:
        fields["vector"] = spaces.Box(0.0, 1.0, (size,), np.float32)
    if "text" in parts:
        fields |= text_spaces(num_actions, central_critic)
    return spaces.Dict(fields)
