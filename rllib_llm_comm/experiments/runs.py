"""Runs: what was trained and how far it is, listed, compared side by side, drawn and reported."""

from __future__ import annotations

import base64
import contextlib
import csv
import datetime
import fcntl
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rllib_llm_comm.core.errors import UserError, one_line, require_number, require_whole, shown
from rllib_llm_comm.core.files import disk_error, read_tail, read_text, write_atomically
from rllib_llm_comm.core.places import is_text
from rllib_llm_comm.evaluation.statistics import Interval, bootstrap, bootstrap_difference, middle_of
from rllib_llm_comm.evaluation.study_results import (
    CURVE_ERRORS,
    ITERATION,
    StudyResults,
    SystemResults,
    join_results,
    read_curve,
    read_results,
)
from rllib_llm_comm.experiments.console import (
    err,
    out,
    plain,
    print_table,
    require_writable,
    say,
    short_path,
    summary_of,
)
from rllib_llm_comm.experiments.search_space import flat_settings, has_search, search_kind
from rllib_llm_comm.policies.stage_record import MARKER, StageRecord, read_record

RESULTS, TABLE = "result.json", "progress.csv"
_TITLES_OF_EVALUATIONS = {"return_mean": "return", "success_rate": "success", "length_mean": "length"}
_MOST_TAIL = 1 << 25  # bytes of a file that its last row is looked for in
_LATEST = 2**36  # seconds since 1970: far ahead, and still a date
_LONGEST = 400  # characters of a sentence


@dataclass(frozen=True)
class Trial:
    """One training of a run: its folder, and the last row of its results."""

    folder: Path
    last: Mapping[str, Any]

    @property
    def seed(self) -> int | None:
        """Its seed, if it has one."""
        seed = (self.last.get("config") or {}).get("seed")
        return seed if isinstance(seed, int) else None


@dataclass(frozen=True)
class Run:
    """Trainings with the same settings but for the seed, or a stage that trains nothing.

    Attributes:
        folder: The folder of the stage, or of the trial where a stage varies more than the seed.
        algorithm: The algorithm or the kind of stage; "-" where nothing says it.
        env: Id of the environment; "-" where nothing says it.
        status: "finished", "running", "stopped" (it can go on), "failed", or "-" where nothing says it.
        trials: Its trainings.
        settings: Path of a setting -> value, as the file says.
        identity: Digest of everything that decides the result, of earlier stages, too; empty where nothing says it.
        figures: Title of a figure -> the last value of each trial that has it.
        seconds: Longest duration of a trial; of a stage that trains nothing that of the stage.
        changed: Time of the last result, in seconds since 1970.
    """

    folder: Path
    algorithm: str
    env: str
    status: str
    trials: list[Trial]
    settings: dict[str, Any]
    identity: str
    figures: dict[str, list[float]] = field(default_factory=dict)
    seconds: float = 0.0
    changed: float = 0.0

    @property
    def name(self) -> str:
        """Its folder as it can be typed."""
        return short_path(self.folder)

    @property
    def seeds(self) -> list[int]:
        """The seeds of its trials, ascending."""
        return sorted({trial.seed for trial in self.trials if trial.seed is not None})

    @property
    def iterations(self) -> list[int]:
        """Training iterations of each trial so far."""
        return [int(trial.last.get(ITERATION) or 0) for trial in self.trials]

    def to_json(self) -> dict[str, Any]:
        """The run as plain values."""
        moment = datetime.datetime.fromtimestamp(self.changed, datetime.timezone.utc)
        return {
            "name": self.name,
            "algorithm": self.algorithm,
            "env": self.env,
            "status": self.status,
            "seeds": self.seeds,
            "iterations": self.iterations,
            "figures": self.figures,
            "seconds": round(self.seconds, 1),
            "changed": moment.isoformat(timespec="seconds") if self.changed else None,
            "settings": self.settings,
        }


