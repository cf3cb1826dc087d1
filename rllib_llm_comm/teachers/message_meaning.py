"""Do two messages ask for the same thing?"""

from __future__ import annotations

import functools
from typing import Any

from rllib_llm_comm.envs.door import sayings as door_sayings
from rllib_llm_comm.envs.minirts.commanders import sayings as strategy_sayings
from rllib_llm_comm.envs.overcooked_ai import sayings
from rllib_llm_comm.envs.overcooked_text import sayings as kitchen_sayings
from rllib_llm_comm.envs.referential import sayings as referential_sayings


def same_request(one: str, other: str) -> bool:
    """Whether two messages mean the same, whatever their wording.

    Messages in the scripted teacher's wordings are compared by what they mean ("please bring the tomato" and "i need
    the tomato" are the same); any other message only equals itself, up to case, blanks and the full stop.

    Args:
        one: A message.
        other: Another one.
    """
    first, second = _understand(one), _understand(other)
    if first is not None and second is not None:
        return first == second
    return _plain(one) == _plain(other)


@functools.lru_cache(maxsize=65536)
def is_understood(message: str) -> bool:
    """Whether a message is a saying of one of the package's games, in a wording of its scripted player.

    Args:
        message: The message.
    """
    return _understand(message) is not None


_GAMES = (kitchen_sayings, sayings, strategy_sayings, door_sayings, referential_sayings)


def _understand(message: str) -> Any:
    """The meaning in the first game that knows the wording, with the game, as tuples of two games may be equal."""
    for game in _GAMES:
        if (meant := game.understand(message)) is not None:
            return game.__name__, meant
    return None


def _plain(message: str) -> str:
    return " ".join(message.lower().split()).rstrip(".! ")
