"""The scripted teacher: sees the whole kitchen and says what is missing."""

from __future__ import annotations

from typing import Any

import numpy as np

from rllib_llm_comm.envs.overcooked_text import text
from rllib_llm_comm.envs.overcooked_text.cook import choose, say, word
from rllib_llm_comm.errors import UserError
from rllib_llm_comm.teachers.base import Teacher, TeacherRequest


class ScriptedTeacher(Teacher):
    """Labels messages by rules on the true state of the textual kitchen.

    It stands in for the paper's GPT-4. Each cook asks for the next thing that it misses, or tells what it does
    itself; the rules (`envs/overcooked_text/cook.py`) have an answer in every state, in a few wordings.
    """

    name = "scripted"

    def messages(self, request: TeacherRequest, *, rng: np.random.Generator) -> dict[str, str]:
        """One message per agent.

        Args:
            request: Its `state` is the game of the textual Overcooked.
            rng: Chooses the wording.

        Raises:
            UserError: If the request comes from another game.
        """
        if not text.is_kitchen(request.state):
            raise UserError(
                f"`teacher` is 'scripted' but the environment's state is {type(request.state).__name__}; the scripted "
                "teacher knows textual Overcooked only: use 'chat' or register a teacher of your own."
            )
        return {
            agent: word(say(text.view(request.state, index, everything=True)), rng)
            for index, agent in enumerate(request.agents)
        }

    def advise(self, env: Any, agent: str) -> int | None:
        """What the scripted cook would do, seeing everything; `None` in other games or with primitive actions."""
        runner = getattr(env, "runner", None)
        if runner is None or getattr(runner, "level", "") != "macro" or not text.is_kitchen(runner):
            return None
        index = env.possible_agents.index(agent)
        _, mask = text.candidates(runner, index)
        found = text.options(runner, index)
        allowed = [action for action, offered in enumerate(mask) if offered]
        view = text.view(runner, index, everything=True)
        return allowed[choose(view, [found[action] for action in allowed])]
