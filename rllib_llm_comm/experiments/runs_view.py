"""Runs listed, compared side by side, drawn and reported: on the console, as JSON, and as pages."""

from __future__ import annotations

import base64
import datetime
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.files import disk_error, write_atomically
from rllib_llm_comm.evaluation.statistics import Interval, Statistic, bootstrap, bootstrap_difference, iqm, mean
from rllib_llm_comm.experiments.console import one_line, out, print_table, require_writable, say, short_path
from rllib_llm_comm.experiments.run_records import RESULTS, Run, find_run, find_runs, say_damaged

if TYPE_CHECKING:
    from rllib_llm_comm.evaluation.study_results import StudyResults

_FEW = 4
"""With fewer seeds in a run means are compared, not interquartile means, as in the report of a study."""


def compare(ours: Run, other: Run) -> dict[str, Any]:
    """Differences between two runs.

    Args:
        ours: A run.
        other: Another one.

    Returns:
        `runs` (both), `settings` (path -> the two values, `None` where one has no such setting), `earlier` (true if
        they agree in all settings, but not in those of stages that they use), and `figures` (title -> `values`, two
        intervals, and `difference`, the second minus the first; intervals of one seed are `None` at their ends).
    """
    keys = [key for key in {**ours.settings, **other.settings} if ours.settings.get(key) != other.settings.get(key)]
    settings = {key: [ours.settings.get(key), other.settings.get(key)] for key in keys}
    figures = {}
    for title in (title for title in ours.figures if title in other.figures):
        pair = [np.array(run.figures[title], np.float64) for run in (ours, other)]
        figures[title] = _figure(pair)
    return {
        "runs": [ours.to_json(), other.to_json()],
        "settings": settings,
        "earlier": not settings and bool(ours.identity) and ours.identity != other.identity,
        "figures": figures,
    }


def _figure(pair: Sequence[np.ndarray]) -> dict[str, Any]:
    least = min(len(values) for values in pair)
    statistic: Statistic = iqm if least >= _FEW else mean
    several = least > 1
    return {
        "statistic": "iqm" if statistic is iqm else "mean",
        "values": [_told(bootstrap(values, statistic), len(values) > 1) for values in pair],
        "difference": _told(bootstrap_difference(pair[1], pair[0], statistic), several),
    }


def _told(interval: Interval, several: bool) -> dict[str, float | None]:
    told: dict[str, float | None] = {**interval.rounded()}
    return told if several else {**told, "low": None, "high": None}


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


REPORT, PAGE = "report", "report.html"


def run_report(folders: Sequence[Path], target: Path | None = None, marl_eval: Path | None = None) -> Path:
    """Writes the report of studies.

    Args:
        folders: Folders of studies or of earlier reports; several become one report.
        target: The report's folder; by default `report/` in the first folder.
        marl_eval: A file to write for marl-eval besides; `None` for none.

    Returns:
        The page.

    Raises:
        UserError: If a folder holds no study, they cannot be joined, no system is whole enough for marl-eval, or a
            file cannot be written.
    """
    from rllib_llm_comm.evaluation.report import write_report
    from rllib_llm_comm.evaluation.study_parts import join_results
    from rllib_llm_comm.evaluation.study_results import read_results

    results = join_results([read_results(folder) for folder in folders])
    if marl_eval is not None:
        _write_marl_eval(results, marl_eval)
    place = target or folders[0] / REPORT
    try:
        with out.status("computing intervals and drawing"):
            page = write_report(results, place)
    except OSError as error:
        doing = f"The report cannot be written to {short_path(place)}"
        raise disk_error(error, doing, "give another folder with `rllib report FOLDER --out OTHER`") from error
    if results.missing:
        are = "1 evaluation is" if len(results.missing) == 1 else f"{len(results.missing)} evaluations are"
        say(f"{are} not there yet; the report says so.")
    return page


def _write_marl_eval(results: StudyResults, file: Path) -> None:
    from rllib_llm_comm.evaluation.marl_eval import to_marl_eval

    document, left_out = to_marl_eval(results)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, json.dumps(document, indent=1) + "\n")
    except OSError as error:
        doing = f"`--marl-eval`: {short_path(file)} cannot be written"
        raise disk_error(error, doing, "give another file with `--marl-eval OTHER`") from error
    say(f"Written to {short_path(file)}, for marl-eval.")
    if left_out:
        say(f"Left out there, since they were not compared in all scenarios to the end: {', '.join(left_out)}.")