def say_damaged(sentence: str) -> None:
    """Tells that a run was passed over, where it is not in the way of the results."""
    err.print(f"[yellow]Passed over:[/] {plain(one_line(sentence, _LONGEST))}", soft_wrap=True)


def find_runs(folder: Path, every: bool = False, damaged: Callable[[str], object] = say_damaged) -> list[Run]:
    """The runs in a folder of results, in a run's folder with its stages, or in one stage; newest last.

    Args:
        folder: The folder.
        every: True to give stages that train nothing, too.
        damaged: Called with one sentence for each run, trial or folder that cannot be read and is passed over.

    Raises:
        UserError: If there is no such folder.
    """
    if not os.path.isdir(folder):
        raise UserError(f"There is no folder {str(folder)!r}; give a folder of results, such as results/verco.")
    runs: list[Run] = []
    for stage in _stages(folder, damaged):
        with _passed_over(stage, damaged):
            found = [run for run in _read(stage, damaged) if run.trials or every]
            for run in found:  # that can be told
                require_number("seconds", run.seconds, 0, _LATEST)
                json.dumps(run.to_json(), default=str).encode()
            runs += found
    return sorted(runs, key=lambda run: (run.changed, run.name))


@contextlib.contextmanager
def _passed_over(place: Path, damaged: Callable[[str], object]) -> Iterator[None]:
    """Tells what is damaged at a place instead of failing; any program may have written there."""
    try:
        yield
    except (OSError, ValueError, TypeError, AttributeError, KeyError, ArithmeticError, RecursionError) as error:
        what = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        damaged(f"{short_path(place)!r} cannot be read ({one_line(what, _LONGEST // 2)}); move it away.")


def find_run(folder: Path) -> Run:
    """The one run in a folder.

    Args:
        folder: A stage that trained, a trial, or a folder with one such stage.

    Raises:
        UserError: If there is none or several, or it is damaged.
    """
    damaged: list[str] = []
    runs = find_runs(folder, damaged=damaged.append)
    if damaged:
        raise UserError(damaged[0])
    if len(runs) == 1:
        return runs[0]
    if not runs:
        raise UserError(f"Nothing was trained in {str(folder)!r}; `rllib runs` lists what was.")
    listed = ", ".join(run.name for run in runs)
    raise UserError(f"There are {len(runs)} runs in {str(folder)!r}; give one of {listed}.")


def _stages(folder: Path, damaged: Callable[[str], object]) -> list[Path]:
    """Folders of stages, and of trials that lie in none, at most three storeys below."""
    below = list(_below(folder, 3, damaged))
    found = {path for path, storey in below if storey < 3 and os.path.lexists(path / MARKER)}
    results = {path for path, _ in below if any(os.path.lexists(path / name) for name in (RESULTS, TABLE))}
    # Below a stage lie its trials, and what these keep of runs of their own, such as a population's members.
    bare = {trial if trial == folder else trial.parent for trial in results if found.isdisjoint(trial.parents)}
    return sorted(found | bare)


def _below(folder: Path, most: int, damaged: Callable[[str], object], storey: int = 0) -> Iterator[tuple[Path, int]]:
    """A folder and those below it with their storeys; links that lead back up would give everything again."""
    yield folder, storey
    if storey == most:
        return
    with _passed_over(folder, damaged):
        for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
            path = Path(entry.path)
            if entry.is_symlink() and Path(os.path.realpath(folder)).is_relative_to(os.path.realpath(path)):
                continue
            if not is_text(entry.name):
                damaged(f"{shown(entry.name)} in {short_path(folder)!r} is no name in UTF-8; rename it.")
            elif os.path.isdir(path):
                yield from _below(path, most, damaged, storey + 1)


