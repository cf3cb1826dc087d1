"""Tracking of subgoals: the agent, the begin and the end of each."""

from __future__ import annotations

from collections.abc import Callable

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.sama.planning_game import PlanningGame, State
from rllib_llm_comm.sama.plans import DONE, LOST, REMEMBERED, STUCK, WAITED, Outcome, Plan

PATIENCE = 40
WAITING = 5

Done = Callable[[State, State, str, str], bool]
"""Test of a subgoal, true if an agent has done it: before, after, agent, subgoal."""


def check_patience(patience: object) -> None:
    """Refuses what is no number of game steps.

    Args:
        patience: Game steps, >= 1.

    Raises:
        UserError: If it is not allowed.
    """
    if isinstance(patience, bool) or not isinstance(patience, int) or patience < 1:
        raise UserError(f"`patience` is {patience!r} but must be a whole number from 1 up.")


class SubgoalTracker:
    """Watches the agents' subgoals step by step.

    A subgoal ends when it is done, when it has not been done for `patience` game steps, or when the agent cannot set
    about it any more. One that asks an agent to stay as it is ends as `WAITED` after `WAITING` game steps.

    Args:
        game: The game.
        patience: Game steps, >= 1.
        done: Says when a subgoal is done; by default the game does.

    Attributes:
        told: The subgoal of each agent, also after it has ended; empty before the first plan.
        ended: Agents whose subgoals have ended, and those that have none yet.
        outcomes: Ends of the last subgoals of this episode.
        counts: Subgoals given, and how they ended, in this episode.

    Raises:
        UserError: If `patience` is not allowed.
    """

    def __init__(self, game: PlanningGame, patience: int = PATIENCE, done: Done | None = None) -> None:
        check_patience(patience)
        self.game, self.patience = game, patience
        self._done = done or game.done
        self.begin()

    def begin(self) -> None:
        """Begins an episode."""
        agents = self.game.agents
        self.told = dict.fromkeys(agents, "")
        self.ended = set(agents)
        self.outcomes: list[Outcome] = []
        self.counts = dict.fromkeys(("given", DONE, WAITED, STUCK, LOST), 0)
        self._age = dict.fromkeys(agents, 0)

    def current(self) -> dict[str, str]:
        """The subgoals that have not ended; empty words for the other agents."""
        return {agent: "" if agent in self.ended else subgoal for agent, subgoal in self.told.items()}

    def give(self, plan: Plan) -> None:
        """Gives out what a plan says; an agent whose subgoal stays the same and has not ended goes on with it.

        Args:
            plan: The plan.
        """
        for agent, subgoal in plan.by_agent().items():
            if agent in self.ended or self.told[agent] != subgoal:
                self.told[agent], self._age[agent] = subgoal, 0
                self.ended.discard(agent)
                self.counts["given"] += 1

    def watch(self, passed: list[State]) -> list[Outcome]:
        """Looks at what a `step` of the game has brought.

        Args:
            passed: Result of `PlanningGame.passed` after it.

        Returns:
            The subgoals that have ended in it.
        """
        ended = []
        for number, (before, after) in enumerate(zip(passed, passed[1:], strict=False)):
            for agent, subgoal in self.told.items():
                how = "" if agent in self.ended else self._end(before, after, agent, subgoal)
                if how:
                    self.ended.add(agent)
                    ended.append(Outcome(agent, subgoal, how, number))
        for outcome in ended:
            self.counts[outcome.how] += 1
        self.outcomes = [*self.outcomes, *ended][-REMEMBERED:]
        return ended

    def _end(self, before: State, after: State, agent: str, subgoal: str) -> str:
        self._age[agent] += 1
        if self._done(before, after, agent, subgoal):
            return DONE
        if self.game.waits(after, agent, subgoal):
            return WAITED if self._age[agent] >= WAITING else ""
        if self.game.refusal(after, agent, subgoal):
            return LOST
        return STUCK if self._age[agent] >= self.patience else ""
