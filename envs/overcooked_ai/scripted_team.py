"""Scripted cooks that play together: each knows the wanted pot only if it is told it, by the game or by the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rllib_llm_comm.envs.interface import asked
from rllib_llm_comm.envs.overcooked_ai.goal_cells import Walker
from rllib_llm_comm.envs.overcooked_ai.layouts import Cell
from rllib_llm_comm.envs.overcooked_ai.names import find_place
from rllib_llm_comm.envs.overcooked_ai.planner import plan
from rllib_llm_comm.envs.overcooked_ai.sayings import PotSaying, guessed_pots, pot_in_use, say, understand, word
from rllib_llm_comm.envs.overcooked_ai.scripted_player import towards


class ScriptedTeam:
    """Plays both cooks of a kitchen by the planner's rules, each by what it sees, is told and hears.

    Unlike the scripted teacher's advice, a cook that is not told the wanted pot does not act on it. It uses the pot
    that the other's last message tells, else the only one in use, else the one that it was told of before, else any.

    Attributes:
        said: Last message of each cook, by name.
    """

    def __init__(self, env: Any, *, talk: bool = True, seed: int = 0) -> None:
        """Takes over a kitchen.

        Args:
            env: The (unwrapped) environment, with any action level; call `begin` after each of its resets.
            talk: Whether cooks hear each other.
            seed: Of the wording, and of the random steps of cooks that block each other.
        """
        self._env, self._talk = env, talk
        self.begin(seed)

    def begin(self, seed: int = 0) -> None:
        """Forgets what was said and believed.

        Args:
            seed: Of the wording, and of the random steps of cooks that block each other, in this episode.
        """
        self._rng = np.random.default_rng(seed)
        self.said: dict[str, str] = {}
        self._believed: dict[str, Cell] = {}
        self._walkers = [Walker(self._env.kitchen, player) for player in range(2)]
        for player, walker in enumerate(self._walkers):
            walker.reset(np.random.default_rng([seed, player]))

    def act(self, infos: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
        """Speaks, listens and chooses for all cooks that need an action.

        Args:
            infos: The last infos of the environment.
        """
        env = self._env
        choosing = asked(env.agents, infos)
        if self._talk:
            self.said |= {agent: word(say(env.kitchen, env.players[agent]), self._rng) for agent in choosing}
        return {agent: self._choose(agent) for agent in choosing}

    def _choose(self, agent: str) -> int:
        player = self._env.players[agent]
        task = plan(self._env.kitchen, self._pots(agent))[player]
        if self._env.settings["action_level"] == "primitive":
            return self._walkers[player].action(task.cell)
        return towards(self._env, agent, task.cell, waits=task.verb == "wait")

    def _pots(self, agent: str) -> tuple[Cell, ...] | None:
        """The pots that a cook uses; None for those that pay."""
        kitchen = self._env.kitchen
        if kitchen.wanted is None or kitchen.wanted.told[self._env.players[agent]]:
            return None
        heard = [understand(message) for speaker, message in self.said.items() if speaker != agent]
        told = [find_place(kitchen.layout, one.pot) for one in heard if isinstance(one, PotSaying) and one.pot]
        if told and told[0] is not None:
            self._believed[agent] = told[0]
        elif (used := pot_in_use(kitchen)) is not None:
            self._believed[agent] = used
        return (self._believed[agent],) if agent in self._believed else guessed_pots(kitchen)
