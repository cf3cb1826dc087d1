"""Figures with intervals on the pages are those of a JSON file beside the results."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from snippets import PAGES, ROOT, name

INTERVAL = re.compile(r"(?<![\d.])(-?\d+\.\d+) \[(-?\d+\.\d+), (-?\d+\.\d+)\]")
NAMES = ("value", "low", "high")


def estimates(value) -> Iterator[tuple[float, float, float]]:
    """All values with their intervals in JSON."""
    if isinstance(value, dict):
        if all(isinstance(value.get(one), int | float) for one in NAMES):
            yield value["value"], value["low"], value["high"]
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            yield from estimates(inner)


def test_every_interval_is_measured():
    files = (json.loads(path.read_text()) for path in (ROOT / "docs" / "results").rglob("*.json"))
    kept = {tuple(f"{number:.{digits}f}" for number in one) for one in estimates(list(files)) for digits in (1, 2)}
    shown = {
        (name(page), number, found.groups())
        for page in PAGES
        for number, line in enumerate(page.read_text().splitlines(), 1)
        for found in INTERVAL.finditer(line)
        if not re.search(r"\bmean\b", line)  # over the scenarios of a file, which has them apart
    }
    assert len(shown) > 200
    assert sorted(told for told in shown if told[2] not in kept) == []
