"""Hands Tune's results to the table; names and folders of trials. Imports Ray: import it late."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ray.tune.callback import Callback

from rllib_llm_comm.cli.console import StoppedError

if TYPE_CHECKING:
    from ray.tune.experiment import Trial

    from rllib_llm_comm.cli.progress import TrainingTable


class TableCallback(Callback):
    """Prints every result of every trial.

    Args:
        table: Where.
        interrupted: Set after ctrl-C.
    """

    def __init__(self, table: TrainingTable, interrupted: threading.Event) -> None:
        self._table = table
        self._interrupted = interrupted

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: dict[str, Any], **info: Any
    ) -> None:
        """Prints the result."""
        self._table.show(str(trial), result)

    def on_step_begin(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        """Ends the run after ctrl-C; Tune then stops its trials.

        Raises:
            StoppedError: After ctrl-C. (Tune's own handling would end as if all trials were done.)
        """
        if self._interrupted.is_set():
            raise StoppedError

    def on_trial_complete(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """Counts the trial."""
        self._table.finish(str(trial), trial.last_result)


def trial_name(trial: Trial) -> str:
    """The place of the trial in its sweep and what was varied, such as `0_lr=1e-05,seed=1`."""
    place = str(trial.experiment_tag or "0").split("_", 1)[0]
    varied = ",".join(f"{key.rsplit('/', 1)[-1]}={_short(value)}" for key, value in sorted(_varied(trial).items()))
    return (f"{place}_{varied}" if varied else place)[:60]


def _varied(trial: Trial) -> dict[str, Any]:
    return {str(key): value for key, value in (trial.evaluated_params or {}).items()}


def _short(value: Any) -> str:
    """A value as a folder may be called; small numbers keep their digits, as Tune's own names do not."""
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return "".join(sign if sign.isalnum() or sign in "+-._" else "-" for sign in text)


def trial_folder(trial: Trial) -> str:
    """`trial_` and the trial's name; the same when the sweep is run again."""
    return f"trial_{trial_name(trial)}"


@contextlib.contextmanager
def catch_ctrl_c() -> Iterator[threading.Event]:
    """Turns the first ctrl-C into a set event; a second one works as usual."""
    interrupted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield interrupted
        return
    before = signal.getsignal(signal.SIGINT)

    def interrupt(number: int, frame: Any) -> None:
        interrupted.set()
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)
