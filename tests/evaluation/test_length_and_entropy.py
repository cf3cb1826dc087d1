"""The answer to the paper's statements on length and entropy is made of the committed studies."""

import json
import runpy
from pathlib import Path

import pytest

RESULTS = Path(__file__).parents[2] / "docs" / "results"


@pytest.fixture(scope="module")
def script():
    return runpy.run_path(str(RESULTS / "length_and_entropy.py"), run_name="script")


@pytest.fixture(scope="module")
def kept():
    return json.loads((RESULTS / "length_and_entropy.json").read_text())


def test_the_figures_are_those_of_the_studies(script, kept):
    assert script["lengths"]() == kept["game_steps"]
    assert script["entropies"]() == kept["entropy"]


def test_the_page_tells_these_figures(kept):
    page = (RESULTS / "length_and_entropy.md").read_text()
    for study in ("study/B_lettuce_tomato", "study_all_three/B_all_three", "study_map_a_all_three/A_all_three"):
        found = kept["game_steps"][study]["verco"]
        assert f"{found['value']:.0f} [{found['low']:.0f}, {found['high']:.0f}]" in page
    entropy = kept["entropy"]["study_map_a_all_three/A_all_three"]
    for system in ("verco", "joint", "none", "twosome", "constant", "shuffled", "teacher"):
        cells = [entropy["systems"][system][part] for part in ("first", "mean", "last")]
        assert " | ".join(f"{c['value']:.2f} [{c['low']:.2f}, {c['high']:.2f}]" for c in cells) in page
    for other in ("none", "twosome"):
        cells = [entropy[f"verco_minus_{other}"][part] for part in ("first", "mean", "last")]
        assert " | ".join(f"{c['value']:+.2f} [{c['low']:+.2f}, {c['high']:+.2f}]" for c in cells) in page
