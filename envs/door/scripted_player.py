"""Scripted players of the door game: their messages and actions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rllib_llm_comm.envs.door.sayings import ASK, TELL
from rllib_llm_comm.envs.telling_game import LISTENER_NAME


def messages(state: Any, agents: Sequence[str], rng: np.random.Generator) -> dict[str, str]:
    """Messages of all agents: who is told the door names it, who is not asks.

    Args:
        state: The environment.
        agents: Names of the agents.
        rng: Chooses the wording.
    """
    return {
        agent: str(rng.choice(TELL)).format(colour=state.told(agent)) if state.told(agent) else str(rng.choice(ASK))
        for agent in agents
    }


def advise(env: Any, agent: str) -> int | None:
    """Action of a player that knows the door.

    Args:
        env: The (unwrapped) environment.
        agent: The agent in turn.
    """
    seen = env.seen_by(agent)
    if agent != LISTENER_NAME:
        return 0
    if env.time == 0:
        return seen.candidates.index(f"go to the {env.fact} door")
    return len(seen.candidates) - 1 if f"at the {env.fact} door" in seen.text else 0
