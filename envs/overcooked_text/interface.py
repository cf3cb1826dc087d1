"""What goes in and out of the environment: spaces, and the check of actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from rllib_llm_comm.errors import UserError

MAX_TEXT, MAX_PHRASE, MAX_SUBGOAL = 1000, 100, 300
"""Longest texts, in characters."""
_CHARACTERS = frozenset(map(chr, range(32, 127)))  # printable ASCII


def observation_space(vector_size: int, num_actions: int) -> spaces.Dict:
    """The space of an agent's observations.

    Args:
        vector_size: Length of the vector.
        num_actions: Number of actions.
    """

    def words(longest: int) -> spaces.Text:
        return spaces.Text(max_length=longest, min_length=0, charset=_CHARACTERS)

    return spaces.Dict(
        {
            "vector": spaces.Box(0.0, 1.0, (vector_size,), np.float32),
            "text": words(MAX_TEXT),
            "candidates": spaces.Tuple([words(MAX_PHRASE) for _ in range(num_actions)]),
            "action_mask": spaces.Box(0, 1, (num_actions,), np.int8),
            "subgoal": words(MAX_SUBGOAL),
        }
    )


def check_actions(
    actions: Mapping[str, Any], agents: Sequence[str], needs_action: Sequence[bool], num_actions: int
) -> list[int | None]:
    """Checks what a user gave to `step`.

    Args:
        actions: Action per agent.
        agents: All agents.
        needs_action: Per agent whether it needs an action.
        num_actions: Number of actions.

    Returns:
        The action of each agent that needs one, None for the others.

    Raises:
        UserError: For an unknown agent, or a missing or impossible action.
    """
    for agent in actions:
        if agent not in agents:
            raise UserError(f"`actions` has an entry for {agent!r}, but the agents are {list(agents)}.")
    chosen: list[int | None] = []
    for agent, needed in zip(agents, needs_action, strict=True):
        if not needed:
            chosen.append(None)
            continue
        if agent not in actions:
            raise UserError(
                f"`actions` has no entry for {agent!r}, which needs a new action; "
                "give one for every agent whose info `needs_action` is true."
            )
        action = actions[agent]
        if not isinstance(action, (int, np.integer)) or not 0 <= action < num_actions:
            raise UserError(
                f"`actions[{agent!r}]` is {action!r} but must be a whole number from 0 to {num_actions - 1}."
            )
        chosen.append(int(action))
    return chosen
