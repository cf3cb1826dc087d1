"""Made-up results of a study, as its stages write them, and a report that is made again from what it kept."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rllib_llm_comm.evaluation.report import write_report
from rllib_llm_comm.evaluation.study_results import StudyResults, read_results


def study_of(*systems: str, **more: Any) -> dict[str, Any]:
    """The content of a `study.json` whose first system is the baseline."""
    return {
        "title": "Made <up>", "env": "toys/game-v0", "scenarios": {"one": {}}, "baseline": systems[0],
        "systems": {name: {"label": name, "interventions": []} for name in systems}, "seeds": [0, 1, 2, 3],
        "evaluation": {"episodes": 10, "seed": 0, "modes": ["sampled"]}, **more,
    }  # fmt: skip


def played(value: float, **more: Any) -> dict[str, Any]:
    """The figures of a run in an `evaluation.json`."""
    return {
        "return_mean": value, "success_rate": 0.5, "length_mean": 50.0, "collisions_mean": 1.0,
        "message_words_mean": 3.0, "vocabulary": 7, "common_messages": [], **more,
    }  # fmt: skip


def write(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def write_rows(trial: Path, rows: Iterable[Any]) -> Path:
    """Writes the `result.json` of a trial."""
    trial.mkdir(parents=True, exist_ok=True)
    (trial / "result.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return trial / "result.json"


def require_made_again(results: StudyResults, folder: Path) -> Path:
    """Writes a report, and once more from what it kept; gives the page of the first, which the second is equal to."""
    page = write_report(results, folder / "report")
    again = write_report(read_results(page.parent), folder / "again").parent
    for first in page.parent.iterdir():
        assert (again / first.name).read_bytes() == first.read_bytes(), first.name
    return page