def _read(stage: Path, damaged: Callable[[str], object]) -> list[Run]:
    """The runs of one stage."""
    record = _record(stage)
    own = any(os.path.lexists(stage / name) for name in (RESULTS, TABLE))
    folders = [stage] if own else _trial_folders(stage)
    trials: list[Trial] = []
    for path in folders:
        with _passed_over(path, damaged):
            if row := last_row(path):
                trials.append(Trial(path, _checked_row(row)))
    if record is None and folders == [stage]:  # a trial of a stage was given
        record = _record(stage.parent)
        return [_run(stage, record, trials, stage.parent)]
    if not _varies(record, trials):
        return [_run(stage, record, trials, stage)]
    return [_run(trial.folder, record, [trial], stage) for trial in trials]


def _record(stage: Path) -> StageRecord | None:
    """The record of a stage, if it has one.

    Raises:
        ValueError: If it cannot be read.
    """
    record = read_record(stage)
    if record is None and os.path.lexists(stage / MARKER):
        raise ValueError(f"its {MARKER} is damaged")
    return record


def _checked_row(row: dict[str, Any]) -> dict[str, Any]:
    """A row whose figures are what they should be."""
    require_whole(ITERATION, row.get(ITERATION) or 0, 0, 2**63)
    for name in ("time_total_s", "timestamp"):
        require_number(name, row.get(name) or 0, 0, _LATEST)
    for name in ("config", "env_runners", "learners"):
        if not isinstance(row.get(name) or {}, Mapping):
            raise ValueError(f"`{name}` is {shown(row[name])} but must be a mapping")
    return row


def _trial_folders(stage: Path) -> list[Path]:
    found = {
        path for path, _ in _below(stage, 1, say_damaged) for name in (RESULTS, TABLE) if os.path.lexists(path / name)
    }
    # What was moved aside is a run of its own only if one asks for it by name.
    return sorted((path for path in found if not path.name.startswith(("lost_", "damaged_"))), key=_place)


def _place(trial: Path) -> tuple[int, str]:
    digits = trial.name.removeprefix("trial_").split("_")[0]
    return (int(digits) if digits.isdigit() else 0, trial.name)


def _varies(record: StageRecord | None, trials: Sequence[Trial]) -> bool:
    """True if trials differ in more than their seed."""
    if record is not None:
        config = record.settings.get("config") or {}
        return has_search({key: value for key, value in config.items() if key != "seed"})
    configs = [{**(trial.last.get("config") or {}), "seed": None} for trial in trials]
    return any(config != configs[0] for config in configs)


def _run(folder: Path, record: StageRecord | None, trials: list[Trial], stage: Path) -> Run:
    settings = _settings(record, trials)
    changed = [float(trial.last.get("timestamp") or 0) for trial in trials]
    if record is not None and not trials:
        changed = [(stage / MARKER).lstat().st_mtime]
    env = (record.settings.get("env") if record else None) or _first_config(trials).get("env")
    seconds = max((float(trial.last.get("time_total_s") or 0) for trial in trials), default=0.0)
    return Run(
        folder=folder,
        algorithm=record.run if record else "-",
        env=str(env or "-"),
        status=_status(record, stage, trials),
        trials=trials,
        settings=settings,
        identity=record.fingerprint if record else "",
        figures=_figures(record, trials),
        seconds=seconds or (record.seconds if record else 0.0),
        changed=max(changed, default=0.0),
    )


def _first_config(trials: Sequence[Trial]) -> Mapping[str, Any]:
    return (trials[0].last.get("config") or {}) if trials else {}


def _settings(record: StageRecord | None, trials: Sequence[Trial]) -> dict[str, Any]:
    """The settings by path; what a search has chosen for a single trial stands for the search."""
    if record is None:
        return dict(flat_settings({"config": _first_config(trials)}))
    found = dict(flat_settings(record.settings))
    if len(trials) == 1:
        chosen = dict(flat_settings({"config": _first_config(trials)}))
        found = {key: chosen.get(key, value) if search_kind(value) else value for key, value in found.items()}
    return found


def _status(record: StageRecord | None, stage: Path, trials: Sequence[Trial]) -> str:
    if record is None:
        return "-"
    if record.status == "finished":
        return "finished"
    if _is_written(stage.parent):
        return "running"
    return "failed" if any(os.path.exists(trial.folder / "error.txt") for trial in trials) else "stopped"


