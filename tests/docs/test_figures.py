"""Figures on the pages are those of the JSON beside the results: intervals, errors, p values, tables of scripts."""

from __future__ import annotations

import json
import re
import statistics
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from snippets import PAGES, ROOT, name

from rllib_llm_comm.evaluation.report import summarise
from rllib_llm_comm.evaluation.statistics import same_share
from rllib_llm_comm.evaluation.study_results import read_results

sys.path.append(str(ROOT / "benchmarks"))
import partners_page
import sample_efficiency
import table

RESULTS = ROOT / "docs" / "results"
OUR_PAGES = [page for page in PAGES if page.name != "report.md"]
"""Reports are made again from their JSON by `tests/evaluation/test_cited_reports.py`."""
INTERVAL = re.compile(r"(?<![\d.])(-?\d+\.\d+) \[(-?\d+\.\d+), (-?\d+\.\d+)\]")
ERROR = re.compile(r"(-?\d+(?:\.\d+)?) ± (\d+(?:\.\d+)?)")
CHANCE = re.compile(r"\bp (?:= |of [\w ]+: )?(\d\.\d+)(?:,\s+(\d\.\d+)\))?")
LINK = re.compile(r"\[(\d?\.\d+)\]\((\S+\.json)\)")
NAMES = ("value", "low", "high")


def load(path: str) -> Any:
    return json.loads((RESULTS / path).read_text())


@pytest.fixture(scope="module")
def files() -> list:
    told = [json.loads(path.read_text()) for path in RESULTS.rglob("*.json")]
    return told + [summarise(read_results(path.parent)) for path in RESULTS.glob("*/results.json")]


def dicts(value) -> Iterator[dict]:
    """All objects in JSON."""
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            yield from dicts(inner)


def shown(pattern: re.Pattern, pages) -> set[tuple[str, int, tuple[str, ...]]]:
    """Page, line and figures of all places where pages show what a pattern finds."""
    return {
        (name(page), number, found.groups())
        for page in pages
        for number, line in enumerate(page.read_text().splitlines(), 1)
        for found in pattern.finditer(line)
        if pattern is not INTERVAL
        or not re.search(r"\bmean\b", line)  # over the scenarios of a file, which has them apart
    }


def texts(*figures: float) -> set[tuple[str, ...]]:
    """Figures as pages may show them."""
    return {tuple(f"{figure:.{digits}f}" for figure in figures) for digits in range(5)}


def over_seeds(values: list[float]) -> tuple[float, float]:
    """Mean and standard error."""
    return statistics.fmean(values), statistics.stdev(values) / len(values) ** 0.5


def test_every_interval_is_measured(files):
    estimates = [one for one in dicts(files) if all(isinstance(one.get(key), int | float) for key in NAMES)]
    kept = set().union(*(texts(*(one[key] for key in NAMES)) for one in estimates))
    found = shown(INTERVAL, PAGES)
    assert len(found) > 200
    assert sorted(told for told in found if told[2] not in kept) == []


def errors_of_value_decomposition() -> Iterator[tuple[float, float]]:
    """Scores over seeds: with best actions, at the end of training, and of the runs on the other machine."""
    for systems in load("study_value_decomposition/results.json")["scenarios"].values():
        for system in systems.values():
            yield over_seeds([run["metrics"]["score"] for run in system["evaluations"]["greedy"]])
            curves = [curve["values"] for curve in system["curves"]]
            yield over_seeds(
                [next(one for one in reversed(c["score"] or c["return"]) if one is not None) for c in curves]
            )
    again: dict[tuple[str, float], list[float]] = {}
    for run in load("value_decomposition/standstill.json"):
        again.setdefault((run["checkpoint"].split("/")[2], run["random_share"]), []).append(run["points"])
    yield from map(over_seeds, again.values())


