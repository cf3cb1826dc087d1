"""The moments at which agents began with their subgoals, for tests that count what has happened since."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

SameMoment = Callable[[Any, Any], bool]
"""Tells whether two states are of one moment: `PlanningGame.same_moment`."""


@dataclass
class _Begun:
    """A subgoal, the first moment at which it was looked at, and the last one."""

    subgoal: str
    start: Any
    last: Any


class SubgoalStarts:
    """Starts of the agents' subgoals, as far as they are looked at step by step."""

    def __init__(self) -> None:
        self._begun: dict[str, _Begun] = {}

    def of(self, same: SameMoment, before: Any, after: Any, agent: str, subgoal: str) -> Any:
        """The moment at which an agent began with a subgoal: before the first of the steps in a row that are looked at.

        Args:
            same: The game's test of moments, by which steps follow on each other.
            before: The moment before a game step.
            after: The moment after it.
            agent: Its name.
            subgoal: The subgoal.
        """
        begun = self._begun.get(agent)
        if begun is None or begun.subgoal != subgoal or not same(begun.last, before):
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
