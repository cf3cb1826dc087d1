"""Parts that all benchmarks share: pairs timed in turn, rows with a goal, a table, JSON.

Every figure is a ratio of two things that were timed in the same process, alternately, on the same weights and inputs:
machines are noisy and differ, ratios of neighbours are not and do not.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Row:
    """One figure.

    Attributes:
        name: Name of the measured quantity, such as `scoring/decisions 0.5M`.
        ours: This package's figure.
        reference: The yardstick's figure; `None` where there is no yardstick.
        unit: Unit of both.
        goal: Least `ratio` that is aimed at; `None` for a figure without a goal.
        settings: Everything needed to do it again.
        lower_is_better: Whether the ratio is reference / ours (seconds, bytes) instead of ours / reference (rates).
    """

    name: str
    ours: float
    reference: float | None
    unit: str
    goal: float | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    lower_is_better: bool = False

    @property
    def ratio(self) -> float | None:
        """The factor by which ours is better."""
        if self.reference is None:
            return None
        return self.reference / self.ours if self.lower_is_better else self.ours / self.reference

    @property
    def met(self) -> bool | None:
        """True if the goal is reached; `None` without a goal."""
        return None if self.goal is None or self.ratio is None else self.ratio >= self.goal

    def to_json(self) -> dict[str, Any]:
        """The row as plain values."""
        return {
            "name": self.name,
            "ours": _rounded(self.ours),
            "reference": _rounded(self.reference),
            "unit": self.unit,
            "ratio": _rounded(self.ratio),
            "goal": self.goal,
            "met": self.met,
            "settings": self.settings,
        }


def alternate(
    functions: Sequence[Callable[[], Any]], rounds: int, clock: Callable[[], float] = time.perf_counter
) -> list[list[float]]:
    """Seconds of every function in every round; they take turns, after one round that does not count.

    Args:
        functions: The timed functions; each waits for the accelerator itself if it uses one.
        rounds: Number of rounds, >= 1.
        clock: Tells seconds; `time.process_time` leaves out other work on the machine.
    """
    for function in functions:
        function()
    seconds: list[list[float]] = [[] for _ in functions]
    for _ in range(rounds):
        for function, own in zip(functions, seconds, strict=True):
            start = clock()
            function()
            own.append(clock() - start)
    return seconds


def compare(
    ours: Callable[[], Any],
    reference: Callable[[], Any],
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[float, float]:
    """Seconds of both whose quotient is the median of the rounds' quotients."""
    own, other = alternate([ours, reference], rounds, clock)
    ratio = statistics.median(b / a for a, b in zip(own, other, strict=True))
    seconds = statistics.median(own)
    return seconds, seconds * ratio


def main(
    description: str,
    measure: Callable[[argparse.Namespace], list[Row]],
    more: Callable[[argparse.ArgumentParser], None] = lambda parser: None,
) -> None:
    """The command line of a benchmark.

    Args:
        description: Its first line of help.
        measure: Gets the options (`rounds`, `threads`, `smoke`) and gives the rows.
        more: Adds further options.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--rounds", type=int, default=5, help="how often each pair is timed")
    parser.add_argument("--threads", type=int, default=1, help="torch threads of both sides")
    parser.add_argument("--smoke", action="store_true", help="smallest sizes and one round: shows that it runs")
    more(parser)
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error(f"--rounds is {options.rounds} but must be at least 1.")
    options.rounds = 1 if options.smoke else options.rounds
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    torch.set_num_threads(options.threads)
    rows = measure(options)
    machine = {"cpus": os.cpu_count(), "threads": options.threads, "python": platform.python_version(),
               "torch": torch.__version__, "rounds": options.rounds, "smoke": options.smoke}  # fmt: skip
    plain = [{**row.to_json(), "settings": {**row.settings, **machine}} for row in rows]
    _show(rows)
    if options.json is not None:
        partial = options.json.with_suffix(".partial")
        partial.write_text(json.dumps(plain, indent=1) + "\n", encoding="utf-8")
        partial.replace(options.json)


def _show(rows: Sequence[Row]) -> None:
    table = Table()
    for name in ("name", "ours", "reference", "unit", "ratio", "goal", "met"):
        table.add_column(name, justify="left" if name in ("name", "unit") else "right")
    for row in rows:
        plain = row.to_json()
        met = {None: "", True: "yes", False: "no"}[row.met]
        cells = [number(plain[name]) for name in ("ours", "reference")]
        table.add_row(row.name, *cells, row.unit, number(row.ratio), number(row.goal), met)
    Console().print(table)


def number(value: float | None) -> str:
    """A figure as tables show it."""
    return "" if value is None else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")
