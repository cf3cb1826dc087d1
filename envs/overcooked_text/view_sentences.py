"""The game's sentences: a view in words, an option as a phrase. Nothing else makes text."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from rllib_llm_comm.envs.overcooked_text.cook_view import COUNTER, LEFT, ONE_ROOM, RIGHT, Item, Option, View


def dish_name(dish: Sequence[str]) -> str:
    """The dish's name in words, such as `lettuce tomato salad`."""
    return " ".join([*dish, "salad"])


_PHRASES = {
    "wait": "wait",
    "get": "get the {item} from the {where}",
    "fill": "put the {item} from the {where} into my bowl",
    "add": "put my {item} into the bowl on the {where}",
    "place": "put the {item} on the {where}",
    "counter": "put the {item} on the counter",
    "walk": "walk to the {where}",
    "chop": "chop the {name}",
    "serve": "serve the {item}",
    "move": "step {where}",
    "nothing": "do nothing",
}


def item_words(item: Item) -> str:
    """An item in words, such as `raw tomato`, `empty bowl`, `bowl of lettuce and tomato`."""
    if not item.is_bowl:
        return f"{'chopped' if item.chopped else 'raw'} {item.name}"
    return f"bowl of {' and '.join(item.contents)}" if item.contents else "empty bowl"


def _listed(items: Sequence[Item]) -> str:
    return ", ".join(item_words(item) for item in items) if items else "nothing"


def describe(view: View) -> str:
    """View of a cook in sentences.

    Told are the dish, the own place and hands, then what is in sight: boards, the shared counter, the shelves, the
    other cooks and what they hold. What is out of sight is not mentioned.
    """
    room = {LEFT: "left room", RIGHT: "right room", ONE_ROOM: "kitchen"}[view.room]
    place = f" at the {view.at}" if view.at else ""
    sentences = [
        f"make a {dish_name(view.dish)}",
        f"i am {view.name} in the {room}{place}",
        f"i hold {item_words(view.holding) if view.holding else 'nothing'}",
    ]
    sentences.extend(f"{board}: {item_words(item) if item else 'empty'}" for board, item in view.boards)
    if view.counter is not None:
        sentences.append(f"counter: {_listed(view.counter)}")
    if view.shelf:
        sentences.append(f"shelf: {_listed(view.shelf)}")
    sentences.extend(f"{p.name} holds {item_words(p.holding) if p.holding else 'nothing'}" for p in view.partners)
    return ". ".join(sentences) + "."


@functools.cache  # there are few different ones
def phrase(option: Option) -> str:
    """True effect of an action, as the end of a sentence that begins with "next i"."""
    words = _PHRASES[option.kind]
    if "{" not in words:
        return words
    item, where = item_words(option.item) if option.item else "nothing", option.place or COUNTER
    return words.format(item=item, where=where, name=option.item.name if option.item else "nothing")
