"""Runs on disk: what was trained, with which settings, how far it is, and its last figures."""

from __future__ import annotations

import csv
import datetime
import fcntl
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rllib_llm_comm.checkpoints.stage_record import MARKER, StageRecord, read_record
from rllib_llm_comm.errors import UserError
from rllib_llm_comm.evaluation.curve_rows import ITERATION
from rllib_llm_comm.experiments.console import short_path
from rllib_llm_comm.experiments.progress import summary_of
from rllib_llm_comm.experiments.search_space import has_search, search_kind
from rllib_llm_comm.files import foreign_lines, open_regular

RESULTS, TABLE = "result.json", "progress.csv"
_TITLES_OF_EVALUATIONS = {"return_mean": "return", "success_rate": "success", "length_mean": "length"}
_BLOCK = 1 << 16  # bytes
_MOST_BYTES, _MOST_LINE = 2**32, 2**24  # of a file, and of a line of it


@dataclass(frozen=True)
class Trial:
    """One training of a run.

    Attributes:
        folder: Its folder.
        last: The last row of its results.
    """

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


def find_runs(folder: Path, every: bool = False) -> list[Run]:
    """The runs in a folder of results, in a run's folder with its stages, or in one stage; newest last.

    Args:
        folder: The folder.
        every: True to give stages that train nothing, too.

    Raises:
        UserError: If there is no such folder.
    """
    if not folder.is_dir():
        raise UserError(f"There is no folder {str(folder)!r}; give a folder of results, such as results/verco.")
    runs = [run for stage in _stages(folder) for run in _read(stage) if run.trials or every]
    return sorted(runs, key=lambda run: (run.changed, run.name))


def find_run(folder: Path) -> Run:
    """The one run in a folder.

    Args:
        folder: A stage that trained, a trial, or a folder with one such stage.

    Raises:
        UserError: If there is none or several.
    """
    runs = find_runs(folder)
    if len(runs) == 1:
        return runs[0]
    if not runs:
        raise UserError(f"Nothing was trained in {str(folder)!r}; `rllib runs` lists what was.")
    listed = ", ".join(run.name for run in runs)
    raise UserError(f"There are {len(runs)} runs in {str(folder)!r}; give one of {listed}.")


def _stages(folder: Path) -> Iterator[Path]:
    """Folders of stages, and of trials that lie in none, at most three storeys below."""
    patterns = ("", "*/", "*/*/")
    found = {path.parent for pattern in patterns for path in folder.glob(pattern + MARKER)}
    results = {path.parent for pattern in (*patterns, "*/*/*/") for path in folder.glob(pattern + RESULTS)}
    results |= {path.parent for pattern in (*patterns, "*/*/*/") for path in folder.glob(pattern + TABLE)}
    # Below a stage lie its trials, and what these keep of runs of their own, such as a population's members.
    bare = {trial if trial == folder else trial.parent for trial in results if found.isdisjoint(trial.parents)}
    yield from sorted(found | bare)


def _read(stage: Path) -> list[Run]:
    """The runs of one stage."""
    record = read_record(stage)
    folders = [stage] if (stage / RESULTS).exists() or (stage / TABLE).exists() else _trial_folders(stage)
    trials = [Trial(path, row) for path in folders if (row := last_row(path))]
    if record is None and folders == [stage]:  # a trial of a stage was given
        record = read_record(stage.parent)
        return [_run(stage, record, trials, stage.parent)]
    if not _varies(record, trials):
        return [_run(stage, record, trials, stage)]
    return [_run(trial.folder, record, [trial], stage) for trial in trials]


def _trial_folders(stage: Path) -> list[Path]:
    found = {path.parent for name in (RESULTS, TABLE) for path in stage.glob(f"*/{name}")}
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
        changed = [(stage / MARKER).stat().st_mtime]
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


def flat_settings(value: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Settings by their path, joined with dots; search spaces and lists stay whole.

    Args:
        value: Settings.
        above: The path of their mapping.
    """
    for key, item in value.items():
        if isinstance(item, Mapping) and item and not search_kind(item):
            yield from flat_settings(item, f"{above}{key}.")
        else:
            yield f"{above}{key}", item


def _status(record: StageRecord | None, stage: Path, trials: Sequence[Trial]) -> str:
    if record is None:
        return "-"
    if record.status == "finished":
        return "finished"
    if _is_written(stage.parent):
        return "running"
    return "failed" if any((trial.folder / "error.txt").exists() for trial in trials) else "stopped"


def _is_written(folder: Path) -> bool:
    """True if a command writes to a folder of results at this moment: it holds the lock of `pipeline.run_file`."""
    try:
        with (folder / ".lock").open("rb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            return False
    except OSError:
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

    Args:
        trial: Its folder, with `result.json` or, where that is missing, `progress.csv`.
    """
    try:
        if (trial / RESULTS).exists():
            return _last_json(trial / RESULTS)
        lines = (line.decode("utf-8-sig", "replace") for line in foreign_lines(trial / TABLE, _MOST_BYTES, _MOST_LINE))
        last = None
        for row in csv.DictReader(lines):
            last = row if (row.get(ITERATION) or "").isdigit() else last
        return _nested(last) if last else None
    except csv.Error:
        return None
    except OSError as error:
        raise UserError(f"{str(trial)!r} cannot be read ({error.strerror}).") from error


def _last_json(path: Path) -> dict[str, Any] | None:
    """The last line that is whole: the end of a file whose writer was killed may be none."""
    with open_regular(path) as handle:
        place, text = handle.seek(0, 2), b""
        while place and len(text) <= _MOST_LINE:
            step = min(_BLOCK, place)
            place -= step
            handle.seek(place)
            text = handle.read(step) + text
            lines = text.split(b"\n")
            # The first one may begin further ahead.
            for line in reversed(lines if not place else lines[1:]):
                row = _mapping(line)
                if row is not None:
                    return row
    return None


def _mapping(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


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
