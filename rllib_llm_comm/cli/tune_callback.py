"""Hands Tune's results to the table; names and folders of trials. Imports Ray: import it late."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ray.tune.callback import Callback

if TYPE_CHECKING:
    from ray.tune.experiment import Trial

    from rllib_llm_comm.cli.progress import TrainingTable


class TableCallback(Callback):
    """Prints every result of every trial.

    Args:
        table: Where.
    """

    def __init__(self, table: TrainingTable) -> None:
        self._table = table

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: dict[str, Any], **info: Any
    ) -> None:
        """Prints the result."""
        self._table.show(str(trial), result)

    def on_trial_complete(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """Counts the trial."""
        self._table.finish(str(trial))


def trial_name(trial: Trial) -> str:
    """The place of the trial in its sweep and what was varied, such as `0_seed=1`."""
    tag = str(trial.experiment_tag or "0").replace("/", "-").replace("@", "")
    return tag[:60]


def trial_folder(trial: Trial) -> str:
    """`trial_` and the trial's name; the same when the sweep is run again."""
    return f"trial_{trial_name(trial)}"
