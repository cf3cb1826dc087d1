"""Callbacks of Tune that write results to trackers. Imports Ray: import it late.

MLflow and Weights & Biases are written to by their own clients. Ray 2.60's callbacks for them write each of the
three hundred numbers of a result by itself (MLflow), or start two processes per trial and hand a key to Ray's log files
(W&B).
"""

from __future__ import annotations

import json
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ray.tune.logger import LoggerCallback, TBXLoggerCallback
from ray.tune.utils import flatten_dict

from rllib_llm_comm.evaluation.curve_rows import ITERATION
from rllib_llm_comm.experiments.console import one_line, say
from rllib_llm_comm.experiments.trackers import mlflow_uri, open_mlflow, shown_place, wandb_mode

if TYPE_CHECKING:
    from ray.tune.experiment import Trial

    from rllib_llm_comm.experiments.stages import Stage

# Of Tune's bookkeeping: no figures of the training.
_LEFT_OUT = ("config", "pid", "timestamp")
_LONGEST_TEXT = 250
# What MLflow takes in one request.
_MOST_PARAMS, _MOST_METRICS = 100, 1000


def tracker_callbacks(stage: Stage) -> list[LoggerCallback]:
    """The callbacks of a stage's trackers.

    Args:
        stage: The stage.
    """
    made: dict[str, Callable[[], LoggerCallback]] = {
        "tensorboard": TBXLoggerCallback,
        "mlflow": lambda: MLflowRuns(stage),
        "wandb": lambda: WandbRuns(stage),
    }
    return [made[name]() for name in dict.fromkeys(stage.track)]


def numbers_of(result: Mapping[str, Any]) -> dict[str, float]:
    """All numbers of a result by path, without the settings.

    Args:
        result: As Tune gives it.
    """
    flat = flatten_dict({key: value for key, value in result.items() if key not in _LEFT_OUT})
    return {key: float(value) for key, value in flat.items() if isinstance(value, Real) and not isinstance(value, bool)}


def settings_of(stage: Stage, trial: Trial) -> dict[str, str]:
    """The settings of a trial as texts, by path.

    Args:
        stage: Its stage.
        trial: The trial, whose search is resolved.
    """
    told = {"run": stage.experiment.run, "stop": stage.experiment.stop, "config": trial.config}
    return {key: _text(value) for key, value in flatten_dict(told).items()}


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=lambda thing: type(thing).__name__)
    return one_line(text, _LONGEST_TEXT)


class RunLogger(LoggerCallback, ABC):
    """Writes results to a tracker. One that fails is told once and left: the training needs it for nothing.

    Args:
        stage: The stage.

    Attributes:
        tracker: Its name.
    """

    tracker = ""

    def __init__(self, stage: Stage) -> None:
        super().__init__()
        self.stage = stage
        self._open: dict[str, Any] = {}
        self._lost = False

    @abstractmethod
    def begin(self, trial: Trial) -> Any:
        """Opens a run of the tracker."""

    @abstractmethod
    def write(self, run: Any, step: int, numbers: Mapping[str, float]) -> None:
        """Writes the numbers of an iteration."""

    @abstractmethod
    def end(self, run: Any, status: str) -> None:
        """Closes a run: "finished", "failed", or "stopped" if it may go on later."""

    def log_trial_start(self, trial: Trial) -> None:
        """Opens the trial's run."""
        if trial.trial_id not in self._open:
            self._try(lambda: self._open.update({trial.trial_id: self.begin(trial)}))

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        """Writes a result."""
        self.log_trial_start(trial)
        self._try(lambda: self.write(self._open[trial.trial_id], int(result[ITERATION]), numbers_of(result)))

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        """Closes the trial's run."""
        run = self._open.pop(trial.trial_id, None)
        if run is not None:
            self._try(lambda: self.end(run, "failed" if failed else "finished"))

    def on_experiment_end(self, trials: list[Trial], **info: Any) -> None:
        """Closes runs of trials that were stopped."""
        for run in self._open.values():
            self._try(partial(self.end, run, "stopped"))
        self._open.clear()

    def _try(self, action: Callable[[], Any]) -> None:
        if self._lost:
            return
        try:
            action()
        except Exception as error:
            self._lost = True
            say(
                f"`--track {self.tracker}` failed and is left out from here on; the training goes on, and its figures "
                f"are in result.json: {one_line(shown_place(str(error), self.stage.folder.parent), 200)}",
                "red",
            )


