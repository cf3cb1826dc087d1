"""Sentences in force for each commander's officer: what it was commanded and has not done, with its age."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rllib_llm_comm.envs.minirts.commanders.executor import Orders
from rllib_llm_comm.envs.minirts.commanders.tasks import MINE, STANCES, Command, phrase

MOST_SENTENCES = 6
"""Most sentences in force: to mine, a stance, and `executor.MOST_JOBS` (RED: the last five, done or not)."""
OLDEST = 10
"""Age at which sentences count as old, in decisions (RED: 10)."""


@dataclass(frozen=True)
class Instruction:
    """A command that was accepted.

    Attributes:
        command: The command.
        sentence: Its wording.
        job: Number of its job (`executor.Job.since`), -1 for none.
        age: Decisions since it was given, at most `OLDEST`.
    """

    command: Command
    sentence: str
    job: int = -1
    age: int = 0


class Instructions:
    """Sentences in force for each officer of a side.

    Args:
        orders: The orders in force, per commander.
    """

    def __init__(self, orders: Sequence[Orders]) -> None:
        self._told: list[list[Instruction]] = [[] for _ in orders]

    def give(self, commander: int, command: Command, orders: Orders, sentence: str | None = None) -> None:
        """Notes a command that the executor has just accepted.

        Args:
            commander: Its number.
            command: The command.
            orders: The commander's orders in force, this one included.
            sentence: Its wording; `tasks.phrase` by default.
        """
        job = orders.jobs[-1].since if command.kind >= 0 else -1
        kept = [one for one in self._told[commander] if command.kind >= 0 or not _replaces(command, one.command)]
        self._told[commander] = [*kept, Instruction(command, sentence or phrase(command), job)]

    def in_force(self, commander: int, orders: Orders) -> list[Instruction]:
        """The commander's sentences that are not done or taken back, the oldest first, at most `MOST_SENTENCES`.

        Args:
            commander: Its number.
            orders: Its orders in force.
        """
        jobs = {job.since for job in orders.jobs}
        told = [one for one in self._told[commander] if _holds(one, orders, jobs)]
        self._told[commander] = told
        return told[-MOST_SENTENCES:]

    def pass_time(self) -> None:
        """Makes all sentences one decision older."""
        self._told = [[replace(one, age=min(one.age + 1, OLDEST)) for one in told] for told in self._told]

    def snapshot(self) -> list[list[Instruction]]:
        """All that is remembered."""
        return [list(told) for told in self._told]

    def restore(self, snapshot: Sequence[Sequence[Instruction]]) -> None:
        """Goes back.

        Args:
            snapshot: Result of `snapshot`.
        """
        self._told = [list(told) for told in snapshot]


def _replaces(new: Command, old: Command) -> bool:
    return old.verb == new.verb or (old.verb in STANCES and new.verb in STANCES)


def _holds(one: Instruction, orders: Orders, jobs: set[int]) -> bool:
    if one.command.verb in STANCES:
        return one.command.verb == orders.stance
    return orders.mining if one.command.verb == MINE else one.job in jobs
