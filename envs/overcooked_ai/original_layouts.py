"""Kitchens of the original package that would be read here but have other rules there.

A layout file of the original may set cook times, points and recipes; rows alone do not tell. Files with tomatoes or
another number of cooks are no kitchens of ours anyway. Facts: PyPI `overcooked-ai` 1.1.0, all 45 layout files.
"""

from __future__ import annotations

_FEWER = "whose soups of fewer onions bring points, too"
OTHER_RULES: dict[str, tuple[str, tuple[str, ...]]] = {
    "simple_o": (
        "whose soups cook for 5 steps",
        ("XXPXX", "X  2X", "X1  O", "XXDSX"),
    ),
    "cramped_room_o_3orders": (
        _FEWER,
        ("XXPXX", "O  2X", "X1  X", "XDXSX"),
    ),
    "long_cook_time": (
        f"whose soups cook for 100 steps and bring 10 points, and {_FEWER}",
        (
            "XOXXXXXXXXXXX",
            "X XXXXXXXXXXX",
            "X  1        X",
            "X           P",
            "X  2        X",
            "X DXXXXXXXXXX",
            "XSXXXXXXXXXXX",
        ),
    ),
    "pipeline": (
        f"whose soups cook for 45 steps and bring 63 points, and {_FEWER}",
        (
            "XXXPDPXXX",
            "X       X",
            "X XXXXX X",
            "X X     X",
            "X XXXXX X",
            "X  1 2  X",
            "XXXOSOXXX",
        ),
    ),
    "tutorial_0": (
        "whose soups cook for 45 steps and bring 63 points",
        ("XXPXXXX", "O   2 S", "XXPDXXX", "O   1 S", "XXXXXXX"),
    ),
}
"""By the original's name: what differs, and the rows."""


def original_with_other_rules(layout: str | tuple[str, ...]) -> tuple[str, str] | None:
    """The kitchen of the original that a name or rows mean, if its rules are not ours.

    Args:
        layout: A name, or rows with `1` and `2`.

    Returns:
        Its name and what differs ("whose soups cook for 5 steps"), or `None`.
    """
    for name, (difference, rows) in OTHER_RULES.items():
        if layout in (name, rows):
            return name, difference
    return None
