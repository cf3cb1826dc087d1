"""The console: sentences, tables, errors in one line, and the progress of training and of other work."""

from __future__ import annotations

import importlib
import math
import re
import sys
import tempfile
import textwrap
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console, JustifyMethod
from rich.markup import escape as without_markup
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from rllib_llm_comm.chat.chat_model import ChatError
from rllib_llm_comm.core.errors import UserError, one_line, without_passwords
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
    """The state of the running command that the printing of errors depends on: verbosity 0, 1 (`-v`) or 2 (`-vv`)."""

    verbosity: int = 0


state = State()


class StoppedError(Exception):
    """The user stopped the run (ctrl-C); its results so far are kept."""


class StageFailedError(UserError):
    """A stage went wrong for a reason that is not a setting: a sentence, and for `-vv` the traceback of its process."""

    def __init__(self, sentence: str, details: str = "") -> None:
        super().__init__(sentence)
        self.details = details


def plain(text: str) -> str:
    """Any text, also of strangers, as it can be shown: without markup, and without what steers the terminal."""
    return without_markup(_STEERING.sub(lambda found: repr(found.group())[1:-1], text))


def say(text: str, style: str | None = None) -> None:
    """Prints one line that may be longer than the terminal is wide; `text` is plain, never markup."""
    out.print(plain(text), style=style, soft_wrap=True)


def say_stand_ins(phrases: Iterable[str]) -> None:
    """Prints what stands in for what the papers use (`evaluation.stand_ins`), a line for each."""
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
    """Prints an error as one sentence, with its traceback at verbosity 2."""
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
    """Refuses files, by option, that could not be written in the end; folders above a file need not be there yet.

    Raises:
        UserError: If one is a folder or something else that is no file, its folder takes no files, or two options
            name the same file.
    """
    known: dict[Path, str] = {}
    for option, path in files.items():
        if path is None:
            continue
        if (other := known.setdefault(path.absolute(), option)) != option:
            raise UserError(f"`{option}` is {str(path)!r}, which `{other}` writes, too; give files of different names.")
        try:
            if path.exists() and not path.is_file():
                kind = "is a folder" if path.is_dir() else "is no ordinary file"
                raise UserError(f"`{option}` is {str(path)!r}, which {kind}; give the path of a file.")
            folder = next(above for above in path.absolute().parents if above.exists())
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise UserError(
                f"`{option}` is {str(path)!r}, which cannot be written ({error.strerror}); give another path."
            ) from error


