"""The list of runs and the comparison of two: on the console, as JSON, and as a page with curves."""

from __future__ import annotations

import base64
import datetime
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.files import write_atomically
from rllib_llm_comm.experiments.console import one_line, out, print_table, say, short_path
from rllib_llm_comm.experiments.outputs import require_writable
from rllib_llm_comm.experiments.run_comparison import compare
from rllib_llm_comm.experiments.run_records import RESULTS, Run, find_run, find_runs, say_damaged

HEADINGS = ["run", "algorithm", "env", "seeds", "iterations", "last return", "duration", "status", "date"]
_OPTIONAL = ["date", "env", "duration", "seeds"]
"""Left out where the terminal is too narrow, in this order."""
_OF_SEEDS = "last return: mean over seeds [smallest, largest]"
_LARGE = 1000
_WIDEST = 60  # characters of a setting


def show_runs(folders: Sequence[Path], *, every: bool = False, html: Path | None = None, as_json: bool = False) -> None:
    """Lists the runs of a folder, or compares those of two.

    Args:
        folders: One folder of results, or two runs.
        every: True to list stages that train nothing, too.
        html: A page to write; `None` for none.
        as_json: True to print JSON instead of tables.

    Raises:
        UserError: If there are other than one or two folders, no runs in them, or the page cannot be written.
    """
    require_writable({"--html": html})
    if len(folders) > 2:
        raise UserError(f"{len(folders)} runs were given, but two are compared; give two, or one folder to list.")
    compared = compare(*(runs := [find_run(folder) for folder in folders])) if len(folders) == 2 else None
    if compared is None:
        runs = find_runs(folders[0], every)
        if not runs:
            raise UserError(f"There is no run in {str(folders[0])!r} yet; `rllib train` writes its results there.")
    if as_json:
        told = [run.to_json() for run in runs] if compared is None else compared
        out.out(json.dumps(told, indent=1, default=str), highlight=False)
    elif compared is None:
        print_table([HEADINGS, *map(cells, runs)], _OF_SEEDS, _OPTIONAL)
    else:
        print_comparison(runs, compared)
    if html is not None:
        with out.status("drawing"):
            write_atomically(html, make_page(runs, compared))
        if not as_json:
            say(f"Open {short_path(html)} in a browser.")


def is_figure(file: str) -> bool:
    """True for a file that lists, comparisons and reports are made of, by its path.

    Args:
        file: The path.
    """
    return file.endswith((".json", ".csv", ".txt")) and "/checkpoint_" not in f"/{file}"


def cells(run: Run) -> list[str]:
    """A run as a row under `HEADINGS`.

    Args:
        run: The run.
    """
    moment = datetime.datetime.fromtimestamp(run.changed) if run.changed else None
    return [
        run.name,
        run.algorithm,
        run.env.removeprefix("rllib_llm_comm/"),
        spans(run.seeds) or "-",
        spans(sorted(set(run.iterations))) or "-",
        spread(run.figures.get("return", [])),
        duration(run.seconds),
        run.status,
        f"{moment:%Y-%m-%d %H:%M}" if moment else "-",
    ]


def spans(numbers: Sequence[int]) -> str:
    """Ascending numbers, such as "0-3, 7".

    Args:
        numbers: The numbers.
    """
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ", ".join(f"{low}" if low == high else f"{low}-{high}" for low, high in ranges)


def spread(values: Sequence[float]) -> str:
    """A mean with the smallest and the largest value; "-" for none.

    Args:
        values: One per seed.
    """
    if not values:
        return "-"
    middle = f"{sum(values) / len(values):.3g}"
    return middle if len(values) == 1 else f"{middle} [{min(values):.3g}, {max(values):.3g}]"


def duration(seconds: float) -> str:
    """Seconds in words, such as "2 h 05 min"; "-" for none.

    Args:
        seconds: The duration.
    """
    if not seconds:
        return "-"
    minutes, rest = divmod(round(seconds), 60)
    if not minutes:
        return f"{rest} s"
    hours, minutes_left = divmod(minutes, 60)
    return f"{hours} h {minutes_left:02} min" if hours else f"{minutes} min {rest:02} s"


def interval_text(told: Mapping[str, Any]) -> str:
    """A figure with its interval, where it has one.

    Args:
        told: `value`, `low` and `high`.
    """
    value, low, high = (told[key] if told[key] is None else number_text(told[key]) for key in ("value", "low", "high"))
    return f"{value}" if low is None else f"{value} [{low}, {high}]"


