"""Messages of the scripted cooks, and the meaning of messages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rllib_llm_comm.envs.overcooked_text.layouts import FOOD_CODES
from rllib_llm_comm.envs.overcooked_text.observation_text import BOWL, dish_name

_SALAD = "salad"


@dataclass(frozen=True)
class Saying:
    """The meaning of a message.

    Attributes:
        kind: `bring` (a request: pass or take `thing`), `carry` (the speaker does it), `chop`, `fill`, `serve`,
            `wait`, `order` (`thing` was ordered), `ask` (the speaker does not know the order).
        thing: A food's name, `"bowl"`, for `order` the dish's name in words, or the empty string.
    """

    kind: str
    thing: str = ""


WORDINGS: dict[str, tuple[str, ...]] = {
    "bring": ("please bring the {thing}", "i need the {thing}", "give me the {thing}"),
    "carry": ("i bring the {thing}", "here comes the {thing}", "i take the {thing}"),
    "chop": ("i chop the {thing}", "i cut the {thing} now"),
    "fill": ("i fill the bowl", "i put the food into the bowl"),
    "serve": ("i serve the salad", "the salad is ready, i serve it"),
    "wait": ("i wait here", "i have nothing to do"),
    "order": ("make a {thing}", "we make a {thing}", "the order is a {thing}"),
    "ask": ("tell me the order", "which salad do we make"),
}
_THINGS = {"order": r"([a-z ]+ salad)"}
_PATTERNS = [
    (Saying(kind), re.compile("^" + re.escape(wording).replace(r"\{thing\}", _THINGS.get(kind, r"([a-z]+)")) + "$"))
    for kind, wordings in WORDINGS.items()
    for wording in wordings
]


def word(saying: Saying, rng: np.random.Generator, wording: int | None = None) -> str:
    """A message with this meaning: in a wording that `rng` draws, or in that of a number, at most the last."""
    wordings = WORDINGS[saying.kind]
    if wording is not None:
        return wordings[min(wording, len(wordings) - 1)].format(thing=saying.thing)
    # The first wording is the usual one: a listener meets it most.
    weights = np.array([3.0] + [1.0] * (len(wordings) - 1))
    return wordings[rng.choice(len(wordings), p=weights / weights.sum())].format(thing=saying.thing)


def understand(message: str) -> Saying | None:
    """The meaning of a message in one of our wordings, or `None`."""
    plain = " ".join(message.lower().split()).rstrip(".! ")
    for saying, pattern in _PATTERNS:
        match = pattern.match(plain)
        if match:
            return Saying(saying.kind, match.group(1) if match.groups() else "")
    return None


def order(dish: Sequence[str]) -> Saying:
    """The saying that tells the order of a dish, by its foods."""
    return Saying("order", dish_name(sorted(dish)))


def ordered_foods(saying: Saying) -> tuple[str, ...]:
    """The foods of the dish that an `order` names, sorted."""
    return tuple(sorted(saying.thing.removesuffix(_SALAD).split()))


def meaning(message: str) -> str:
    """The food or dish that a message names, whatever its wording.

    Returns:
        `"onion-tomato salad"` (spelt as the setting `recipe`) if it names foods and the word salad; else the foods and
        the bowl that it names, in the order of the message, such as `"tomato"` or `"tomato bowl"`; the empty string if
        it names none. `understand` tells whether the message is one of the game's own sentences.
    """
    words = re.findall("[a-z]+", message.lower())
    named = [name for name in dict.fromkeys(words) if name in FOOD_CODES or name == BOWL]
    foods = sorted(name for name in named if name != BOWL)
    if foods and _SALAD in words:
        return f"{'-'.join(foods)} {_SALAD}"
    return " ".join(named)
