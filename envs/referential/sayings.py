"""Sayings of the referential game and their meanings."""

from __future__ import annotations

COLOURS = ("orange", "lime", "plum")
SHAPES = ("bowl", "pot", "board")
"""Colours and shapes of the things; each is one token of the embedded model."""
TELL = ("take the {thing}", "the {thing}", "it is the {thing}")
ASK = ("which one", "tell me which one")


def meaning(message: str) -> str | None:
    """The only thing that a message names by colour and shape, such as "orange bowl"; `None` for any other message."""
    words = set(message.lower().split())
    colours, shapes = words & set(COLOURS), words & set(SHAPES)
    return f"{colours.pop()} {shapes.pop()}" if len(colours) == len(shapes) == 1 else None


def understand(message: str) -> tuple[str, str] | None:
    """A message in one of these wordings as ("tell", thing) or ("ask", ""); `None` for any other."""
    plain = " ".join(message.lower().split()).rstrip(".!? ")
    if plain in ASK:
        return "ask", ""
    thing = meaning(plain)
    return ("tell", thing) if thing and plain in [wording.format(thing=thing) for wording in TELL] else None
