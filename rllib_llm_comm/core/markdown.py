"""Texts of others in Markdown files: as text, without HTML and links of theirs."""

from __future__ import annotations


def in_markdown(text: object) -> str:
    """A text on one line that a reader of Markdown shows as it is: no HTML, no link, no further column of a table."""
    plain = " ".join(str(text).split()).replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|")
    return plain.replace("](", "]\\(")
