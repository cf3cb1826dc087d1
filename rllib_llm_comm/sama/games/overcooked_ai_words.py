"""Subgoals of a kitchen that name no place, such as "fetch an onion" and "wait", read and told."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rllib_llm_comm.envs.overcooked_ai.subgoals import ADD, DELIVER, GO, PLATE, PUT, TAKE, Subgoal

FORMS = (
    "fetch an onion from a place; put the onion into the pot; fetch a dish from a place; fill the dish with the soup "
    "from the pot; deliver the soup at the serving counter; put the onion, the dish or the soup on a counter; go to a "
    "place; wait. Where a place is not named, the nearest one that will do is taken"
)
"""The forms of subgoals, for models that get no list of those that are possible."""
_ARTICLES = re.compile(r"\b(?:an?|the|your|its|some)\b")
_SAME = (
    (re.compile(r"^(?:get|take|grab|collect|pick up)\b"), "fetch"),
    (re.compile(r"^(?:place|set|drop|lay)\b"), "put"),
    (re.compile(r"^add\b(.*)\bto\b"), r"put\1into"),
    (re.compile(r"^(?:serve|bring)\b"), "deliver"),
    (re.compile(r"^(?:stay|stand still|do nothing|stay put|wait here)$"), "wait"),
)


def without_places(subgoal: Subgoal) -> Iterator[str]:
    """The ways to say a subgoal without its place.

    Args:
        subgoal: The subgoal.
    """
    kind = subgoal.kind
    said = {
        TAKE: (f"fetch {kind}",),
        PUT: (f"put {kind} on counter", f"put down {kind}", f"put {kind} down"),
        ADD: (f"put {kind} into pot", f"put {kind} in pot"),
        PLATE: ("fill dish with soup", "fill dish", "fill dish with soup from pot"),
        DELIVER: ("deliver soup", "deliver soup at serving counter"),
        GO: (),
    }
    yield from said[subgoal.verb]


def plain_words(text: str) -> str:
    """A text without articles, capitals and full stop, with one verb for all that mean the same.

    Args:
        text: A subgoal in any words.
    """
    words = " ".join(_ARTICLES.sub(" ", text.lower()).split()).rstrip(".")
    for pattern, instead in _SAME:
        words = pattern.sub(instead, words)
    return words