def import_modules(modules: Sequence[str] | None) -> None:
    """Imports modules, by dotted name, that register a user's own environments, algorithms or teachers.

    From then on settings may name what is in them, such as a class of callbacks. The current folder is searched, too.

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
            hint = ""
            if module.endswith(".py"):
                hint = f"; a module has no ending: `--import {module[:-3]}`"
            elif isinstance(error, ModuleNotFoundError) and error.name == module.split(".")[0]:
                hint = "; modules are sought in the current folder, in PYTHONPATH and among what is installed"
            raise UserError(f"`--import` module {module!r} cannot be imported: {reason}{hint}.") from error


@dataclass(frozen=True)
class Column:
    """A column of the table.

    Attributes:
        title: Heading.
        paths: Places in a result where the figure may be, first match first; `*` stands for any module.
        form: Format of a finite number.
        always: True if the column stands even if the first result lacks the figure.
        mean: True if figures per agent are averaged; otherwise they are summed.
        beside: A figure with which the column stands, too: that of a first result in which no episode has ended.
    """

    title: str
    paths: tuple[str, ...]
    form: str
    always: bool = False
    mean: bool = False
    beside: str = ""

    def stands(self, first: Mapping[str, Any]) -> bool:
        """True if a table that begins with this result has the column."""
        return self.always or self.value(first) is not None or lookup(first, self.beside) is not None

    def value(self, result: Mapping[str, Any]) -> float | None:
        """The figure in a result, or `None`."""
        for path in self.paths:
            found = lookup(result, path, self.mean)
            if found is not None:
                return found
        return None

    def text(self, result: Mapping[str, Any]) -> str:
        """The figure as the table shows it, right-aligned."""
        value = self.value(result)
        width = max(len(self.title), 7)
        if value is None or not math.isfinite(value):
            return "-".rjust(width)
        return format(value, self.form).rjust(width)


ITERATION = Column("iter", ("training_iteration",), ",.0f", always=True)
SECONDS = Column("seconds", ("time_this_iter_s",), ".1f", always=True)
_ACTING = (
    Column(
        "decisions",
        ("env_runners/num_agent_steps_sampled_lifetime", "num_env_steps_sampled_lifetime"),
        ",.0f",
        True,
    ),
    # The first to end are the quickest: a mean over few episodes says little.
    Column("episodes", ("env_runners/num_episodes_lifetime",), ",.0f", always=True),
    # Per agent, as `rllib evaluate` gives it; `env_runners/episode_return_mean` is the sum over agents.
    Column(
        "return",
        ("env_runners/agent_episode_returns_mean", "env_runners/episode_return_mean"),
        ".3f",
        True,
        mean=True,
    ),
    Column("success", ("env_runners/success_rate",), ".2f", beside="env_runners/team_return_mean"),
    Column("length", ("env_runners/episode_game_steps", "env_runners/episode_len_mean"), ".0f", always=True),
    Column("entropy", ("learners/*/entropy",), ".3f"),
    Column("KL", ("learners/*/kl", "learners/*/mean_kl_loss"), ".4f"),
    # Of a planner, judge or teacher that is a chat model; since the training began.
    Column("requests", ("env_runners/chat/requests",), ",.0f"),
    Column("tokens sent", ("env_runners/chat/input_tokens",), ",.0f"),
    Column("tokens received", ("env_runners/chat/output_tokens",), ",.0f"),
    Column("cost", ("env_runners/chat/cost",), ".4g"),
)
_LABELS = (
    Column("train loss", ("message_sft/train_loss",), ".3f", always=True),
    Column("held-out loss", ("message_sft/held_out_loss",), ".3f", always=True),
    Column("token accuracy", ("message_sft/held_out_token_accuracy",), ".3f", always=True),
    Column("exact match", ("message_sft/exact_match",), ".2f", always=True),
    Column("same request", ("message_sft/same_request",), ".2f", always=True),
)
_DEMONSTRATIONS = (
    Column("train loss", ("action_sft/train_loss",), ".3f", always=True),
    Column("held-out loss", ("action_sft/log_loss",), ".3f", always=True),
    Column("held-out top-1", ("action_sft/top_1",), ".3f", always=True),
)
_SUPERVISED = {"message_sft": _LABELS, "action_sft": _DEMONSTRATIONS}
_LEGENDS = {
    "message_sft": "Losses in nats per token. All but the train loss is of observations that are never learned from: "
    "the share of the teacher's tokens that are the likeliest, and of messages written for them the shares that are "
    "the teacher's word by word, and that ask for the same thing (-: not judged so far).",
    "action_sft": "Losses in nats per choice. Of observations that are never learned from, held-out top-1 is the share "
    "in which the likeliest action is one that the player chose.",
}
"""What the columns of a table mean that says nothing by its headings alone."""
_WHOLE_RUN = float("inf")  # seconds
_LONG = 600.0  # seconds
_OFFLINE = (Column("loss", ("learners/*/total_loss",), ".3f", always=True),)


def lookup(result: Mapping[str, Any], path: str, mean: bool = False) -> float | None:
    """A number in a nested result.

    Args:
        result: A Tune result.
        path: Keys joined by `/`; `*` is any key but `__all_modules__`.
        mean: True if a mapping at the end of the path (figures per agent) is averaged, not summed.
    """
    nodes: list[Any] = [result]
    for key in path.split("/"):
        following: list[Any] = []
        for node in nodes:
            if isinstance(node, Mapping):
                if key == "*":
                    following += [value for name, value in node.items() if name != "__all_modules__"]
                elif key in node:
                    following.append(node[key])
        nodes = following
    for node in nodes:
        values = list(node.values()) if isinstance(node, Mapping) else [node]
        try:
            total = sum(float(value) for value in values)
        except (TypeError, ValueError):
            continue
        if values:
            return total / len(values) if mean else total
    return None


def columns_of(result: Mapping[str, Any]) -> list[Column]:
    """The columns that fit a first result: of an algorithm that acts, or of one that learns from labels."""
    if lookup(result, "env_runners/num_env_steps_sampled") is not None:
        middle: tuple[Column, ...] = _ACTING
    else:
        middle = next((columns for key, columns in _SUPERVISED.items() if key in result), _OFFLINE)
    return [ITERATION, *(c for c in middle if c.stands(result)), SECONDS]


def summary_of(result: Mapping[str, Any]) -> dict[str, float]:
    """The figures of a result that the table would show, by title."""
    pairs = ((column.title, column.value(result)) for column in columns_of(result))
    return {title: round(value, 6) for title, value in pairs if value is not None and math.isfinite(value)}


def span(seconds: float) -> str:
    """A long time in words, such as "2 h 05 min"."""
    hours, minutes = divmod(max(1, round(seconds / 60)), 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min"


def fraction_done(result: Mapping[str, Any], stop: Mapping[str, Any]) -> float:
    """The progress of a trial in [0, 1], by the stop criteria that only grow (iterations, steps, time).

    A threshold on a return says nothing about progress; it counts only where nothing else is given.
    """
    counters = {k: v for k, v in stop.items() if k.endswith(("iteration", "decisions", "_lifetime", "_s")) and v}
    shares = [(lookup(result, key) or 0.0) / value for key, value in (counters or stop).items() if value]
    return min(1.0, max([0.0, *shares]))


class TrainingTable:
    """Prints results as they come, and moves a bar; with several trials, lines name theirs."""

    def __init__(self, stop: Mapping[str, Any], trials: int = 1) -> None:
        self._stop = stop
        self._trials = max(1, trials)
        self._columns: list[Column] = []
        self._done: dict[str, float] = {}
        self._first: tuple[float, float] | None = None  # when the first result came, and what was done then
        self._told_time = False
        self._bar = make_bar()
        self._task = self._bar.add_task("starting the algorithm", total=1.0)

    def __enter__(self) -> TrainingTable:
        self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.stop()

    def show(self, trial: str, result: Mapping[str, Any]) -> None:
        """Prints one result as Tune gives it."""
        if not self._columns:
            for sentence in (text for key, text in _LEGENDS.items() if key in result):
                self._line([sentence], style="dim")
            self._columns = columns_of(result)
            titles = [column.title.rjust(max(len(column.title), 7)) for column in self._columns]
            self._line([*titles, *(["trial"] if self._trials > 1 else [])], style="bold")
        cells = [column.text(result) for column in self._columns]
        self._line([*cells, *([trial] if self._trials > 1 else [])])
        for sentence in str(result.get("warnings", "")).splitlines():
            self._line([f"Warning: {f'{trial}: ' if self._trials > 1 else ''}{sentence}"], style="yellow")
        self._advance(trial, fraction_done(result, self._stop))
        self._tell_time()

    def _tell_time(self) -> None:
        """Tells once, by the speed between the first results, how long the stage takes, if that is long."""
        now, done = time.monotonic(), sum(self._done.values()) / self._trials
        if self._first is None:
            self._first = (now, done)
        elif not self._told_time and done > self._first[1]:
            self._told_time = True
            left = (now - self._first[0]) * (1 - done) / (done - self._first[1])
            if left > _LONG:
                self._line([f"At this speed the stage takes {span(left)} more."], style="dim")

    @property
    def moves(self) -> bool:
        """True if the bar is shown."""
        return not self._bar.disable

    def move(self, trial: str, result: Mapping[str, Any], share: float) -> None:
        """Moves the bar within an iteration.

        Args:
            trial: The trial's name.
            result: Its last result; empty before the first one.
            share: The share of the next iteration that is done, in [0, 1).
        """
        iterations = (lookup(result, "training_iteration") or 0.0) + share
        done = fraction_done({**result, "training_iteration": iterations}, self._stop)
        if done > self._done.get(trial, 0.0):
            self._advance(trial, done)

    def finish(self, trial: str, result: Mapping[str, Any] | None = None) -> None:
        """Counts a trial as done, and tells if its last result came before one of its stop criteria was reached."""
        if result and self._stop and not any((lookup(result, k) or 0.0) >= v for k, v in self._stop.items()):
            iterations = int(lookup(result, "training_iteration") or 0)
            self._line([f"{trial} was stopped early by the scheduler, after iteration {iterations}"], style="dim")
        self._advance(trial, 1.0)

    def _advance(self, trial: str, done: float) -> None:
        self._done[trial] = done
        self._bar.update(self._task, completed=sum(self._done.values()) / self._trials, description="training")

    def _line(self, cells: list[str], style: str | None = None) -> None:
        self._bar.console.print(plain("  ".join(cells)), style=style, soft_wrap=True)


def make_bar() -> Progress:
    """A progress bar; silent where the output is no terminal (log files get the lines alone)."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=out,
        transient=True,
        disable=not out.is_terminal,
        # By default the time that remains is told from the last 30 seconds, in which a long iteration moves nothing.
        speed_estimate_period=_WHOLE_RUN,
    )


@contextmanager
def counting_bar(description: str) -> Iterator[Callable[[int, int], None]]:
    """A bar for work that counts, such as labels or episodes; yields a function of (done, total) that moves it."""
    with make_bar() as bar:
        task: TaskID = bar.add_task(description, total=None)

        def update(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        yield update
