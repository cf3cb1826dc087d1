"""Sayings of the door game and their meanings."""

from __future__ import annotations

COLOURS = ("orange", "lime", "plum", "olive", "peach", "cherry")
"""Colours of the doors; each is one token of the embedded model, which has read of them as foods."""
TELL = ("the {colour} door", "go to the {colour} door", "it is the {colour} door")
ASK = ("what door is right", "what is the right door")


def meaning(message: str) -> str | None:
    """The only colour that a message names; `None` if it names none or several."""
    named = set(message.lower().split()) & set(COLOURS)
    return named.pop() if len(named) == 1 else None


def understand(message: str) -> tuple[str, str] | None:
    """A message in one of these wordings as ("tell", colour) or ("ask", ""); `None` for any other."""
    plain = " ".join(message.lower().split()).rstrip(".!? ")
    if plain in ASK:
        return "ask", ""
    return next(
        (("tell", colour) for colour in COLOURS if plain in [wording.format(colour=colour) for wording in TELL]), None
    )
