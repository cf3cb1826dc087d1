"""What a player reads of the kitchen's events."""

from __future__ import annotations

_DONE = {
    "onion_pickup": "picks up an onion",
    "tomato_pickup": "picks up a tomato",
    "dish_pickup": "picks up a dish",
    "soup_pickup": "takes a soup out of the pot",
    "onion_drop": "puts an onion on a counter",
    "tomato_drop": "puts a tomato on a counter",
    "dish_drop": "puts a dish on a counter",
    "soup_drop": "puts a soup on a counter",
    "potting_onion": "puts an onion into a pot",
    "potting_tomato": "puts a tomato into a pot",
    "soup_delivery": "serves a soup",
}
_JUDGED = ("useful_", "optimal_", "viable_", "catastrophic_", "useless_")


def event_words(event: str) -> str:
    """An event in words; empty for the original's judgements, such as "useful_onion_pickup", of what is told anyway.

    Args:
        event: As in the infos, such as "onion_pickup".
    """
    return "" if event.startswith(_JUDGED) else _DONE.get(event, event)
