"""`rllib example`: the tuned experiment files and example scripts that come with the package."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.files import disk_error, write_atomically
from rllib_llm_comm.experiments.console import out, plain, say, short_path
from rllib_llm_comm.experiments.packaged_examples import description, examples, find_example

app = typer.Typer(no_args_is_help=True, help="List, copy or run the examples that come with the package.")


@app.command("list")
def list_command() -> None:
    """Show all examples with what they do."""
    table = Table()
    table.add_column("name", no_wrap=True)
    table.add_column("what it does", overflow="fold")
    for name, path in examples().items():
        table.add_row(plain(name), plain(description(path)))
    out.print(table)
    say("rllib example run NAME runs one, rllib example get NAME copies it here.")


@app.command("get")
def get_command(
    name: Annotated[str, typer.Argument(help="Name of the example.")],
    to: Annotated[Path | None, typer.Option("--out", help="File or folder to copy it to.")] = None,
) -> None:
    """Copy an example to the current folder, to be changed and run.

    Example:

        rllib example get verco && rllib train file verco.yaml
    """
    source = find_example(name)
    target = to or Path.cwd()
    if target.is_dir():
        target = target / source.name
    if target.exists():
        raise UserError(f"{short_path(target)} exists already; move it away or choose another place with `--out`.")
    try:
        write_atomically(target, source.read_bytes())
    except OSError as error:
        raise disk_error(error, f"`--out`: nothing can be copied to {str(target)!r}", "give another place") from error
    say(f"Copied to {short_path(target)}")


@app.command("run", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def run_command(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of the example.")],
) -> None:
    """Run an example; further options go to `rllib train file`, `rllib study file` or to the script.

    Examples:

        rllib example run verco

        rllib example run verco --seed 1 --experiment-name verco-seed1
    """
    path = find_example(name)
    if path.suffix == ".py":
        code = subprocess.run([sys.executable, str(path), *context.args], check=False, env=dict(os.environ)).returncode
        raise typer.Exit(code)
    from rllib_llm_comm.experiments.study_file import is_study

    context.find_root().command(["study" if is_study(path) else "train", "file", str(path), *context.args])
