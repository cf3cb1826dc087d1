"""Scripted commanders that play together: each knows what the enemy trains only if it is told, hears or sees it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rllib_llm_comm.envs.minirts.commanders.command_level import enemy_types, strategy
from rllib_llm_comm.envs.minirts.commanders.sayings import EnemySaying, say, understand, word
from rllib_llm_comm.envs.minirts.commanders.tasks import Command
from rllib_llm_comm.envs.minirts.told_army import prepared_types, seen_types
from rllib_llm_comm.envs.minirts.view.names import COMMANDERS


class ScriptedTeam:
    """Plays all commanders of a side by the oracle's rules, each by what it is told, hears and sees of the enemy.

    Unlike the scripted teacher's advice, a commander that is not told the types does not act on them. It takes the
    enemy to make what was told it last, else what it sees, else what it saw last. One that knows nothing makes
    `commanders.GUESS`. Who has no producers goes along with those that stand. The strength of the enemy, as a number,
    is known to all as it is to the oracle.

    Attributes:
        said: Last message of each commander, by name.
    """

    def __init__(self, env: Any, *, talk: bool = True, seed: int = 0) -> None:
        """Takes over a side.

        Args:
            env: The (unwrapped) environment with commands in words; call `begin` after each of its resets.
            talk: Whether commanders hear each other.
            seed: Of the wording.
        """
        self._env, self._talk = env, talk
        self.begin(seed)

    def begin(self, seed: int = 0) -> None:
        """Forgets what was said and believed.

        Args:
            seed: Of the wording in this episode.
        """
        self._rng = np.random.default_rng(seed)
        self.said: dict[str, str] = {}
        self._heard: dict[str, tuple[int, ...]] = {}
        self._seen: tuple[int, ...] = ()

    def act(self, infos: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
        """Speaks, listens and chooses for all commanders.

        Args:
            infos: The last infos of the environment; all commanders decide at once.
        """
        env = self._env
        if self._talk:
            for agent in env.agents:
                saying = say(env.executor, env.commands, COMMANDERS.index(agent))
                self.said[agent] = word(saying, self._rng)
        self._seen = seen_types(env.team) or self._seen
        chosen: list[Command] = []
        for agent in env.agents:
            commander = COMMANDERS.index(agent)
            types = self._types(agent, commander)
            if env.team.producers not in (None, commander):
                types = prepared_types(env.team) or types
            chosen.append(strategy(env.executor, commander, env.commands, others=chosen, enemy=types))
        return {agent: env.commands.index(command) for agent, command in zip(env.agents, chosen, strict=True)}

    def _types(self, agent: str, commander: int) -> tuple[int, ...]:
        """The army types that a commander takes the enemy to make."""
        told = self._env.team.told
        if told is None or told[commander]:
            return enemy_types(self._env.team)
        for speaker, message in self.said.items():
            saying = understand(message) if speaker != agent else None
            if isinstance(saying, EnemySaying) and saying.types:
                self._heard[agent] = saying.types
        return self._heard.get(agent) or self._seen
