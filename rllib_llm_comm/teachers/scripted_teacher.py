"""The scripted teacher: sees a game's true state and labels by the rules of the game's scripted player."""

from __future__ import annotations

from typing import Any

import numpy as np

from rllib_llm_comm.envs.games import GAMES, game_of
from rllib_llm_comm.errors import UserError
from rllib_llm_comm.lazy import load
from rllib_llm_comm.teachers.base import Teacher, TeacherRequest


class ScriptedTeacher(Teacher):
    """Labels messages by rules on the true state of our games.

    It stands in for the paper's GPT-4. Its messages are those of each game's own scripted player, which has an
    answer in every state, in a few wordings.
    """

    name = "scripted"

    def messages(self, request: TeacherRequest, *, rng: np.random.Generator) -> dict[str, str]:
        """One message per agent.

        Args:
            request: Its `state` is one of a game with a scripted player: a kitchen, or the side of a strategy game.
            rng: Chooses the wording.

        Raises:
            UserError: If the request comes from another game.
        """
        player = _scripted_player(request.state)
        if player is None:
            known = ", ".join(name for name, record in GAMES.items() if record.scripted_player)
            raise UserError(
                f"`teacher` is 'scripted' but the environment's state is {type(request.state).__name__}, which belongs "
                f"to no game with a scripted player ({known}); use 'chat', register a teacher of your own, or register "
                "the game with a `scripted_player`."
            )
        said: dict[str, str] = player.messages(request.state, request.agents, rng)
        return said

    def advise(self, env: Any, agent: str) -> int | None:
        """The action of the game's scripted player, which sees everything; `None` where it has no advice.

        Args:
            env: The (unwrapped) environment. In the textual kitchen there is advice on macro-actions only.
            agent: Whose turn it is.
        """
        player = _scripted_player(env)
        advice: int | None = None if player is None else player.advise(env, agent)
        return advice


def _scripted_player(thing: Any) -> Any:
    """The scripted player of the game that a state or an environment belongs to, or `None`."""
    record = game_of(thing)
    return load(record.scripted_player) if record and record.scripted_player else None
