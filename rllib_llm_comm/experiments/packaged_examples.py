"""The tuned experiment files and example scripts that come with the package."""

from __future__ import annotations

import ast
from importlib.resources import files
from pathlib import Path

from rllib_llm_comm.errors import UserError, did_you_mean

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


def _folder(name: str) -> Path:
    try:
        return Path(str(files(f"rllib_llm_comm.{name}")))
    except ModuleNotFoundError:
        raise UserError(
            f"The folder {name!r} is missing in this installation of rllib_llm_comm; install it again."
        ) from None


def first_line(path: Path) -> str:
    """The description of an example: first comment of a YAML file, first docstring line of a script.

    Args:
        path: The example.
    """
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return (ast.get_docstring(ast.parse(text)) or "").split("\n")[0]
    comments = [line.lstrip("# ").strip() for line in text.split("\n") if line.startswith("#")]
    return comments[0] if comments else ""