def test_every_error_is_measured(files):
    kept = set().union(*(texts(*pair) for pair in errors_of_value_decomposition()))
    kept |= set().union(
        *(texts(*pair) for pair in load("populations/fcp_ring.json")["mean_and_standard_error"].values() if pair[1])
    )
    for one in dicts(files):
        if isinstance(error := one.get("standard_error"), int | float) and isinstance(one.get("mean"), int | float):
            kept |= texts(one["mean"], error)
    found = shown(ERROR, [page for page in OUR_PAGES if page != RESULTS / "partners.md"])
    assert len(found) > 150
    assert sorted(told for told in found if told[2] not in kept) == []


def chances_of_minirts() -> Iterator[float]:
    """p of sign-flip tests over starts of games, with the mean over seeds: after PPO beside before it."""

    def won(runs: list[dict]) -> np.ndarray:
        return np.mean([run["successes"] for run in runs], axis=0)

    told = {
        key: system["evaluations"] for key, system in load("study_minirts/results.json")["scenarios"]["told"].items()
    }
    others = [
        [load(f"minirts/verco_told/{key}_seed_{seed}.json") for seed in range(4)]
        for key in ("other_games", "before_ppo")
    ]
    signs = np.random.default_rng(0)
    for one, other in (
        (told["verco"]["sampled"], told["before_ppo"]["sampled"]),
        (told["none"]["sampled"], told["before_ppo"]["messages_none"]),
        others,
    ):
        less = won(one) - won(other)
        flipped = np.abs(signs.choice((-1.0, 1.0), size=(100_000, len(less))) @ less)
        yield float(np.mean(flipped >= abs(less.sum()) - 1e-9))


def chances_of_officers() -> Iterator[float]:
    """p of the two pairs of commanders that cannot be told apart."""
    for officer, above, below in (("until_55_seed_2", "none", "random"), ("shipped", "random", "adversarial")):
        summary = load(f"minirts/red_{officer}.json")["summary"]
        yield same_share(
            *(
                figure
                for one in (above, below)
                for figure in (round(summary[one]["won"] * summary[one]["games"]), summary[one]["games"])
            )
        )


def shown_chances() -> Iterator[tuple[str, str]]:
    """Page and p of all places in sentences and in columns of tables."""
    for page in OUR_PAGES:
        text = page.read_text()
        yield from ((name(page), p) for found in CHANCE.finditer(text) for p in found.groups() if p)
        column = None
        for line in text.splitlines():
            cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
            head = [place for place, cell in enumerate(cells) if re.match(r"p\b", cell)]
            column = head[0] if head else column if cells else None
            if column is not None and re.match(r"\d", cells[column]):
                yield name(page), cells[column]


def test_every_p_is_measured(files):
    compared = [
        one for one in dicts(files) if "overlap" in one or "welch_p" in one
    ]  # not the p of a message's measures
    keys = ("p", "p_value", "p_corrected", "welch_p")
    measured = [one[key] for one in compared for key in keys if isinstance(one.get(key), float)]
    kept = {told for p in (*measured, *chances_of_minirts(), *chances_of_officers()) for (told,) in texts(p)}
    found = list(shown_chances())
    assert len(found) > 30
    assert [told for told in found if told[1] not in kept] == []


def test_shares_with_a_link_are_those_of_the_file():
    found = [(page, *pair) for page in PAGES for pair in LINK.findall(page.read_text())]
    assert len(found) > 30
    for page, share, target in found:
        inner = list(dicts(json.loads((page.parent / target).read_text())))
        kept = {one[key] for one in inner for key in ("success_rate", "won") if isinstance(one.get(key), int | float)}
        assert (share,) in set().union(*map(texts, kept)), (name(page), target)


def test_pages_of_scripts_are_made_again():
    assert partners_page.page(load("partners/table.json")) == (RESULTS / "partners.md").read_text()
    efficiency = RESULTS / "planning" / "sample_efficiency.md"
    assert sample_efficiency.page(load("planning/sample_efficiency.json")) == efficiency.read_text()
    assert sample_efficiency.measured() == load("planning/sample_efficiency.json")
    assert f"{table.BEGIN}\n{table.table()}\n{table.END}" in table.PAGE.read_text()
