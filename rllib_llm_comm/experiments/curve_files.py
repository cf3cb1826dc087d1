"""`result.json` and `progress.csv` of a trial: one row per iteration, also after a resume. Imports Ray: import it late.

Ray Tune's own loggers only append, so the iterations that a killed run had done after its last checkpoint stay in the
files beside those that are done anew. They also write to a scratch folder that is copied every few seconds, so a kill
can leave a hole. The rows here go to their place at once.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ray.tune.logger import CSVLoggerCallback, JsonLoggerCallback
from ray.tune.utils.util import SafeFallbackEncoder

from rllib_llm_comm.core.files import write_atomically
from rllib_llm_comm.evaluation.curve_rows import ITERATION, current_rows, read_rows

if TYPE_CHECKING:
    from ray.tune.experiment import Trial

RESULTS = "result.json"
_TABLE = "progress.csv"


def start_iteration(trial: Trial) -> int | None:
    """The iteration of the checkpoint that a trial goes on from; 0 without one, `None` if it does not say."""
    checkpoint = trial.latest_checkpoint_result
    if checkpoint is None:
        return 0
    number = checkpoint.metrics.get(ITERATION)
    return number if isinstance(number, int) else None


def drop_rows(path: Path, after: int | None) -> list[dict[str, Any]]:
    """Takes the rows of lost iterations out of a `result.json`.

    Args:
        path: The file; none is as good as an empty one.
        after: Rows of later iterations go; `None`: only those that another row has taken back.

    Returns:
        The rows that stay.
    """
    if not path.exists():
        return []
    rows = [row for row in read_rows(path) if after is None or row.get(ITERATION, 0) <= after]
    write_atomically(path, "".join(json.dumps(row) + "\n" for row in rows))
    return rows


class CurveRows(JsonLoggerCallback):
    """Writes `result.json`: the results of the run as it went on, one line per iteration, ascending."""

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[Trial, int] = {}

    def log_trial_start(self, trial: Trial) -> None:
        """Takes out rows that were lost with what came after the checkpoint."""
        trial.init_local_path()
        self.update_config(trial, trial.config)
        rows = drop_rows(_place(trial, RESULTS), start_iteration(trial))
        self._last[trial] = rows[-1].get(ITERATION, 0) if rows else 0

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        """Adds a row."""
        if trial not in self._last:
            self.log_trial_start(trial)
        number = int(result[ITERATION])
        if number <= self._last[trial]:  # it took over a checkpoint on the way
            drop_rows(_place(trial, RESULTS), number - 1)
        with _place(trial, RESULTS).open("a", encoding="utf-8") as handle:
            handle.write(json.dumps(result, cls=SafeFallbackEncoder) + "\n")
        self._last[trial] = number

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        """Forgets the trial."""
        self._last.pop(trial, None)


class CurveTable(CSVLoggerCallback):
    """Writes `progress.csv` with the same rows as `result.json`."""

    def log_trial_start(self, trial: Trial) -> None:
        """Takes out rows that were lost with what came after the checkpoint."""
        self._setup_trial(trial)

    def _setup_trial(self, trial: Trial) -> None:
        if trial in self._trial_files:
            self._trial_files.pop(trial).close()
        path = _place(trial, _TABLE)
        names, rows = _read_table(path)
        after = start_iteration(trial)
        kept = [row for row in current_rows(rows) if after is None or row[ITERATION] <= after]
        self._trial_continue[trial] = bool(kept)
        if path.exists():
            text = io.StringIO(newline="")
            if kept:
                writer = csv.DictWriter(text, names)
                writer.writeheader()
                writer.writerows(kept)
            write_atomically(path, text.getvalue())
        self._trial_files[trial] = path.open("a", encoding="utf-8", newline="")
        self._trial_csv[trial] = csv.DictWriter(self._trial_files[trial], names) if kept else None


def _place(trial: Trial, name: str) -> Path:
    folder = Path(trial.storage.trial_fs_path)
    folder.mkdir(parents=True, exist_ok=True)
    return folder / name


def _read_table(path: Path) -> tuple[Sequence[str], list[dict[str, Any]]]:
    """The columns and the rows whose iteration can be read."""
    if not path.exists():
        return [], []
    with path.open(encoding="utf-8", newline="", errors="replace") as handle:
        reader = csv.DictReader(handle, restval="")
        rows: list[dict[str, Any]] = []
        for row in reader:
            row.pop(None, None)  # type: ignore[call-overload]
            if (row.get(ITERATION) or "").isdigit():
                rows.append({**row, ITERATION: int(row[ITERATION])})
        return list(reader.fieldnames or []), rows
