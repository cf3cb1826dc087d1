"""Commanders that command what they are told, by rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rllib_llm_comm.envs.minirts.commanders.tasks import parse_command
from rllib_llm_comm.envs.minirts.view.names import COMMANDERS
from rllib_llm_comm.sama.planning_game import PlanningGame


@dataclass(frozen=True)
class FollowingCommanders:
    """Gives the command of its subgoal as soon as it may, and else lets go on what is in force.

    Where the game lacks the number of a subgoal, the largest smaller one is commanded, until enough have come out.

    Attributes:
        game: The strategy game.
    """

    game: PlanningGame

    def begin(self, seed: int) -> None:
        """Nothing is remembered; the officers are part of the game."""

    def act(self, memory: Any, observations: Mapping[Any, Any]) -> dict[Any, int]:
        """The next command of each commander that is asked.

        Args:
            memory: Not used.
            observations: Of those that are asked, with their `subgoal` and `action_mask`.
        """
        return {agent: self._action(COMMANDERS.index(str(agent)), seen) for agent, seen in observations.items()}

    def _action(self, commander: int, seen: Mapping[str, Any]) -> int:
        env, wanted = self.game.env.unwrapped, parse_command(str(seen["subgoal"]))
        jobs = [job.command for job in env.executor.orders[commander].jobs]
        if wanted is None or any(job.kind == wanted.kind for job in jobs):
            return 0
        fitting = [
            number
            for number, command in enumerate(env.commands)
            if (command.verb, command.kind) == (wanted.verb, wanted.kind)
            and command.number <= wanted.number
            and seen["action_mask"][number]
        ]
        return max(fitting, key=lambda number: env.commands[number].number, default=0)
