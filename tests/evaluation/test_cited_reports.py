"""Reports that the documents cite are made again, byte for byte, from the results beside them."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path

import pytest
from PIL import Image

from rllib_llm_comm.evaluation.figures import drawn_by
from rllib_llm_comm.evaluation.report import write_report
from rllib_llm_comm.evaluation.study_results import read_results

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
REPORTS = sorted(path.parent.name for path in RESULTS.glob("*/report.md"))


@pytest.mark.parametrize("name", REPORTS)
def test_a_cited_report_is_made_again(name, tmp_path):
    folder = RESULTS / name
    write_report(read_results(folder), tmp_path)
    for made in ("results.json", "report.md"):
        assert (tmp_path / made).read_bytes() == (folder / made).read_bytes(), made
    pictures = sorted(path.name for path in folder.glob("*.png"))
    assert pictures == sorted(path.name for path in tmp_path.glob("*.png"))
    for picture in pictures:
        with Image.open(folder / picture) as kept, Image.open(tmp_path / picture) as made:
            assert kept.size == made.size
            same_versions = kept.info["Software"] == drawn_by()
        if same_versions:  # others draw letters a little differently
            assert (tmp_path / picture).read_bytes() == (folder / picture).read_bytes(), picture


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_cited_results_are_there(page):
    for target in re.findall(r"\]\(([^)#]*results/[^)#]*)\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_the_answer_on_length_and_entropy_is_made_of_the_studies():
    script = runpy.run_path(str(RESULTS / "length_and_entropy.py"), run_name="script")
    kept = json.loads((RESULTS / "length_and_entropy.json").read_text())
    assert script["lengths"]() == kept["game_steps"] and script["entropies"]() == kept["entropy"]
