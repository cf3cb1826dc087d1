"""The tuned experiment files and example scripts that come with the package."""

from __future__ import annotations

import ast
import itertools
import re
from importlib.resources import files
from pathlib import Path

from rllib_llm_comm.core.errors import UserError, names_and_hint
from rllib_llm_comm.core.files import read_text

# Sub-packages made of the project's top-level folders (see setup.cfg).
_FOLDERS = {"tuned_examples": ".yaml", "examples": ".py"}
SENTENCE_END = re.compile(r"(?<=[.?!])\s+(?=[A-Z`])")
"""Between two sentences of a description."""


def examples() -> dict[str, Path]:
    """Name -> file of all examples, tuned experiment files first."""
    found: dict[str, Path] = {}
    for folder, ending in _FOLDERS.items():
        for path in sorted(_folder(folder).glob(f"*{ending}")):
            if not path.name.startswith("_"):
                found[path.stem if path.stem not in found else path.name] = path
    return found


def find_example(name: str) -> Path:
    """The file of an example by its name, with or without the ending.

    Raises:
        UserError: If there is none.
    """
    found = examples()
    for key, path in found.items():
        if name in (key, path.name):
            return path
    raise UserError(f"There is no example {name!r}; there are {names_and_hint(name, found)}")


def _folder(name: str) -> Path:
    try:
        return Path(str(files(f"rllib_llm_comm.{name}")))
    except ModuleNotFoundError:
        raise UserError(
            f"The folder {name!r} is missing in this installation of rllib_llm_comm; install it again."
        ) from None


def description(path: Path) -> str:
    """The first sentence of an example's first comment or docstring, and the second one where the first asks."""
    text = read_text(path)
    if path.suffix == ".py":
        words = (ast.get_docstring(ast.parse(text)) or "").split("\n\n")[0]
    else:
        lines = itertools.takewhile(lambda line: line.startswith("#"), text.split("\n"))
        words = " ".join(line.lstrip("# ") for line in lines)
    sentences = SENTENCE_END.split(" ".join(words.split()))
    return " ".join(sentences[: 2 if sentences[0].endswith("?") else 1])
