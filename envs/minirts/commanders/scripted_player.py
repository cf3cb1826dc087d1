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


def messages(
    state: Executor, agents: Sequence[str], rng: np.random.Generator, ask_to_wait: bool = True
) -> dict[str, str]:
    """Label for each commander: the command that it gives next, and the one that another commander should give.

    Args:
        state: The side's officers.
        agents: Names of the commanders.
        rng: Chooses the wording.
        ask_to_wait: False for messages that ask nobody to wait: they tell the speaker's own command alone.
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
    """Messages about what some commanders are told: these say it, the others ask for it; none where nobody misses it.

    Args:
        state: The side's officers.
        agents: Names of the commanders.
        rng: Chooses the wording.
    """
    said = {agent: say_fact(state.side, COMMANDERS.index(agent)) for agent in agents}
    return {agent: word(saying, rng) for agent, saying in said.items() if saying is not None}


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
