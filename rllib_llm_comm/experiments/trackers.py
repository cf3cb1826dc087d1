"""Trackers of `rllib train --track`: what each needs, where it writes, and the checks before a run. Imports no Ray."""

from __future__ import annotations

import itertools
import logging
import os
import shlex
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from rllib_llm_comm.core.errors import UserError, did_you_mean, without_passwords
from rllib_llm_comm.experiments.console import one_line, out, say, short_path


class Tracker(NamedTuple):
    """A program that shows runs.

    Attributes:
        needs: Modules that write for it.
        package: The package of the Python index that brings them.
    """

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
    """Refuses trackers that are unknown, not installed, or would have nothing to follow.

    Args:
        names: From `--track`.
        any_training: True if a stage trains.

    Raises:
        UserError: In one sentence.
    """
    for name in names:
        if name not in TRACKERS:
            listed = ", ".join(TRACKERS)
            raise UserError(f"`--track` is {name!r} but must be one of {listed}.{did_you_mean(name, TRACKERS)}")
        if any(find_spec(module) is None for module in TRACKERS[name].needs):
            package = TRACKERS[name].package
            raise UserError(f"`--track {name}` needs a package that is not installed: `pip install {package}`.")
    if names and not any_training:
        raise UserError("`--track` follows stages that train an algorithm, but none of this file does; leave it out.")
    if "wandb" in names and wandb_mode() not in _WANDB_MODES:
        raise UserError(f"`WANDB_MODE` is {wandb_mode()!r} but must be one of {', '.join(_WANDB_MODES)}.")


def open_trackers(names: Sequence[str], folders: Iterable[Path]) -> None:
    """Finds out whether trackers can be written to, and prints the commands that show them.

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
    """The command or the page that shows what a tracker has.

    Args:
        name: The tracker.
        folder: Folder of the results, above the stages.
    """
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

    Args:
        text: The place, or a message that quotes it.
        folder: Folder of the results, above the stages.
    """
    uri = mlflow_uri(folder)
    return without_passwords(text.replace(uri, without_passwords("".join(uri.split()))))


def mlflow_uri(folder: Path) -> str:
    """The place where MLflow writes: `MLFLOW_TRACKING_URI`, or one SQLite file above all results.

    Args:
        folder: Folder of the results, above the stages.
    """
    own = f"sqlite:///{(folder.parent / _MLFLOW_DATABASE).absolute()}"
    return os.environ.get("MLFLOW_TRACKING_URI") or own


def open_mlflow(uri: str):  # type: ignore[no-untyped-def]  # its class is known only where it is installed
    """MLflow's client of a place; its database is made if it is not there.

    Args:
        uri: From `mlflow_uri`.
    """
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
