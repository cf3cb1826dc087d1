"""Callbacks of Tune: the table, curves, safe-keeping, signatures, names of trials. Imports Ray: import it late."""

from __future__ import annotations

import contextlib
import json
import math
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ray.tune.callback import Callback
from ray.tune.logger import CSVLoggerCallback, JsonLoggerCallback
from ray.tune.result import SHOULD_CHECKPOINT
from ray.tune.utils.util import SafeFallbackEncoder

from rllib_llm_comm.core.files import write_atomically
from rllib_llm_comm.evaluation.study_results import ITERATION, read_rows
from rllib_llm_comm.experiments.console import StoppedError, TrainingTable, lookup
from rllib_llm_comm.experiments.stages import Stage
from rllib_llm_comm.experiments.tune_state import keep_state, remove_incomplete
from rllib_llm_comm.policies.signatures import SIGNATURE, OwnStates, seal_checkpoint
from rllib_llm_comm.rl.epoch_progress import read_progress

if TYPE_CHECKING:
    from ray.tune import Checkpoint
    from ray.tune.experiment import Trial
    from ray.tune.search import BasicVariantGenerator


class TableCallback(Callback):
    """Prints every result of every trial, and moves the bar."""

    def __init__(self, table: TrainingTable) -> None:
        self._table = table

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: dict[str, Any], **info: Any
    ) -> None:
        """Prints the result."""
        self._table.show(str(trial), result)

    def on_step_end(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        """Moves the bar within the iterations that run."""
        if not self._table.moves:
            return
        for trial in trials:
            if trial.status == trial.RUNNING:
                result = trial.last_result or {}
                folder = trial.storage.trial_working_directory
                share = read_progress(folder, int(result.get("training_iteration") or 0))
                self._table.move(str(trial), result, share)

    def on_trial_complete(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """Counts the trial."""
        self._table.finish(str(trial), trial.last_result)


class SafeKeeping(Callback):
    """Sees to it that a run can go on: seals and signs checkpoints and Tune's state, saves before it stops.

    Args:
        stage: The stage.
        interrupted: Set when the run should stop (ctrl-C, SIGTERM).
        notify: Called once with a sentence when the stop is noticed.

    Attributes:
        stopped: True if the run was ended before its trials were done.
    """

    def __init__(self, stage: Stage, interrupted: threading.Event, notify: Callable[[str], None]) -> None:
        self.stopped = False
        self._stage = stage
        self._states = OwnStates(stage.folder)
        self._states.begin(stage.fingerprint)
        self._staging: Path | None = None
        self._interrupted = interrupted
        self._notify = notify
        self._told = False
        self._saved: set[str] = set()
        self._fault: OSError | None = None

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: dict[str, Any], **info: Any
    ) -> None:
        """Asks for a checkpoint of this result if the run should stop."""
        if self._interrupted.is_set() and trial.trial_id not in self._saved:
            result[SHOULD_CHECKPOINT] = True

    def on_checkpoint(
        self, iteration: int, trials: list[Trial], trial: Trial, checkpoint: Checkpoint, **info: Any
    ) -> None:
        """Seals and signs a checkpoint; Tune deletes older ones only after this.

        Raises:
            OSError: If the disk fails; Tune does not count the checkpoint then.
        """
        metrics = {key: value for key, value in (trial.last_result or {}).items() if key != "config"}
        place = Path(checkpoint.path)
        try:
            if place.is_dir():  # not where this process cannot see it, as in a cluster without a common disk
                plain = json.loads(json.dumps(metrics, cls=SafeFallbackEncoder, nan_str=math.nan))
                seal_checkpoint(place, self._stage.experiment.run, plain)
        except OSError as error:  # Tune only logs it
            self._fault = error
            raise
        remove_incomplete(place.parent)
        if self._interrupted.is_set():
            self._saved.add(trial.trial_id)

    def on_trial_complete(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """Tells where the score is missing by which checkpoints should have been kept."""
        score = self._stage.experiment.checkpoint_config.checkpoint_score_attribute
        if score is not None and lookup(trial.last_result or {}, score) is None:
            self._notify(
                f"`checkpoint_config.checkpoint_score_attribute` is {score!r}, which the last result of {trial} lacks; "
                "its newest checkpoints were kept."
            )

    def on_step_begin(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        """Ends the run when a checkpoint could not be sealed, or when all trials are saved after ctrl-C.

        Raises:
            OSError: If the disk failed.
            StoppedError: After ctrl-C, where Tune cannot be told to end by itself.
        """
        if trials:
            self._staging = Path(trials[0].storage.experiment_driver_staging_path)
        if self._fault is not None:
            raise self._fault
        if not self._interrupted.is_set():
            return
        waiting = [trial for trial in trials if trial.status == trial.RUNNING and trial.trial_id not in self._saved]
        if not waiting:
            self.stopped = True
            if not hasattr(signal, "SIGUSR1"):
                raise StoppedError
            signal.raise_signal(signal.SIGUSR1)  # Tune writes its state and ends
        elif not self._told:
            self._notify("Stopping: a checkpoint is written after this iteration. Ctrl-C once more stops at once.")
            self._told = True

    def get_state(self) -> None:
        """Signs and copies the state: Tune asks for this when it has written it, before it copies it to the results.

        So a kill at any moment leaves no whole state without a signature.
        """
        if self._staging is None:
            return
        # Of a run that goes on, Tune has copied all JSON files to its staging folder, and would put them back.
        (self._staging / SIGNATURE).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # a full disk: this state is passed over then, the one before it stays
            self._states.sign(path for path in sorted(self._staging.glob("*")) if path.suffix in (".json", ".pkl"))
            keep_state(self._stage.folder, self._staging)


class EndedTrials(Callback):
    """Reports ended trials to the searcher of a run that goes on.

    The searcher's state still counts trials as running that had ended when the command was killed. It makes no further
    trial beyond the most that may run at once, and is done only when it has found that there is none: without this
    Tune would wait for ever.
    """

    def __init__(self, searcher: BasicVariantGenerator) -> None:
        self._searcher = searcher
        self._told = False

    def on_step_begin(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        """Reports them once, before the searcher is asked for a trial; Tune itself reports trials that end later."""
        if not self._told:
            for trial in trials:
                if trial.is_finished():
                    self._searcher.on_trial_complete(trial.trial_id)
            self._told = True


def trial_name(trial: Trial) -> str:
    """The place of the trial in its sweep and what was varied, such as `0_lr=1e-05,seed=1`."""
    place = str(trial.experiment_tag or "0").split("_", 1)[0]
    # Absolute paths are too long for a name, and most follow from the seed.
    told = {str(key): value for key, value in (trial.evaluated_params or {}).items() if not str(value).startswith("/")}
    varied = ",".join(f"{key.rsplit('/', 1)[-1]}={_short(value)}" for key, value in sorted(told.items()))
    return (f"{place}_{varied}" if varied else place)[:60]


def _short(value: Any) -> str:
    """A value as a folder may be called; small numbers keep their digits, as Tune's own names do not."""
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return "".join(sign if sign.isalnum() or sign in "+-._" else "-" for sign in text)


def trial_folder(trial: Trial) -> str:
    """`trial_` and the trial's name; the same when the sweep is run again."""
    return f"trial_{trial_name(trial)}"


@contextlib.contextmanager
def catch_stop() -> Iterator[threading.Event]:
    """Turns the first ctrl-C or SIGTERM into a set event; a second one works as usual."""
    interrupted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield interrupted
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def interrupt(number: int, frame: Any) -> None:
        interrupted.set()
        restore()

    for number in before:
        signal.signal(number, interrupt)
    try:
        yield interrupted
    finally:
        restore()


class CurveTable(CSVLoggerCallback):
    """Writes `progress.csv` with the rows of `result.json`; `CurveRows` begins it, and comes behind it."""

    def begin(self, trial: Trial, rows: list[dict[str, Any]]) -> None:
        """Begins the table of a trial anew."""
        self.log_trial_end(trial)
        place = Path(trial.storage.trial_fs_path, "progress.csv")
        self._trial_files[trial] = place.open("w", encoding="utf-8", newline="")
        self._trial_csv[trial], self._trial_continue[trial] = None, False
        for row in rows:
            self.log_trial_result(0, trial, row)


class CurveRows(JsonLoggerCallback):
    """Writes `result.json`: the results of the run as it went on, one line per iteration, ascending.

    Tune's own logger writes to its staging folder, from where rows reach the results many seconds later: a kill would
    lose those of iterations whose checkpoint stays.
    """

    def __init__(self, table: CurveTable) -> None:
        super().__init__()
        self._table = table
        self._last: dict[Trial, int] = {}

    def log_trial_start(self, trial: Trial) -> None:
        """Takes out rows that a later one has taken back, and the one that was cut off."""
        trial.init_local_path()
        self.update_config(trial, trial.config)
        path = Path(trial.storage.trial_fs_path, "result.json")
        rows = read_rows(path) if path.exists() else []
        write_atomically(path, "".join(json.dumps(row) + "\n" for row in rows))
        self._table.begin(trial, rows)
        self._last[trial] = rows[-1].get(ITERATION, 0) if rows else 0

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        """Adds a row."""
        if trial not in self._last:
            self.log_trial_start(trial)
        with Path(trial.storage.trial_fs_path, "result.json").open("a", encoding="utf-8") as handle:
            handle.write(json.dumps(result, cls=SafeFallbackEncoder) + "\n")
        before, self._last[trial] = self._last[trial], int(result[ITERATION])
        if self._last[trial] <= before:  # it went on from an earlier iteration
            self.log_trial_start(trial)

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        """Forgets the trial."""
        self._last.pop(trial, None)
