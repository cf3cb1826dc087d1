"""Scripted teacher of the strategy game: labels and advised actions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rllib_llm_comm.envs.minirts.commanders.command_level import strategy_of_all
from rllib_llm_comm.envs.minirts.commanders.executor import Executor
from rllib_llm_comm.envs.minirts.commanders.sayings import CommanderSaying, Saying, say, say_fact, word
from rllib_llm_comm.envs.minirts.commanders.tasks import NOTHING, WAIT, all_commands
from rllib_llm_comm.envs.minirts.view.names import COMMANDERS


def messages(state: Executor, agents: Sequence[str], rng: np.random.Generator) -> dict[str, str]:
    """Label for each commander: the command that it gives next, and the one that another commander should give.

    Args:
        state: The side's officers.
        agents: Names of the commanders.
        rng: Chooses the wording.
    """
    commands = all_commands()
    return {agent: word(say(state, commands, COMMANDERS.index(agent)), rng) for agent in agents}


def facts(state: Executor, agents: Sequence[str], rng: np.random.Generator, idle: bool = False) -> dict[str, str]:
    """Messages about what some commanders are told: these say it, the others ask for it; none where nobody misses it.

    Args:
        state: The side's officers.
        agents: Names of the commanders.
        rng: Chooses the wording.
        idle: True for messages in the place of those that would ask another commander to wait, and for no others. Who
            is not told what others miss then says its own task alone.
    """
    make = _unless_busy if idle else _fact
    said = {agent: make(state, COMMANDERS.index(agent)) for agent in agents}
    return {agent: word(saying, rng) for agent, saying in said.items() if saying is not None}


def _fact(state: Executor, commander: int) -> Saying | None:
    return say_fact(state.side, commander)


def _unless_busy(state: Executor, commander: int) -> Saying | None:
    fact, saying = say_fact(state.side, commander), say(state, all_commands(), commander)
    if not isinstance(saying, CommanderSaying) or saying.theirs[0] != WAIT:
        return None
    return fact if fact and fact.types else CommanderSaying(saying.mine, "", saying.theirs)


def advise(env: Any, agent: str) -> int | None:
    """Command of the oracle at this moment; nothing for RED's actions.

    Args:
        env: The (unwrapped) environment.
        agent: The agent in turn.
    """
    if env.settings["action_level"] != "command":
        return None
    wanted = strategy_of_all(env.executor, env.commands)[COMMANDERS.index(agent)]
    return int(env.commands.index(wanted))


def wait_action(env: Any, agent: str) -> int | None:
    """The command "wait"; nothing for RED's actions, of which none is idle.

    Args:
        env: The (unwrapped) environment.
        agent: The agent in turn.
    """
    if env.settings["action_level"] != "command":
        return None
    return int(env.commands.index(NOTHING))
