"""Trackers of `rllib train --track`: checks before a run, and Tune's callbacks that write to them."""

from __future__ import annotations

import itertools
import json
import logging
import os
import shlex
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ray.tune.logger import LoggerCallback, TBXLoggerCallback
from ray.tune.utils import flatten_dict

from rllib_llm_comm.core.errors import UserError, one_line, require_choice, without_passwords
from rllib_llm_comm.evaluation.study_results import ITERATION
from rllib_llm_comm.experiments.console import out, say, short_path
from rllib_llm_comm.experiments.stages import Stage

if TYPE_CHECKING:
    from ray.tune.experiment import Trial


class Tracker(NamedTuple):
    """A program that shows runs: the modules that write for it, and the package of the index that brings them."""

    needs: tuple[str, ...]
    package: str


# `mlflow-skinny` alone has the module `mlflow` but no database.
TRACKERS = {
    "tensorboard": Tracker(("tensorboardX",), "tensorboardX"),
    "mlflow": Tracker(("mlflow", "sqlalchemy"), "mlflow"),
    "wandb": Tracker(("wandb",), "wandb"),
}
_WANDB_MODES = ("offline", "online", "disabled")
_MLFLOW_DATABASE = "mlflow.db"


def check_trackers(names: Sequence[str], *, any_training: bool) -> None:
    """Refuses trackers that are unknown, not installed, or would have nothing to follow as no stage trains."""
    for name in names:
        require_choice("--track", name, TRACKERS)
        if any(find_spec(module) is None for module in TRACKERS[name].needs):
            package = TRACKERS[name].package
            raise UserError(f"`--track {name}` needs a package that is not installed: `pip install {package}`.")
    if names and not any_training:
        raise UserError("`--track` follows stages that train an algorithm, but none of this file does; omit it.")
    if "wandb" in names:
        require_choice("WANDB_MODE", wandb_mode(), _WANDB_MODES)


def open_trackers(names: Sequence[str], folders: Iterable[Path]) -> None:
    """Finds out whether checked trackers can be written to, and prints the commands that show them.

    Args:
        names: Checked names.
        folders: Folders of results, above the stages.

    Raises:
        UserError: If one cannot be reached.
    """
    for name, folder in itertools.product(dict.fromkeys(names), sorted(folders)):
        try:
            with out.status(f"opening {name}"):
                if name == "mlflow":
                    open_mlflow(mlflow_uri(folder)).search_experiments(max_results=1)
                elif name == "wandb" and wandb_mode() == "online":
                    _require_login()
        except UserError:
            raise
        except Exception as error:  # a database's or a server's, of whatever library it uses
            reason = one_line(shown_place(str(error), folder), 200)
            place = shown_place(mlflow_uri(folder), folder) if name == "mlflow" else name
            # What the library raised quotes the address with its password.
            raise UserError(f"`--track {name}`: {place} cannot be opened ({reason}).") from None
        say(f"Follow it: {show_command(name, folder)}")


def show_command(name: str, folder: Path) -> str:
    """The command or the page that shows what a tracker has of the results in a folder, above the stages."""
    here, place = shlex.quote(short_path(folder)), shown_place(mlflow_uri(folder), folder)
    if name == "mlflow" and place.startswith(("http://", "https://")):
        return place  # a server shows its runs itself
    if name == "mlflow":
        return f"mlflow ui --backend-store-uri {shlex.quote(place)}"
    if name == "wandb":
        return "on the page that it prints" if wandb_mode() == "online" else f"wandb sync {here}/wandb/offline-run-*"
    hint = "" if find_spec("tensorboard") else " (after `pip install tensorboard`)"
    return f"tensorboard --logdir {here}{hint}"


def shown_place(text: str, folder: Path) -> str:
    """A text in which MLflow's place has lost its user and password, even where it is no right address.

    `text` is the place, or a message that quotes it; `folder` lies above the stages.
    """
    uri = mlflow_uri(folder)
    return without_passwords(text.replace(uri, without_passwords("".join(uri.split()))))


def mlflow_uri(folder: Path) -> str:
    """The place where MLflow writes: `MLFLOW_TRACKING_URI`, or one SQLite file above all results (`folder`)."""
    own = f"sqlite:///{(folder.parent / _MLFLOW_DATABASE).absolute()}"
    return os.environ.get("MLFLOW_TRACKING_URI") or own


def open_mlflow(uri: str):  # type: ignore[no-untyped-def]  # its class is known only where it is installed
    """MLflow's client of a place; its database is made if it is not there."""
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")  # its own seven take minutes
    from mlflow import MlflowClient

    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)  # they tell each table that they make
    if uri.startswith("sqlite:///"):
        Path(uri.removeprefix("sqlite:///")).parent.mkdir(parents=True, exist_ok=True)
    return MlflowClient(tracking_uri=uri)


def wandb_mode() -> str:
    """The mode of Weights & Biases: `WANDB_MODE`, or "offline", so that nothing leaves the machine unasked."""
    return os.environ.get("WANDB_MODE") or "offline"


def _require_login() -> None:
    import wandb

    if not wandb.login(prompt=False):
        raise UserError("`WANDB_MODE` is 'online' but nobody is logged in; type `wandb login`, or set it to 'offline'.")


# Of Tune's bookkeeping: no figures of the training.
_LEFT_OUT = ("config", "pid", "timestamp")
_LONGEST_TEXT = 250
# What MLflow takes in one request.
_MOST_PARAMS, _MOST_METRICS = 100, 1000


def tracker_callbacks(stage: Stage) -> list[LoggerCallback]:
    """The callbacks of a stage's trackers."""
    made: dict[str, Callable[[], LoggerCallback]] = {
        "tensorboard": TBXLoggerCallback,
        "mlflow": lambda: MLflowRuns(stage),
        "wandb": lambda: WandbRuns(stage),
    }
    return [made[name]() for name in dict.fromkeys(stage.track)]


def numbers_of(result: Mapping[str, Any]) -> dict[str, float]:
    """All numbers of a result by path, without the settings."""
    flat = flatten_dict({key: value for key, value in result.items() if key not in _LEFT_OUT})
    return {key: float(value) for key, value in flat.items() if isinstance(value, Real) and not isinstance(value, bool)}


def settings_of(stage: Stage, trial: Trial) -> dict[str, str]:
    """The settings of a trial, whose search is resolved, as texts, by path."""
    told = {"run": stage.experiment.run, "stop": stage.experiment.stop, "config": trial.config}
    return {key: _text(value) for key, value in flatten_dict(told).items()}


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=lambda thing: type(thing).__name__)
    return one_line(text, _LONGEST_TEXT)


class RunLogger(LoggerCallback, ABC):
    """Writes results to a tracker. One that fails is told once and left: the training needs it for nothing."""

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
    """One MLflow run per trial, in an experiment named as the results' folder."""

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
    """One Weights & Biases run per trial, offline unless `WANDB_MODE` says otherwise."""

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
