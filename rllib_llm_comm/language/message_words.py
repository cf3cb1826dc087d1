"""Limits on the length of messages. Needs no torch: settings and the command line use it."""

from __future__ import annotations

TOKENS_PER_WORD = 4
"""Tokens that a word may take; more of a message is not written."""

_BROKEN = "\ufffd"  # bytes of a character whose other bytes were not written


def limit_words(text: str, max_words: int) -> str:
    """One line of at most `max_words` words; a message is data, so control characters and broken ones go."""
    line = text.replace("\r", "\n").split("\n", 1)[0].replace(_BROKEN, "")
    words = "".join(c if c.isprintable() else " " for c in line).split()
    return " ".join(words[:max_words]).rstrip(" .,;:")