def _is_written(folder: Path) -> bool:
    """True if a command writes to a folder of results at this moment: it holds the lock of `pipeline.run_file`."""
    try:
        lock = os.open(folder / ".lock", os.O_RDONLY | os.O_NONBLOCK)  # a pipe would be waited for without end
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return isinstance(error, BlockingIOError)
    finally:
        os.close(lock)
    return False


def _figures(record: StageRecord | None, trials: Sequence[Trial]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for trial in trials:
        for title, value in summary_of(trial.last).items():
            found.setdefault(title, []).append(value)
    if not trials and record is not None:
        for run in record.summary.get("checkpoints") or [record.summary]:
            for key, title in _TITLES_OF_EVALUATIONS.items():
                if isinstance(run, Mapping) and isinstance(run.get(key), int | float):
                    found.setdefault(title, []).append(float(run[key]))
    return found


def last_row(trial: Path) -> dict[str, Any] | None:
    """The last row of a trial's results that can be read, without reading all of them; `None` if there is none.

    It is of `result.json` or, where that is missing, of `progress.csv`.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If it holds no results.
    """
    if os.path.lexists(trial / RESULTS):
        return _last_json(trial / RESULTS)
    table = io.StringIO(read_text(trial / TABLE), newline="")
    try:
        rows = [row for row in csv.DictReader(table) if (row.get(ITERATION) or "").isdecimal()]
    except csv.Error as error:
        raise ValueError(f"its {TABLE} is no table: {error}") from error
    if not rows:
        raise ValueError(f"its {TABLE} has no row of an iteration")
    return _nested(rows[-1])


def _last_json(path: Path) -> dict[str, Any] | None:
    """The last line that is whole: the end of a file whose writer was killed may be none."""
    tail = read_tail(path, _MOST_TAIL)
    for line in reversed(tail.split(b"\n")):
        with contextlib.suppress(ValueError, RecursionError):
            if isinstance(row := json.loads(line), dict):
                return row
    if tail.strip():
        raise ValueError(f"no line of its {RESULTS} is whole")
    return None


def _nested(row: Mapping[str, str]) -> dict[str, Any]:
    """A row of `progress.csv`, whose columns are paths, as it stands in `result.json`."""
    nested: dict[str, Any] = {}
    for path, text in row.items():
        if not isinstance(text, str) or not text:
            continue
        *above, last = path.split("/")
        node = nested
        for key in above:
            node = node.setdefault(key, {})
            if not isinstance(node, dict):
                break
        else:
            node[last] = _number(text)
    return nested


def _number(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def compare(ours: Run, other: Run) -> dict[str, Any]:
    """Differences between two runs.

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
    statistic = middle_of(least)
    return {
        "statistic": statistic.__name__,
        "values": [_told(bootstrap(values, statistic), len(values) > 1) for values in pair],
        "difference": _told(bootstrap_difference(pair[1], pair[0], statistic), least > 1),
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
    """True for a file that lists, comparisons and reports are made of, by its path."""
    return file.endswith((".json", ".csv", ".txt")) and "/checkpoint_" not in f"/{file}"


def cells(run: Run) -> list[str]:
    """A run as a row under `HEADINGS`."""
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
    """Ascending numbers, such as "0-3, 7"."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ", ".join(f"{low}" if low == high else f"{low}-{high}" for low, high in ranges)


def spread(values: Sequence[float]) -> str:
    """A mean with the smallest and the largest of the values of all seeds; "-" for none."""
    if not values:
        return "-"
    middle = f"{sum(values) / len(values):.3g}"
    return middle if len(values) == 1 else f"{middle} [{min(values):.3g}, {max(values):.3g}]"


def duration(seconds: float) -> str:
    """Seconds in words, such as "2 h 05 min"; "-" for none."""
    if not seconds:
        return "-"
    minutes, rest = divmod(round(seconds), 60)
    if not minutes:
        return f"{rest} s"
    hours, minutes_left = divmod(minutes, 60)
    return f"{hours} h {minutes_left:02} min" if hours else f"{minutes} min {rest:02} s"


def interval_text(told: Mapping[str, Any]) -> str:
    """A figure (`value`) with its interval (`low`, `high`), where it has one."""
    value, low, high = (told[key] if told[key] is None else number_text(told[key]) for key in ("value", "low", "high"))
    return f"{value}" if low is None else f"{value} [{low}, {high}]"


def number_text(value: float) -> str:
    """A number with about four digits, and none behind the point where there are as many before it."""
    return f"{value:,.0f}" if abs(value) >= _LARGE else f"{value:.4g}"


def setting_text(value: Any) -> str:
    """A setting on one line; "-" if it is not there."""
    return "-" if value is None else one_line(value if isinstance(value, str) else json.dumps(value), _WIDEST)


def remarks(compared: Mapping[str, Any]) -> list[str]:
    """Sentences on what the tables of a comparison (`compare`) are, and what they lack."""
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
    """Prints the settings in which two runs differ, and the figures (`compare`)."""
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
    """A page that needs nothing else, with the list or the comparison, and curves as in the report of a study."""
    from rllib_llm_comm.evaluation.figures import draw_curves, looks, render_page, to_png

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
    """Name -> the part of it in which runs differ, for legends."""
    folders = [run.folder.absolute() for run in runs]
    common = Path(os.path.commonpath([folder.parent for folder in folders]))
    return {run.name: str(folder.relative_to(common)) for run, folder in zip(runs, folders, strict=True)}


def curves_of(run: Run) -> list[Any]:
    """The curves of a run's trials that act; those that only learn from labels have none.

    Trials whose results cannot be read are passed over with a sentence.
    """
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


def run_report(
    folders: Sequence[Path], target: Path | None = None, marl_eval: Path | None = None, ask: bool = False
) -> Path:
    """Writes the report of studies, and where their agents met strangers a page of each scenario's sentences.

    Args:
        folders: Folders of studies or of earlier reports; several become one report.
        target: The report's folder; by default `report/` in the first folder.
        marl_eval: A file to write for marl-eval besides; `None` for none.
        ask: True if agents whose answers to sentences were not kept are asked now; their checkpoints are loaded.

    Returns:
        The page.

    Raises:
        UserError: If a folder holds no study, they cannot be joined, no system is whole enough for marl-eval, or a
            file cannot be written.
    """
    from rllib_llm_comm.evaluation.report import write_report

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
    _write_sentences(folders, place, ask, results)
    return page


def _write_sentences(folders: Sequence[Path], place: Path, ask: bool, results: StudyResults) -> None:
    """A page per scenario of what the agents of all systems do with the sentences of the same strangers."""
    from rllib_llm_comm.evaluation.sentences import join_sentences, read_sentences, write_sentences
    from rllib_llm_comm.experiments.evaluation_run import CROSS_PLAY, SENTENCES, ask_again
    from rllib_llm_comm.experiments.study_file import STRANGERS

    for scenario, systems in results.scenarios.items():
        told: list[tuple[str, dict[str, Any]]] = []  # of a system one per folder, which has seeds of its own
        for name, system in systems.items():
            for met in (folder / f"{scenario}.{name}.{STRANGERS}" for folder in folders):
                file = (met / SENTENCES).with_suffix(".json")
                if ask and not file.exists() and (met / CROSS_PLAY).exists():
                    ask_again(met)
                if file.exists():
                    told.append((system.label, read_sentences(file)))
        if not told:
            continue
        page = write_sentences(join_sentences(told), place / f"{scenario}_{SENTENCES}", f"Sentences in {scenario}")
        say(f"What agents do with sentences of strangers is {short_path(page)}")


def _write_marl_eval(results: StudyResults, file: Path) -> None:
    from rllib_llm_comm.evaluation.report import to_marl_eval

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
