"""The scripted teacher: sees the whole kitchen and says what is missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rllib_llm_comm.envs.overcooked_ai import sayings
from rllib_llm_comm.envs.overcooked_ai.goal_cells import Walker
from rllib_llm_comm.envs.overcooked_ai.planner import plan
from rllib_llm_comm.envs.overcooked_ai.rules import Kitchen as OnionSoupKitchen
from rllib_llm_comm.envs.overcooked_text import text
from rllib_llm_comm.envs.overcooked_text.cook import choose, say, word
from rllib_llm_comm.errors import UserError
from rllib_llm_comm.teachers.base import Teacher, TeacherRequest


class ScriptedTeacher(Teacher):
    """Labels messages by rules on the true state of our kitchens.

    It stands in for the paper's GPT-4. In the textual kitchen each cook asks for the next thing that it misses, or
    tells what it does itself (`envs/overcooked_text/cook.py`); among onion soups it tells its next task and the
    other's, as the scripted planner gives them (`envs/overcooked_ai/sayings.py`). There is an answer in every state,
    in a few wordings.
    """

    name = "scripted"

    def messages(self, request: TeacherRequest, *, rng: np.random.Generator) -> dict[str, str]:
        """One message per agent.

        Args:
            request: Its `state` is a kitchen.
            rng: Chooses the wording.

        Raises:
            UserError: If the request comes from another game.
        """
        if isinstance(request.state, OnionSoupKitchen):
            kitchen = request.state
            return {agent: sayings.word(sayings.say(kitchen, i), rng) for i, agent in enumerate(request.agents)}
        if not text.is_kitchen(request.state):
            raise UserError(
                f"`teacher` is 'scripted' but the environment's state is {type(request.state).__name__}; the scripted "
                "teacher knows our two kitchens only: use 'chat' or register a teacher of your own."
            )
        return {
            agent: word(say(text.view(request.state, index, everything=True)), rng)
            for index, agent in enumerate(request.agents)
        }

    def advise(self, env: Any, agent: str) -> int | None:
        """What the scripted cook would do, seeing everything; `None` where it has no advice.

        Args:
            env: The (unwrapped) environment. In the textual kitchen there is advice on macro-actions only.
            agent: Whose turn it is.
        """
        if isinstance(getattr(env, "kitchen", None), OnionSoupKitchen):
            return _ADVICE[env.settings["action_level"]](env, env.players[agent])
        runner = getattr(env, "runner", None)
        if runner is None or getattr(runner, "level", "") != "macro" or not text.is_kitchen(runner):
            return None
        index = env.possible_agents.index(agent)
        _, mask = text.candidates(runner, index)
        found = text.options(runner, index)
        allowed = [action for action, offered in enumerate(mask) if offered]
        view = text.view(runner, index, everything=True)
        return allowed[choose(view, [found[action] for action in allowed])]


def _primitive(env: Any, player: int) -> int:
    return Walker(env.kitchen, player).action(plan(env.kitchen)[player].cell)


def _goal_cell(env: Any, player: int) -> int:
    x, y = plan(env.kitchen)[player].cell
    return int(y * env.kitchen.layout.width + x)


def _goal(env: Any, player: int) -> int:
    task = plan(env.kitchen)[player]
    return 0 if task.verb == "wait" else int(env.level.goals.index(task.cell)) + 1


_ADVICE: Mapping[str, Callable[[Any, int], int]] = {
    "primitive": _primitive,
    "goal_cell": _goal_cell,
    "goal": _goal,
}
