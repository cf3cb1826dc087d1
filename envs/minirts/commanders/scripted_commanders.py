"""The scripted commanders: the teacher, and a team that knows only what it is told, sees and hears."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rllib_llm_comm.envs.minirts.commanders.command_level import enemy_types, strategy, strategy_of_all
from rllib_llm_comm.envs.minirts.commanders.executor import Executor
from rllib_llm_comm.envs.minirts.commanders.sayings import (
    CommanderSaying,
    EnemySaying,
    Saying,
    say,
    say_fact,
    understand,
    word,
)
from rllib_llm_comm.envs.minirts.commanders.tasks import NOTHING, WAIT, Command, all_commands
from rllib_llm_comm.envs.minirts.told_army import prepared_types, seen_types
from rllib_llm_comm.envs.minirts.view.names import COMMANDERS
from rllib_llm_comm.envs.scripted_team import Team


def messages(
    state: Executor, agents: Sequence[str], rng: np.random.Generator, ask_to_wait: bool = True
) -> dict[str, str]:
    """Label for each commander: the command that it gives next, and the one that another commander should give.

    Without `ask_to_wait` a message that would ask to wait tells the speaker's own command alone.
    """
    commands = all_commands()
    said = {agent: say(state, commands, COMMANDERS.index(agent)) for agent in agents}
    if not ask_to_wait:
        said = {agent: _without_wait(saying) for agent, saying in said.items()}
    return {agent: word(saying, rng) for agent, saying in said.items()}


def _without_wait(saying: Saying) -> Saying:
    if isinstance(saying, CommanderSaying) and saying.theirs[0] == WAIT:
        return CommanderSaying(saying.mine, "", saying.theirs)
    return saying


def facts(state: Executor, agents: Sequence[str], rng: np.random.Generator) -> dict[str, str]:
    """Messages about what some commanders are told: these say it, the others ask for it; none if nobody misses it."""
    said = {agent: say_fact(state.side, COMMANDERS.index(agent)) for agent in agents}
    return {agent: word(saying, rng) for agent, saying in said.items() if saying is not None}


def advise(env: Any, agent: str) -> int | None:
    """Command of the oracle at this moment; nothing for RED's actions."""
    if env.settings["action_level"] != "command":
        return None
    wanted = strategy_of_all(env.executor, env.commands)[COMMANDERS.index(agent)]
    return int(env.commands.index(wanted))


def wait_action(env: Any, agent: str) -> int | None:
    """The command "wait"; nothing for RED's actions, of which none is idle."""
    if env.settings["action_level"] != "command":
        return None
    return int(env.commands.index(NOTHING))


class ScriptedTeam(Team):
    """Plays all commanders of a side by the oracle's rules, each by what it is told, hears and sees of the enemy.

    Unlike the scripted teacher's advice, a commander that is not told the types does not act on them. It takes the
    enemy to make what was told it last, else what it sees, else what it saw last. One that knows nothing makes
    `commanders.GUESS`. Who has no producers goes along with those that stand. The strength of the enemy, as a number,
    is known to all as it is to the oracle. The environment has commands in words, and all decide at once.
    """

    def begin(self, seed: int = 0) -> None:
        """Forgets what was said and believed."""
        super().begin(seed)
        self._seen: tuple[int, ...] = ()

    def act(self, infos: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
        """Speaks, listens and chooses for all who need an action."""
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
        for saying in map(understand, self._messages_to(agent)):
            if isinstance(saying, EnemySaying) and saying.types:
                self._believed[agent] = saying.types
        return self._believed.get(agent) or self._seen
