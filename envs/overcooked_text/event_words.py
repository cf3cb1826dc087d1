"""What a player reads of the kitchen's events."""

from __future__ import annotations

_DONE = {
    "pick_up": "picks up the {}",
    "put_down": "puts the {} down",
    "place_on_board": "puts the {} on the board",
    "chop": "cuts the {}",
    "chopped": "has chopped the {}",
    "add_to_plate": "puts the {} on a plate",
    "correct_delivery": "serves the right dish",
    "wrong_delivery": "serves a wrong dish",
    "blocked": "is blocked",
    "swapped": "changes places with another cook",
}


def event_words(event: str) -> str:
    """An event in words.

    Args:
        event: As in the infos, such as "pick_up tomato".
    """
    kind, _, item = event.partition(" ")
    return _DONE[kind].format(item) if kind in _DONE else event
