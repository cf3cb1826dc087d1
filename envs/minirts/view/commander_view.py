"""Observations of a commander: the parts that the settings ask for, and a mask of the possible actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from rllib_llm_comm.envs.interface import text_spaces
from rllib_llm_comm.envs.minirts import collective_command, told_army
from rllib_llm_comm.envs.minirts.commanders.executor import Executor
from rllib_llm_comm.envs.minirts.commanders.tasks import Command
from rllib_llm_comm.envs.minirts.view import compiled_officer_view, compiled_views, observations, officer_view, text


class CommanderView:
    """The parts of an observation, in words and in numbers.

    Args:
        settings: The environment's.
        commands: The meaning of each action, with "command".

    Attributes:
        phrases: The commands in words.
    """

    def __init__(self, settings: Mapping[str, Any], commands: Sequence[Command]) -> None:
        self._commands, self._parts = commands, tuple(settings["observe"])
        self._in_words, self._told_to = settings["action_level"] == "command", settings["told_to"]
        self._max_tick = int(settings["max_tick"])
        self.phrases = text.commands_text(commands)

    def space(self) -> spaces.Dict:
        """The observation space of every commander."""
        fields: dict[str, spaces.Space[Any]] = {}
        for part in self._parts:
            fields |= self._spaces_of(part)
        if "vector" in self._parts and self._told_to is not None:
            fields["vector"] = observations.vector_space(told_army.NUMBERS)
        if self._in_words:
            fields["action_mask"] = spaces.Box(0, 1, (len(self._commands),), np.int8)
        else:
            fields["head_mask"] = observations.head_mask_space()
        return spaces.Dict(fields)

    def _spaces_of(self, part: str) -> dict[str, spaces.Space[Any]]:
        if part == "text":
            return text_spaces(len(self._commands))
        return officer_view.officer_spaces() if part == "officer" else observations.spaces_of(part)

    def observe(self, commander: int, executor: Executor) -> dict[str, Any]:
        """Present observation of a commander.

        Args:
            commander: Its number.
            executor: The commands in force, and the side.
        """
        seen: dict[str, Any] = {}
        team = executor.side
        if "text" in self._parts:
            seen["text"] = text.observation_text(executor, commander, self._max_tick)
            seen["candidates"] = self.phrases
            seen["subgoal"] = ""
        if "vector" in self._parts:
            seen["vector"] = observations.vector(team, commander, self._max_tick)
            if team.told is not None:
                seen["vector"] = np.concatenate([seen["vector"], told_army.numbers(team, commander)])
        if "planes" in self._parts:
            seen["planes"] = compiled_views.planes(team, commander)
        if "lists" in self._parts:
            seen |= compiled_views.lists(team, commander)
        if "officer" in self._parts:
            seen |= compiled_officer_view.observe(team, commander)
        if self._in_words:
            allowed = [not executor.refusal(commander, command) for command in self._commands]
            seen["action_mask"] = np.array(allowed, np.int8)
        else:
            seen["head_mask"] = collective_command.masks(team, commander)
        return seen
