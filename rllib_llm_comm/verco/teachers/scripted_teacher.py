"""The scripted teacher: sees a game's true state and labels by the rules of the game's scripted player."""

from __future__ import annotations

from typing import Any

import numpy as np

from rllib_llm_comm.core.errors import UserError, require_choice
from rllib_llm_comm.envs.games import GAMES, scripted_player_of
from rllib_llm_comm.verco.teachers.base import Teacher, TeacherRequest


class ScriptedTeacher(Teacher):
    """Labels messages by rules on the true state of our games.

    It stands in for the paper's GPT-4. Its messages are those of each game's own scripted player, which has an
    answer in every state, in a few wordings.

    Args:
        repeat_fact: True if agents who are told a fact that others miss (`told_to`) say nothing else, and these ask for
            it, all the time. Default no: they do so while it is of use, and then speak of what they do. Of our games
            the strategy game has such messages.
        ask_to_wait: False if nobody asks another agent to wait: who would do so says what it does itself, alone.
            Default yes. Of our games the strategy game has such messages.

    Raises:
        UserError: If a setting is neither true nor false.
    """

    name = "scripted"
    stands_in = "rules that see the whole game"

    def __init__(self, repeat_fact: bool = False, ask_to_wait: bool = True) -> None:
        require_choice("teacher.repeat_fact", repeat_fact, (False, True))
        require_choice("teacher.ask_to_wait", ask_to_wait, (False, True))
        self.settings = {
            **({"repeat_fact": True} if repeat_fact else {}),
            **({} if ask_to_wait else {"ask_to_wait": False}),
        }

    def messages(self, request: TeacherRequest, *, rng: np.random.Generator) -> dict[str, str]:
        """One message per agent.

        Args:
            request: Its `state` is one of a game with a scripted player: a kitchen, or the side of a strategy game.
            rng: Chooses the wording.

        Raises:
            UserError: If the request comes from another game.
        """
        player = scripted_player_of(request.state)
        if player is None:
            known = ", ".join(name for name, record in GAMES.items() if record.scripted_player)
            raise UserError(
                f"`teacher` is 'scripted' but the environment's state is {type(request.state).__name__}, which belongs "
                f"to no game with a scripted player ({known}); use 'chat', register a teacher of your own, or register "
                "the game with a `scripted_player`."
            )
        if self.settings and not hasattr(player, "facts"):
            name, value = next(iter(self.settings.items()))
            raise UserError(
                f"`teacher.{name}` is {str(value).lower()} but the scripted player of this game has no messages of "
                "which it could choose; leave it out."
            )
        wording = {name: value for name, value in self.settings.items() if name == "ask_to_wait"}
        said: dict[str, str] = player.messages(request.state, request.agents, rng, **wording)
        if "repeat_fact" in self.settings:
            said.update(player.facts(request.state, request.agents, rng))
        return said

    def advise(self, env: Any, agent: str) -> int | None:
        """The action of the game's scripted player, which sees everything; `None` where it has no advice.

        Args:
            env: The (unwrapped) environment. In the textual kitchen there is advice on macro-actions only.
            agent: Name of the agent to act.
        """
        player = scripted_player_of(env)
        advice: int | None = None if player is None else player.advise(env, agent)
        return advice
