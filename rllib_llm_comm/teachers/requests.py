"""Do two messages ask for the same thing?"""

from __future__ import annotations

from rllib_llm_comm.envs.overcooked_text.cook import understand


def same_request(one: str, other: str) -> bool:
    """Whether two messages mean the same, whatever their wording.

    Messages in the scripted teacher's wordings are compared by kind and thing ("please bring the tomato" and "i need
    the tomato" are the same); any other message only equals itself, up to case, blanks and the full stop.

    Args:
        one: A message.
        other: Another one.
    """
    first, second = understand(one), understand(other)
    if first is not None and second is not None:
        return first == second
    return _plain(one) == _plain(other)


def _plain(message: str) -> str:
    return " ".join(message.lower().split()).rstrip(".! ")
