"""Reports that the documents cite are made again, byte for byte, from the results beside them."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path

import pytest
from PIL import Image

from rllib_llm_comm.evaluation import report
from rllib_llm_comm.evaluation.figures import drawn_by
from rllib_llm_comm.evaluation.study_results import read_results

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
REPORTS = sorted(path.parent.name for path in RESULTS.glob("*/report.md"))
# Between them pictures of every kind; to draw takes most of the time, so those of the others are drawn by slow tests.
DRAWN = ("study_minirts_every_50_ticks", "study_numeric", "study_told_drift")


def require_made_again(name, made):
    """Makes a report again; gives the names of its pictures, which may differ."""
    kept = RESULTS / name
    report.write_report(read_results(kept), made)
    for text in ("results.json", "report.md"):
        assert (made / text).read_bytes() == (kept / text).read_bytes(), text
    pictures = {path.name for path in kept.glob("*.png")}
    assert pictures == {path.name for path in made.glob("*.png")}
    return pictures


@pytest.mark.parametrize("name", [name for name in REPORTS if name not in DRAWN])
def test_the_text_of_a_cited_report_is_made_again(name, tmp_path, monkeypatch):
    for draws in ("draw_curves", "draw_returns", "to_png"):
        monkeypatch.setattr(report, draws, lambda *_, **__: b"")
    require_made_again(name, tmp_path)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in DRAWN else pytest.mark.slow) for name in REPORTS]
)
def test_a_cited_report_is_made_again_with_its_pictures(name, tmp_path):
    for picture in require_made_again(name, tmp_path):
        with Image.open(RESULTS / name / picture) as kept, Image.open(tmp_path / picture) as made:
            assert kept.size == made.size
            same_versions = kept.info["Software"] == drawn_by()
        if same_versions:  # others draw letters a little differently
            assert (tmp_path / picture).read_bytes() == (RESULTS / name / picture).read_bytes(), picture


def test_cited_results_are_there():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]*results/[^)#]*)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{target} in {page}"


def test_the_answer_on_length_and_entropy_is_made_of_the_studies():
    script = runpy.run_path(str(RESULTS / "length_and_entropy.py"), run_name="script")
    kept = json.loads((RESULTS / "length_and_entropy.json").read_text())
    assert script["lengths"]() == kept["game_steps"] and script["entropies"]() == kept["entropy"]
