"""Scripted players of the referential game: their messages and actions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rllib_llm_comm.envs.referential.sayings import ASK, TELL
from rllib_llm_comm.envs.telling_game import LISTENER_NAME


def messages(state: Any, agents: Sequence[str], rng: np.random.Generator) -> dict[str, str]:
    """Messages of all agents: who is told the thing names it, who is not asks.

    Args:
        state: The environment.
        agents: Names of the agents.
        rng: Chooses the wording.
    """
    return {
        agent: str(rng.choice(TELL)).format(thing=state.told(agent)) if state.told(agent) else str(rng.choice(ASK))
        for agent in agents
    }


def advise(env: Any, agent: str) -> int | None:
    """Action of a player that knows the thing.

    Args:
        env: The (unwrapped) environment.
        agent: The agent in turn.
    """
    return env.seen_by(agent).candidates.index(f"take the {env.fact}") if agent == LISTENER_NAME else 0
