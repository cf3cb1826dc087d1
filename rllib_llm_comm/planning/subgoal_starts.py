"""The moments at which agents began with their subgoals, for tests that count what has happened since."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rllib_llm_comm.planning.planning_game import PlanningGame, State


@dataclass
class _Begun:
    """A subgoal, the first moment at which it was looked at, and the last one."""

    subgoal: str
    start: State
    last: State


class SubgoalStarts:
    """Starts of the agents' subgoals, as far as they are looked at step by step."""

    def __init__(self) -> None:
        self._begun: dict[str, _Begun] = {}

    def of(self, game: PlanningGame, before: State, after: State, agent: str, subgoal: str) -> State:
        """The moment at which an agent began with a subgoal: before the first of the steps in a row that are looked at.

        Args:
            game: Tells which moments follow on each other (`PlanningGame.same_moment`).
            before: The moment before a game step.
            after: The moment after it.
            agent: Its name.
            subgoal: The subgoal.
        """
        begun = self._begun.get(agent)
        if begun is None or begun.subgoal != subgoal or not game.same_moment(begun.last, before):
            begun = self._begun[agent] = _Begun(subgoal, before, after)
        begun.last = after
        return begun.start

    def end(self, agent: str) -> None:
        """Ends an agent's subgoal: the same one begins anew when it is looked at again.

        Args:
            agent: Its name.
        """
        self._begun.pop(agent, None)

    def clear(self) -> None:
        """Forgets all."""
        self._begun.clear()
