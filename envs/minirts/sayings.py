"""What the scripted commanders would say to each other, and what such messages mean."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rllib_llm_comm.envs.minirts.names import COMMANDERS, KIND_OF, KIND_PATTERN, PLURAL, SINGULAR
from rllib_llm_comm.envs.minirts.tasks import ATTACK, BUILD, DEFEND, MINE, SCOUT, TRAIN, WAIT, Command

if TYPE_CHECKING:
    from rllib_llm_comm.envs.minirts.executor import Executor

_DEED = rf"(?:build|train) (?:{KIND_PATTERN})|{MINE}|{ATTACK}|{DEFEND}|{SCOUT}|{WAIT}"
_NAME = "|".join(COMMANDERS)
_WORDINGS = ("i {mine}, please {name} {theirs}", "i {mine}, {name} {theirs}", "{name} {theirs}, i {mine}")
_PATTERNS = tuple(
    re.compile(wording.format(mine=f"(?P<mine>{_DEED})", name=f"(?P<name>{_NAME})", theirs=f"(?P<theirs>{_DEED})"))
    for wording in _WORDINGS
)
_ALONE = re.compile(rf"i (?P<mine>{_DEED})")
Meaning = tuple[str, int]
"""Verb and kind of a command."""


@dataclass(frozen=True)
class CommanderSaying:
    """A message: what the speaker commands next, and what it wants of another one.

    Attributes:
        mine: What the speaker commands.
        name: The other commander; empty if there is none.
        theirs: What it should command; ("wait", -1) if nothing.
    """

    mine: Meaning
    name: str
    theirs: Meaning


def say(executor: Executor, commands: Sequence[Command], commander: int) -> CommanderSaying:
    """What a scripted commander would say now, knowing what the enemy makes.

    It speaks to the next one who has something to do.

    Args:
        executor: The side's officers.
        commands: What may be commanded.
        commander: Its number.
    """
    # Late: messages of other games are compared, too, and need no compiled rules for that.
    from rllib_llm_comm.envs.minirts.commanders import strategy_of_all

    plans = strategy_of_all(executor, commands)
    size = executor.side.size
    others = [(commander + i) % size for i in range(1, size)]
    busy = [other for other in others if plans[other].verb != WAIT] or others
    if not busy:
        return CommanderSaying(_meaning(plans[commander]), "", (WAIT, -1))
    return CommanderSaying(_meaning(plans[commander]), COMMANDERS[busy[0]], _meaning(plans[busy[0]]))


def word(saying: CommanderSaying, rng: np.random.Generator) -> str:
    """A message of at most ten words.

    Args:
        saying: What it means.
        rng: Chooses among wordings.
    """
    if not saying.name:
        return f"i {_deed(saying.mine)}"
    wording = _WORDINGS[int(rng.integers(len(_WORDINGS)))]
    return wording.format(mine=_deed(saying.mine), name=saying.name, theirs=_deed(saying.theirs))


def understand(message: str) -> CommanderSaying | None:
    """The meaning of a message in one of our wordings, or `None`."""
    plain = " ".join(message.lower().split()).rstrip(".! ")
    for pattern in _PATTERNS:
        if match := pattern.fullmatch(plain):
            return CommanderSaying(_read(match["mine"]), match["name"], _read(match["theirs"]))
    match = _ALONE.fullmatch(plain)
    return CommanderSaying(_read(match["mine"]), "", (WAIT, -1)) if match else None


def _meaning(command: Command) -> Meaning:
    return command.verb, command.kind


def _deed(meaning: Meaning) -> str:
    verb, kind = meaning
    if verb == BUILD:
        return f"build {SINGULAR[kind]}"
    return f"train {PLURAL[kind]}" if verb == TRAIN else verb


def _read(deed: str) -> Meaning:
    verb, _, kind = deed.partition(" ")
    return verb, KIND_OF[kind] if kind else -1
