"""The two consoles, tables on them, one-sentence errors; files and modules that a command is given."""

from __future__ import annotations

import importlib
import re
import sys
import tempfile
import textwrap
import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console, JustifyMethod
from rich.markup import escape as without_markup
from rich.table import Table

from rllib_llm_comm.chat.client import ChatError
from rllib_llm_comm.core.errors import UserError, without_passwords
from rllib_llm_comm.core.places import original_of
from rllib_llm_comm.core.trust import vouch_for

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)

# The last line of a traceback, as Ray hands it on from another process: "package.SomeError: what happened".
_TRACEBACK_END = re.compile(r"^\s*(?:[\w.]+\.)?(\w*(?:Error|Exception|Interrupt))(?:\([\w.]+\))?: (.+)$", re.MULTILINE)

# Characters that move the cursor, begin commands to the terminal, or turn the direction of what follows.
_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


@dataclass
class State:
    """The state of the running command that the printing of errors depends on.

    Attributes:
        verbosity: 0, 1 (`-v`) or 2 (`-vv`).
    """

    verbosity: int = 0


state = State()


class StoppedError(Exception):
    """The user stopped the run (ctrl-C); its results so far are kept."""


class StageFailedError(UserError):
    """A stage went wrong for a reason that is not a setting: one sentence, and the full traceback for `-vv`.

    Attributes:
        details: The traceback of the process in which it happened.
    """

    def __init__(self, sentence: str, details: str = "") -> None:
        super().__init__(sentence)
        self.details = details


def plain(text: str) -> str:
    """A text as it can be shown: nothing in it is markup, and nothing steers the terminal or turns its direction.

    Args:
        text: Anything, also of strangers.
    """
    return without_markup(_STEERING.sub(lambda found: repr(found.group())[1:-1], text))


def say(text: str, style: str | None = None) -> None:
    """Prints one line that may be longer than the terminal is wide; `text` is plain, never markup."""
    out.print(plain(text), style=style, soft_wrap=True)


def say_stand_ins(phrases: Iterable[str]) -> None:
    """Prints what stands in for what the papers use, a line for each.

    Args:
        phrases: As of `agents.stand_ins`.
    """
    for phrase in phrases:
        say(f"Stands in: {phrase}")


def print_table(lines: Sequence[Sequence[str]], caption: str | None = None, optional: Sequence[str] = ()) -> None:
    """Prints a table of texts; one that is wider than the terminal is turned if that makes it narrower.

    Args:
        lines: The first one names the columns.
        caption: The line below it.
        optional: Names of columns that are left out, the first one first, as long as the table is too wide.
    """
    left_out: list[str] = []
    for name in optional:
        if _table_width(lines) <= out.width:
            break
        place = lines[0].index(name)
        lines = [[*line[:place], *line[place + 1 :]] for line in lines]
        left_out.append(name)
    if left_out:
        caption = f"{caption or ''}; too narrow for {', '.join(left_out)}".removeprefix("; ")
    turned = [list(column) for column in zip(*lines, strict=True)]
    if len(lines) == 2:
        turned = [["figure", ""], *turned]
    if (width := _table_width(lines)) > out.width and _table_width(turned) < width:
        lines = turned
    table = _table(lines)
    table.caption = plain(caption) if caption else None
    out.print(table)


def _table(lines: Sequence[Sequence[str]]) -> Table:
    """Words stand to the left, figures to the right."""
    table = Table()
    for name, *column in zip(*lines, strict=True):
        justify: JustifyMethod = "right" if all(map(_is_figure, column)) else "left"
        heading = textwrap.fill(name, _least_width((name, *column)) or 1)
        table.add_column(plain(heading), justify=justify, overflow="fold")
    for line in lines[1:]:
        table.add_row(*map(plain, line))
    return table


def _table_width(lines: Sequence[Sequence[str]]) -> int:
    """Each column has three characters of frame, and the table one more."""
    return sum(_least_width(column) + 3 for column in zip(*lines, strict=True)) + 1


