"""Kitchens that policies can share: they know one map and what stands on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_KITCHEN = {"map_name": "B", "layout": "full"}


def difference(played: Mapping[str, Any], learned: Mapping[str, Any]) -> str:
    """The reason why a policy cannot play, as the end of a sentence; empty if it can.

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
