"""One short line per training iteration, and a bar that says how far a trial is."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from rllib_llm_comm.experiments.console import out, plain


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
    Column("token acc.", ("message_sft/held_out_token_accuracy",), ".3f", always=True),
    Column("exact", ("message_sft/exact_match",), ".2f", always=True),
    Column("same request", ("message_sft/same_request",), ".2f", always=True),
)
_DEMONSTRATIONS = (
    Column("train loss", ("action_sft/train_loss",), ".3f", always=True),
    Column("held-out loss", ("action_sft/log_loss",), ".3f", always=True),
    Column("held-out top-1", ("action_sft/top_1",), ".3f", always=True),
)
_SUPERVISED = {"message_sft": _LABELS, "action_sft": _DEMONSTRATIONS}
_WHOLE_RUN = float("inf")  # seconds
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


def fraction_done(result: Mapping[str, Any], stop: Mapping[str, Any]) -> float:
    """The progress of a trial in [0, 1], by the stop criteria that only grow (iterations, steps, time).

    A threshold on a return says nothing about progress; it counts only where nothing else is given.
    """
    counters = {k: v for k, v in stop.items() if k.endswith(("iteration", "decisions", "_lifetime", "_s")) and v}
    shares = [(lookup(result, key) or 0.0) / value for key, value in (counters or stop).items() if value]
    return min(1.0, max([0.0, *shares]))


class TrainingTable:
    """Prints results as they come, and moves a bar.

    Args:
        stop: Stop criteria of a trial.
        trials: Number of trials; with more than one, lines name theirs.
    """

    def __init__(self, stop: Mapping[str, Any], trials: int = 1) -> None:
        self._stop = stop
        self._trials = max(1, trials)
        self._columns: list[Column] = []
        self._done: dict[str, float] = {}
        self._bar = make_bar()
        self._task = self._bar.add_task("starting the algorithm", total=1.0)

    def __enter__(self) -> TrainingTable:
        self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.stop()

    def show(self, trial: str, result: Mapping[str, Any]) -> None:
        """Prints one result.

        Args:
            trial: The trial's name.
            result: Its result as Tune gives it.
        """
        if not self._columns:
            self._columns = columns_of(result)
            titles = [column.title.rjust(max(len(column.title), 7)) for column in self._columns]
            self._line([*titles, *(["trial"] if self._trials > 1 else [])], style="bold")
        cells = [column.text(result) for column in self._columns]
        self._line([*cells, *([trial] if self._trials > 1 else [])])
        self._advance(trial, fraction_done(result, self._stop))

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
        """Counts a trial as done, and tells if it ended before one of its stop criteria was reached.

        Args:
            trial: The trial's name.
            result: Its last result.
        """
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
    """A bar for work that counts, such as labels or episodes.

    Args:
        description: The work, in words.

    Yields:
        A function of (done, total) that moves the bar.
    """
    with make_bar() as bar:
        task: TaskID = bar.add_task(description, total=None)

        def update(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        yield update
