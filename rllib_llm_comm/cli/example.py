"""`rllib example`: the tuned experiment files and example scripts that come with the package."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from rllib_llm_comm.errors import UserError, did_you_mean
from rllib_llm_comm.experiments.console import out, say, short_path
from rllib_llm_comm.files import write_atomically

app = typer.Typer(no_args_is_help=True, help="List, copy or run the examples that come with the package.")

# Sub-packages made of the project's top-level folders (see setup.cfg).
_FOLDERS = {"tuned_examples": ".yaml", "examples": ".py"}


def examples() -> dict[str, Path]:
    """Name -> file of all examples, tuned experiment files first."""
    found: dict[str, Path] = {}
    for folder, ending in _FOLDERS.items():
        for path in sorted(_folder(folder).glob(f"*{ending}")):
            if not path.name.startswith("_"):
                found[path.stem if path.stem not in found else path.name] = path
    return found


def find_example(name: str) -> Path:
    """The file of an example.

    Args:
        name: Its name, with or without the ending.

    Raises:
        UserError: If there is none.
    """
    found = examples()
    for key, path in found.items():
        if name in (key, path.name):
            return path
    raise UserError(f"There is no example {name!r}; there are {', '.join(found)}.{did_you_mean(name, found)}")


@app.command("list")
def list_command() -> None:
    """Show all examples with what they do."""
    table = Table("name", "file", "what it does")
    for name, path in examples().items():
        table.add_row(escape(name), escape(path.name), escape(_first_line(path)))
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
    write_atomically(target, source.read_bytes())
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


def _folder(name: str) -> Path:
    try:
        return Path(str(files(f"rllib_llm_comm.{name}")))
    except ModuleNotFoundError:
        raise UserError(
            f"The folder {name!r} is missing in this installation of rllib_llm_comm; install it again."
        ) from None


def _first_line(path: Path) -> str:
    """What an example says about itself: first comment of a YAML file, first docstring line of a script."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return (ast.get_docstring(ast.parse(text)) or "").split("\n")[0]
    comments = [line.lstrip("# ").strip() for line in text.split("\n") if line.startswith("#")]
    return comments[0] if comments else ""
