"""Kitchens that policies can share: they know one map and one kind of pots."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rllib_llm_comm.envs.overcooked_ai.layouts import get_layout


def difference(played: Mapping[str, Any], learned: Mapping[str, Any]) -> str:
    """The reason why a policy cannot play, as the end of a sentence; empty if it can.

    Args:
        played: Settings of the kitchen in which it is to play.
        learned: Those of its training.
    """
    layout, theirs = (get_layout(one.get("layout", "cramped_room")) for one in (played, learned))
    if (theirs.rows, theirs.starts) != (layout.rows, layout.starts):
        return (
            f"was trained in the kitchen {theirs.name!r} but `env_config.layout` is {layout.name!r}; take partners of "
            "the same kitchen."
        )
    now, then = (one.get("dynamics", "old") for one in (played, learned))
    if now != then:
        return (
            f"was trained with `env_config.dynamics` {then!r} but here it is {now!r}, in which pots start in another "
            "way; take partners of the same dynamics."
        )
    return ""
