"""The scripted teacher: sees the whole kitchen and says what is missing."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from rllib_llm_comm.errors import UserError
from rllib_llm_comm.teachers.base import Teacher, TeacherRequest

_ENVS = "rllib_llm_comm.envs"
# Scripted players by game: modules with `messages` and `advise`; each is imported when it is met.
_PLAYERS = {
    "door": "scripted_player",
    "minirts": "commanders.scripted_player",
    "overcooked_ai": "scripted_player",
    "overcooked_text": "scripted_player",
    "referential": "scripted_player",
}


class ScriptedTeacher(Teacher):
    """Labels messages by rules on the true state of our games.

    It stands in for the paper's GPT-4. What it says is told by each game's own scripted player, which has an
    answer in every state, in a few wordings.
    """

    name = "scripted"

    def messages(self, request: TeacherRequest, *, rng: np.random.Generator) -> dict[str, str]:
        """One message per agent.

        Args:
            request: Its `state` is a kitchen, or the officers of the strategy game.
            rng: Chooses the wording.

        Raises:
            UserError: If the request comes from another game.
        """
        game = _scripted_part(request.state)
        if game is None:
            raise UserError(
                f"`teacher` is 'scripted' but the environment's state is {type(request.state).__name__}; the scripted "
                "teacher knows our kitchens, the strategy game and the two games of telling only: "
                "use 'chat' or register a teacher of your own."
            )
        said: dict[str, str] = game.messages(request.state, request.agents, rng)
        return said

    def advise(self, env: Any, agent: str) -> int | None:
        """What the scripted cook would do, seeing everything; `None` where it has no advice.

        Args:
            env: The (unwrapped) environment. In the textual kitchen there is advice on macro-actions only.
            agent: Whose turn it is.
        """
        game = _scripted_part(env)
        advice: int | None = None if game is None else game.advise(env, agent)
        return advice


def _scripted_part(thing: Any) -> Any:
    """The scripted player of the game that a state or an environment belongs to, or `None`."""
    for kind in type(thing).__mro__:
        parent, _, rest = kind.__module__.partition(f"{_ENVS}.")
        game = rest.split(".")[0]
        if not parent and game in _PLAYERS:
            return import_module(f"{_ENVS}.{game}.{_PLAYERS[game]}")
    return None