def number_text(value: float) -> str:
    """A number with about four digits, and none behind the point where there are as many before it.

    Args:
        value: The number.
    """
    return f"{value:,.0f}" if abs(value) >= _LARGE else f"{value:.4g}"


def setting_text(value: Any) -> str:
    """A setting on one line; "-" if it is not there.

    Args:
        value: The setting.
    """
    return "-" if value is None else one_line(value if isinstance(value, str) else json.dumps(value), _WIDEST)


def remarks(compared: Mapping[str, Any]) -> list[str]:
    """Sentences on what the tables of a comparison are, and what they lack.

    Args:
        compared: From `compare`.
    """
    told = []
    if not compared["settings"]:
        text = "Both runs have the same settings"
        told.append(f"{text}, but those of stages that they use differ." if compared["earlier"] else f"{text}.")
    if not compared["figures"]:
        told.append("There is no figure that both have.")
    elif all(figure["difference"]["low"] is None for figure in compared["figures"].values()):
        told.append("A single seed has no interval, so nothing tells what of the difference is chance.")
    else:
        told.append("In brackets: bootstrapped 95 % intervals over seeds; with few seeds they are too narrow.")
    return told


def print_comparison(runs: Sequence[Run], compared: Mapping[str, Any]) -> None:
    """Prints the settings that differ, and the figures.

    Args:
        runs: The two runs.
        compared: From `compare`.
    """
    names = [run.name for run in runs]
    if compared["settings"]:
        rows = [[key, *map(setting_text, pair)] for key, pair in compared["settings"].items()]
        print_table([["setting", *names], *rows])
    if compared["figures"]:
        rows = [
            [title, *map(interval_text, figure["values"]), interval_text(figure["difference"])]
            for title, figure in compared["figures"].items()
        ]
        seeds = [f"{name} ({len(run.trials)} trained)" for name, run in zip(names, runs, strict=True)]
        print_table([["last figure", *seeds, "difference"], *rows])
    for sentence in remarks(compared):
        say(sentence)


def make_page(runs: Sequence[Run], compared: Mapping[str, Any] | None) -> str:
    """A page that needs nothing else, with the list or the comparison, and curves as in the report of a study.

    Args:
        runs: The runs.
        compared: From `compare`; `None` for a list.
    """
    from rllib_llm_comm.evaluation.figures import draw_curves, looks, to_png
    from rllib_llm_comm.evaluation.page_templates import render_page
    from rllib_llm_comm.evaluation.study_results import SystemResults

    labels = short_names(runs)
    games: dict[str, dict[str, SystemResults]] = {}
    undrawn = []
    for run in runs:
        if curves := curves_of(run):
            games.setdefault(run.env, {})[run.name] = SystemResults(run.name, labels[run.name], curves)
        else:
            undrawn.append(run.name)
    paint = looks([run.name for run in runs])
    pngs = {env: to_png(draw_curves(systems, paint)) for env, systems in games.items()}
    return render_page(
        "runs.html",
        {"interval": interval_text, "setting": setting_text},
        headings=HEADINGS,
        rows=[cells(run) for run in runs],
        note=_OF_SEEDS,
        names=[run.name for run in runs],
        compared=compared,
        remarks=remarks(compared) if compared else [],
        pictures={env: "data:image/png;base64," + base64.b64encode(png).decode() for env, png in pngs.items()},
        undrawn=undrawn,
    )


def short_names(runs: Sequence[Run]) -> dict[str, str]:
    """Name -> the part of it in which runs differ, for legends.

    Args:
        runs: The runs.
    """
    folders = [run.folder.absolute() for run in runs]
    common = Path(os.path.commonpath([folder.parent for folder in folders]))
    return {run.name: str(folder.relative_to(common)) for run, folder in zip(runs, folders, strict=True)}


def curves_of(run: Run) -> list[Any]:
    """The curves of a run's trials that act; those that only learn from labels have none.

    Args:
        run: The run; trials whose results cannot be read are passed over with a sentence.
    """
    from rllib_llm_comm.evaluation.study_curves import CURVE_ERRORS, read_curve

    found = []
    for trial in run.trials:
        path = trial.folder / RESULTS
        if not os.path.lexists(path):
            continue
        try:
            curve = read_curve(path)
        except CURVE_ERRORS as error:
            say_damaged(f"{short_path(path)!r} has no curves ({type(error).__name__}: {error}); move it away.")
            continue
        if any(curve.decisions):
            found.append(curve)
    return found
