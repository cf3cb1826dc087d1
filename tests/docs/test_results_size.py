"""Results stay small, and a page tells each of them."""

import os
import re

from snippets import PAGES, ROOT

RESULTS = ROOT / "docs" / "results"
LARGEST = 6 * 2**20
"""Bytes of all results."""
FILES = [path for path in RESULTS.rglob("*") if path.is_file() and path.suffix != ".pyc"]
LINK = re.compile(r"\]\(([^)#\s]+)")
NAME = re.compile(r"docs/results/[\w/]+(?:\.\w+)*")


def cited() -> set[str]:
    """Paths that pages link to or name."""
    found = set()
    for page in PAGES:
        text = page.read_text()
        found |= {os.path.normpath(page.parent / target) for target in LINK.findall(text)}
        found |= {str(ROOT / name) for name in NAME.findall(text)}
    return found


def test_results_are_small():
    assert sum(path.stat().st_size for path in FILES) < LARGEST


def test_every_result_is_cited():
    told = cited()
    # A page of the same name is read with its figures; of these folders and of studies a page tells the whole.
    folders = {str(RESULTS / name) for name in ("benchmarks", "partners", "direct_play", "planning/recordings")}
    folders |= {os.path.dirname(one) for one in told if one.endswith("/report.md")}
    assert [
        str(path.relative_to(RESULTS))
        for path in FILES
        if str(path) not in told
        and not any(str(path.with_suffix(other)) in told for other in (".md", ".json"))
        and not any(str(path).startswith(f"{folder}/") for folder in folders)
    ] == []


def test_a_study_has_one_form_of_its_figures():
    assert [path for path in FILES if path.name in ("report.html", "report.json")] == []
