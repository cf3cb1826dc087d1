"""Who can share a kitchen: policies know one map and what stands on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_KITCHEN = {"map_name": "B", "layout": "full"}


def difference(played: Mapping[str, Any], learned: Mapping[str, Any]) -> str:
    """What keeps a policy from playing, as the end of a sentence; empty if nothing does.

    Args:
        played: Settings of the kitchen in which it is to play.
        learned: Those of its training.
    """
    for name, default in _KITCHEN.items():
        now, then = (one.get(name, default) for one in (played, learned))
        if now != then:
            return (
                f"was trained with `env_config.{name}` {then!r} but here it is {now!r}; take partners of the same "
                "kitchen."
            )
    return ""