class MLflowRuns(RunLogger):
    """One MLflow run per trial, in an experiment named as the results' folder.

    Args:
        stage: The stage.
    """

    tracker = "mlflow"

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self._client = open_mlflow(mlflow_uri(stage.folder.parent))

    def begin(self, trial: Trial) -> str:
        """Opens a run; that of a trial that goes on is continued."""
        experiment, place = self._experiment(), str(Path(trial.storage.trial_fs_path))
        known = self._client.search_runs([experiment], f"tags.trial_id = '{trial.trial_id}'", max_results=1)
        if known:
            run_id = str(known[0].info.run_id)
            self._client.update_run(run_id, status="RUNNING")
            return run_id
        run = self._client.create_run(
            experiment,
            run_name=f"{self.stage.name}/{trial}",
            tags={"trial_id": trial.trial_id, "stage": self.stage.name, "folder": place},
        )
        self._log_settings(run.info.run_id, settings_of(self.stage, trial))
        return str(run.info.run_id)

    def write(self, run: str, step: int, numbers: Mapping[str, float]) -> None:
        """Writes the numbers of an iteration together: one by one they take seconds."""
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        metrics = [Metric(_allowed(key), value, now, step) for key, value in numbers.items()]
        for first in range(0, len(metrics), _MOST_METRICS):
            self._client.log_batch(run, metrics=metrics[first : first + _MOST_METRICS])

    def end(self, run: str, status: str) -> None:
        """Closes a run."""
        self._client.set_terminated(run, {"finished": "FINISHED", "failed": "FAILED", "stopped": "KILLED"}[status])

    def _experiment(self) -> str:
        name = self.stage.folder.parent.name
        found = self._client.get_experiment_by_name(name)
        return str(found.experiment_id if found else self._client.create_experiment(name))

    def _log_settings(self, run: str, settings: Mapping[str, str]) -> None:
        from mlflow.entities import Param

        told = [Param(_allowed(key), value) for key, value in settings.items()]
        for first in range(0, len(told), _MOST_PARAMS):
            self._client.log_batch(run, params=told[first : first + _MOST_PARAMS])


def _allowed(key: str) -> str:
    """A key of letters, digits and the signs that MLflow allows."""
    return "".join(sign if sign.isalnum() or sign in "_-. :/" else "_" for sign in key)


class WandbRuns(RunLogger):
    """One Weights & Biases run per trial, offline unless `WANDB_MODE` says otherwise.

    Args:
        stage: The stage.
    """

    tracker = "wandb"

    def begin(self, trial: Trial) -> Any:
        """Opens a run beside the others of this process."""
        import wandb

        folder = self.stage.folder.parent.absolute()
        return wandb.init(
            dir=str(folder),
            mode=wandb_mode(),
            project=os.environ.get("WANDB_PROJECT") or folder.name,
            group=self.stage.name,
            name=f"{self.stage.name}/{trial}",
            id=trial.trial_id,
            resume="allow" if wandb_mode() == "online" else None,
            reinit="create_new",
            config=settings_of(self.stage, trial),
            settings=wandb.Settings(silent=True, console="off"),
        )

    def write(self, run: Any, step: int, numbers: Mapping[str, float]) -> None:
        """Writes the numbers of an iteration."""
        run.log(dict(numbers), step=step)

    def end(self, run: Any, status: str) -> None:
        """Closes a run; its exit code is 0 only if it has finished."""
        run.finish(exit_code=int(status != "finished"))
