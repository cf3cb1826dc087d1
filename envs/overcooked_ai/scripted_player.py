"""Scripted teacher of the onion-soup kitchens: labels and advised actions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rllib_llm_comm.envs.overcooked_ai.goal_cells import Walker
from rllib_llm_comm.envs.overcooked_ai.layouts import Cell
from rllib_llm_comm.envs.overcooked_ai.planner import plan
from rllib_llm_comm.envs.overcooked_ai.rules import Kitchen
from rllib_llm_comm.envs.overcooked_ai.sayings import say, word


def messages(state: Kitchen, agents: Sequence[str], rng: np.random.Generator) -> dict[str, str]:
    """Label for each cook: the wanted pot or a question for it, else its next task and the other's.

    Each sees the whole kitchen, but knows the wanted pot only if it is told it; see
    `rllib_llm_comm.envs.overcooked_ai.sayings.say`.

    Args:
        state: The kitchen.
        agents: Names of the cooks, in the order of the game.
        rng: Chooses the wording.
    """
    return {agent: word(say(state, i), rng) for i, agent in enumerate(agents)}


def advise(env: Any, agent: str) -> int:
    """Action of the planner's task for a cook; the planner knows the wanted pot for every cook.

    Args:
        env: The (unwrapped) environment, with any action level.
        agent: The agent in turn.
    """
    task = plan(env.kitchen)[env.players[agent]]
    return towards(env, agent, task.cell, waits=task.verb == "wait")


def towards(env: Any, agent: str, cell: Cell, waits: bool = False) -> int:
    """The action that takes a cook to a cell, where it uses what is there.

    Args:
        env: The (unwrapped) environment, with any action level.
        agent: The agent in turn.
        cell: The cell; one that can be used where the actions are goals in words, unless the cook waits.
        waits: Whether it may as well wait where it is.
    """
    level = env.settings["action_level"]
    if level == "primitive":
        return Walker(env.kitchen, env.players[agent]).action(cell)
    if level == "goal_cell":
        return cell[1] * env.kitchen.layout.width + cell[0]
    return 0 if waits else int(env.level.goals.index(cell)) + 1
