"""Following of subgoals: who is told which, when it began, and how it ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from rllib_llm_comm.core.errors import UserError, require_choice
from rllib_llm_comm.envs.interface import SUBGOAL
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


VECTOR = "vector"
ALL = "all"


class SubgoalTeller:
    """Writes subgoals into observations: as the text `subgoal`, and for agents that read numbers behind `vector`.

    Args:
        game: The game; its observations have the text `subgoal`, or for `in_vector` the Box `vector`.
        in_vector: Whether `vector` gets one number more per subgoal of the game: 1 for the agent's own, else 0.
        to: Agents that are told their subgoals: "all", or a list of names.

    Raises:
        UserError: If `to` is not allowed, or the observations have no place for subgoals, or have subgoals of the
            game's own.
    """

    def __init__(self, game: PlanningGame, in_vector: bool = False, to: str | Sequence[str] = ALL) -> None:
        check_subgoals_to(to, game.agents)
        self._env, self._in_vector = game.env, in_vector
        self._to = frozenset(game.agents if to == ALL else to)
        known = [subgoal for agent in game.agents for subgoal in game.library(agent)] if in_vector else []
        self._numbers = {subgoal: number for number, subgoal in enumerate(dict.fromkeys(known))}
        for agent in self._env.possible_agents:
            _check(agent, self._env.observation_space(agent), in_vector)

    def space(self, agent: Any) -> gym.Space:
        """The space of what an agent is told and sees.

        Args:
            agent: Its name.
        """
        space = self._env.observation_space(agent)
        if not self._in_vector:
            return space
        box, more = space.spaces[VECTOR], len(self._numbers)
        low, high = np.append(box.low, np.zeros(more)), np.append(box.high, np.ones(more))
        longer = gym.spaces.Box(low.astype(box.dtype), high.astype(box.dtype), dtype=box.dtype)
        return gym.spaces.Dict({**space.spaces, VECTOR: longer})

    def tells(self, agent: Any) -> bool:
        """True if an agent is told its subgoals.

        Args:
            agent: Its name.
        """
        return str(agent) in self._to

    def words(self, agent: Any, planned: str) -> str:
        """The text `subgoal` of an agent; empty if it is told none.

        Args:
            agent: Its name.
            planned: Its subgoal; empty for none.
        """
        return planned if self.tells(agent) else ""

    def told(self, agent: Any, seen: Mapping[str, Any], planned: str) -> dict[str, Any]:
        """Observation of an agent with its subgoal, if it is told it.

        Args:
            agent: Its name.
            seen: Its observation.
            planned: Its subgoal; empty for none.
        """
        said, subgoal = dict(seen), planned if self.tells(agent) else ""
        if SUBGOAL in said:
            said[SUBGOAL] = self.words(agent, planned)
        if self._in_vector:
            own = np.zeros(len(self._numbers), said[VECTOR].dtype)
            if subgoal in self._numbers:
                own[self._numbers[subgoal]] = 1
            said[VECTOR] = np.append(said[VECTOR], own)
        return said


def check_subgoals_to(to: object, agents: Sequence[str] | None = None) -> None:
    """Refuses what names no agents.

    Args:
        to: "all", or a list of different names.
        agents: Names of the agents, where they are known.

    Raises:
        UserError: If it is not allowed.
    """
    if to == ALL:
        return
    names: Sequence[object] = to if isinstance(to, list | tuple) else ()
    if not names or not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise UserError(
            f"`subgoals_to` is {to!r} but must be 'all' or a list of different agents that are told their subgoals; "
            "leave `planner` away if nobody is."
        )
    for name in names if agents is not None else ():
        require_choice("subgoals_to", name, agents or ())


def _check(agent: Any, space: gym.Space, in_vector: bool) -> None:
    parts = space.spaces if isinstance(space, gym.spaces.Dict) else {}
    if "subgoal_id" in parts:
        raise UserError(
            "The environment gives subgoals itself, so that no planner can; use the game without them, such as "
            "'rllib_llm_comm/overcooked_ai-v0'."
        )
    if in_vector:
        box = parts.get(VECTOR)
        if not isinstance(box, gym.spaces.Box) or len(box.shape) != 1:
            raise UserError(
                f"The observations of {agent!r} have no row of numbers `{VECTOR}` behind which a planner could write; "
                "let the environment observe 'vector'."
            )
    elif SUBGOAL not in parts:
        raise UserError(
            f"The observations of {agent!r} have no `{SUBGOAL}` that a planner could fill; let the environment observe "
            "'text' or 'entities'."
        )
