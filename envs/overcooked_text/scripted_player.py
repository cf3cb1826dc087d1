"""Scripted teacher of the textual kitchen: labels and advised actions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rllib_llm_comm.envs.overcooked_text import observation_text
from rllib_llm_comm.envs.overcooked_text.cook_rules import choose, say
from rllib_llm_comm.envs.overcooked_text.sayings import word


def messages(state: Any, agents: Sequence[str], rng: np.random.Generator) -> dict[str, str]:
    """Label for each cook: a request for the next thing that it misses, or its own work.

    Each sees the whole kitchen, but knows the order only if it is told it: who knows it tells it to the others first.

    Args:
        state: The kitchen, or its runner.
        agents: Names of the cooks, in the order of the game.
        rng: Chooses the wording.
    """
    return {agent: word(say(observation_text.view(state, i, everything=True)), rng) for i, agent in enumerate(agents)}


def advise(env: Any, agent: str) -> int | None:
    """Action of the scripted cook, which sees everything and knows the order; `None` with primitive actions.

    Args:
        env: The (unwrapped) environment.
        agent: The agent in turn.
    """
    runner = env.runner
    if runner.level != "macro":
        return None
    index = env.possible_agents.index(agent)
    _, mask = observation_text.candidates(runner, index)
    found = observation_text.options(runner, index)
    allowed = [action for action, offered in enumerate(mask) if offered]
    view = observation_text.view(runner, index, everything=True, order=True)
    return allowed[choose(view, [found[action] for action in allowed])]


def wait_action(env: Any, agent: str) -> int:
    """The action "stay".

    Args:
        env: The (unwrapped) environment.
        agent: The agent in turn.
    """
    runner = env.runner
    return 0 if runner.level == "macro" else int(runner.names.index("stay"))