def _least_width(column: Sequence[str]) -> int:
    """Headings may be broken between words, cells not at all."""
    return max(map(len, (*column[0].split(), *column[1:])))


def _is_figure(text: str) -> bool:
    return bool(re.match(r"[-+]?\d", text)) or text == ""


def say_error(error: BaseException, verbosity: int = 0) -> None:
    """Prints an error as one sentence, with its traceback at verbosity 2.

    Args:
        error: The exception.
        verbosity: 0, 1 (`-v`) or 2 (`-vv`).
    """
    if verbosity >= 2:
        details = error.details if isinstance(error, StageFailedError) and error.details else ""
        told = without_passwords(details or "".join(traceback.format_exception(error)))
        err.print(plain(told), soft_wrap=True)
    if isinstance(error, UserError):
        sentence = str(error)
    else:
        name = "" if isinstance(error, ChatError) else f"{type(error).__name__}: "
        sentence = f"{name}{one_line(str(error))}"
    err.print(f"[bold red]Error:[/] {plain(without_passwords(sentence))}", soft_wrap=True)


def one_line(text: str, most: int = 400) -> str:
    """A text without line breaks, cut to `most` characters."""
    joined = " ".join(text.split())
    return joined if len(joined) <= most else f"{joined[:most].rstrip()} ..."


def cause_of(error: BaseException | str) -> tuple[str, str]:
    """Finds what really happened below the wrappers that Ray and Tune put around an error.

    Args:
        error: An exception, or the text of a traceback from another process.

    Returns:
        Name of the innermost error's class, and its message on one line.
    """
    if isinstance(error, BaseException):
        seen = error
        while True:
            if isinstance(seen, UserError):
                break
            inner = getattr(seen, "cause", None) or seen.__cause__
            if not isinstance(inner, BaseException):
                break
            seen = inner
        if isinstance(seen, UserError) and not type(seen).__name__.startswith("RayTaskError"):
            return "UserError", str(seen)
        error = str(seen) if "Traceback" in str(seen) else f"{type(seen).__name__}: {one_line(str(seen))}"
    ends = _TRACEBACK_END.findall(error)
    if not ends:
        return "Error", one_line(error)
    users = [end for end in ends if end[0] == "UserError"]
    name, message = users[-1] if users else ends[-1]
    return name, one_line(message)


def short_path(path: str | Path) -> str:
    """A path relative to the current folder where it lies below it; of a copy from a store the URI there."""
    absolute = Path(path).absolute()
    if uri := original_of(absolute):
        return uri
    try:
        return str(absolute.relative_to(Path.cwd()))
    except ValueError:
        return str(absolute)


def require_writable(files: Mapping[str, Path | None]) -> None:
    """Refuses files that could not be written in the end.

    Args:
        files: By option; `None` where nothing is written. Folders above a file need not be there yet.

    Raises:
        UserError: If one is a folder or something else that is no file, or its folder takes no files.
    """
    for option, path in files.items():
        if path is None:
            continue
        try:
            if path.exists() and not path.is_file():
                kind = "is a folder" if path.is_dir() else "is no ordinary file"
                raise UserError(f"{option} is {str(path)!r}, which {kind}; give the path of a file.")
            folder = next(above for above in path.absolute().parents if above.exists())
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise UserError(
                f"{option} is {str(path)!r}, which cannot be written ({error.strerror}); give another path."
            ) from error


def import_modules(modules: Sequence[str] | None) -> None:
    """Imports modules that register a user's own environments, algorithms or teachers.

    From then on settings may name what is in them, such as a class of callbacks.

    Args:
        modules: Dotted names; the current folder is searched too.

    Raises:
        UserError: If one cannot be imported.
    """
    vouch_for(modules or ())
    for module in modules or []:
        if str(Path.cwd()) not in sys.path:
            sys.path.insert(0, str(Path.cwd()))
        try:
            importlib.import_module(module)
        except UserError:
            raise
        except Exception as error:
            reason = f"{type(error).__name__}: {one_line(str(error))}"
            raise UserError(f"`--import` module {module!r} cannot be imported: {reason}") from error
