"""Subgoals in observations: as words, or as numbers behind their vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from rllib_llm_comm.core.errors import UserError, require_choice
from rllib_llm_comm.envs.interface import MAX_SUBGOAL, SUBGOAL
from rllib_llm_comm.sama.planning_game import PlanningGame

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
        return planned[:MAX_SUBGOAL] if self.tells(agent) else ""

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
