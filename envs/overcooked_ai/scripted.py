"""What the scripted teacher says and advises in the onion-soup kitchens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rllib_llm_comm.envs.overcooked_ai.goal_cells import Walker
from rllib_llm_comm.envs.overcooked_ai.planner import plan
from rllib_llm_comm.envs.overcooked_ai.rules import Kitchen
from rllib_llm_comm.envs.overcooked_ai.sayings import say, word


def messages(state: Kitchen, agents: Sequence[str], rng: np.random.Generator) -> dict[str, str]:
    """What each cook should say: its next task and the other's, as the scripted planner gives them.

    Args:
        state: The kitchen.
        agents: Names of the cooks, in the order of the game.
        rng: Chooses the wording.
    """
    return {agent: word(say(state, i), rng) for i, agent in enumerate(agents)}


def advise(env: Any, agent: str) -> int:
    """What the planner's task for a cook wants now.

    Args:
        env: The (unwrapped) environment, with any action level.
        agent: Whose turn it is.
    """
    player, level = env.players[agent], env.settings["action_level"]
    task = plan(env.kitchen)[player]
    if level == "primitive":
        return Walker(env.kitchen, player).action(task.cell)
    if level == "goal_cell":
        return task.cell[1] * env.kitchen.layout.width + task.cell[0]
    return 0 if task.verb == "wait" else int(env.level.goals.index(task.cell)) + 1
