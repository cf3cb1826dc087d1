"""The `rllib` command."""

from __future__ import annotations

import io
import os
import signal
import sys
from typing import Annotated, Any, NoReturn

import typer

import rllib_llm_comm
from rllib_llm_comm.chat.chat_model import ChatError
from rllib_llm_comm.cli import check, clone, evaluate, planning, train
from rllib_llm_comm.cli.options import check_options
from rllib_llm_comm.core.errors import UserError, shown
from rllib_llm_comm.core.files import disk_fault
from rllib_llm_comm.core.places import is_text
from rllib_llm_comm.experiments.console import StoppedError, err, say, say_error, state

cli = typer.Typer(
    name="rllib",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_COMMANDS: dict[str, Any] = {
    "train": train.train_app,
    "evaluate": evaluate.evaluate_command,
    "replay": evaluate.replay_command,
    "play": evaluate.play_command,
    "crossplay": evaluate.crossplay_command,
    "calibrate": check.calibrate_command,
    "clone": clone.clone_command,
    "export": evaluate.export_command,
    "study": train.study_app,
    "report": train.report_command,
    "runs": train.runs_command,
    "manual": planning.manual_command,
    "officer": clone.officer_app,
    "planning": planning.planning_app,
    "list": check.list_names_command,
    "example": check.example_app,
    "check": check.check_app,
    "schema": check.schema_command,
    "zoo": evaluate.zoo_app,
}
for _name, _command in _COMMANDS.items():
    if isinstance(_command, typer.Typer):
        cli.add_typer(_command, name=_name)
    else:
        cli.command(_name)(_command)
check_options(cli)


def _show_version(asked: bool) -> None:
    if asked:
        say(f"rllib_llm_comm {rllib_llm_comm.__version__}")
        raise typer.Exit


@cli.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """Language-model agents that talk, trained with Ray RLlib.

    Begin with `rllib example run verco`.
    """


def app() -> None:
    """Entry point of the console script: errors become one sentence and exit code 1, ctrl-C and SIGTERM 130."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what is cleared up after ctrl-C is after SIGTERM, too
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a name that the terminal cannot show is no error
    try:
        _check_process()
        cli()
    except (UserError, ChatError) as error:
        say_error(error, state.verbosity)
        sys.exit(1)
    except (StoppedError, KeyboardInterrupt):
        _say_stopped()
    except SystemExit as error:
        if error.code == 130:  # typer has seen the interrupt first
            _say_stopped()
        raise
    except Exception as error:
        if isinstance(error, OSError) and (fault := disk_fault(error)):
            say_error(UserError(f"{fault[0].upper()}{fault[1:]} and type the same command again."), state.verbosity)
            sys.exit(1)
        if "running low on memory" in str(error):  # Ray has ended workers, and Tune tells it as its own surprise
            told = "The machine ran out of memory, so Ray ended workers; close other programs or take a lower"
            say_error(UserError(f"{told} `--ray-num-cpus`, and type the same command again."), state.verbosity)
            sys.exit(1)
        say_error(error, state.verbosity)
        err.print("This looks like a bug of the program; run again with -vv for the traceback.")
        sys.exit(1)


def _check_process() -> None:
    """Refuses paths that are not UTF-8: pages, records and Ray cannot name them.

    Raises:
        UserError: If one was given, or the current folder or the user's home is such a path.
    """
    for text in (os.getcwd(), *sys.argv[1:], os.path.expanduser("~")):
        if not is_text(text):
            raise UserError(f"{shown(text)} is not UTF-8, as paths and other words of commands must be; rename it.")


def _say_stopped() -> NoReturn:
    err.print("Stopped. What is done so far is kept; type the same command to continue.")
    sys.exit(130)


if __name__ == "__main__":
    app()
