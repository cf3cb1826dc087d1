"""Meanings of messages in the wordings of the games' scripted players."""

from __future__ import annotations

import functools
from typing import Any

from rllib_llm_comm.core.lazy import load
from rllib_llm_comm.envs.games import GAMES


def same_request(one: str, other: str) -> bool:
    """True if two messages mean the same, whatever their wording.

    Messages in the scripted teacher's wordings are compared by what they mean ("please bring the tomato" and "i need
    the tomato" are the same); any other message only equals itself, up to case, blanks and the full stop.

    Args:
        one: A message.
        other: Another one.
    """
    first, second = _meaning(one), _meaning(other)
    if first is not None and second is not None:
        return first == second
    return _plain(one) == _plain(other)


def is_understood(message: str) -> bool:
    """True if a message is a saying of a known game, in a wording of its scripted player.

    Args:
        message: The message.
    """
    return _is_understood(message, tuple(GAMES))


@functools.lru_cache(maxsize=65536)
def _is_understood(message: str, games: tuple[str, ...]) -> bool:
    """For the games known now; one may be registered later."""
    return _meaning(message) is not None


def _meaning(message: str) -> Any:
    """The meaning in the first game that knows the wording, with the game, as tuples of two games may be equal."""
    for name, record in GAMES.items():
        if record.sayings and (meant := load(record.sayings)(message)) is not None:
            return name, meant
    return None


def _plain(message: str) -> str:
    return " ".join(message.lower().split()).rstrip(".! ")
