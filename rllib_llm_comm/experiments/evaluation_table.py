"""Figures of evaluations as tables on the console."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rllib_llm_comm.experiments.console import print_table

_TRIAL = re.compile(r"^trial_\d+_|^\d+_")
_SHOWN = (
    "return_mean",
    "return_std",
    "success_rate",
    "length_mean",
    "episodes",
    "seconds_per_game",
    "sampled",
    "fallback",
    "answers_from",
    "message_words_mean",
    "shuffled_same_share",
    "shuffled_silent_share",
)
# Told of controls that change messages, where they say what the control is worth.
_OF_CONTROLS = ("message_words_mean", "shuffled_same_share", "shuffled_silent_share")
_TALK = {
    "signalling (nats)": "signalling.corrected",
    "p": "signalling.p_value",
    "first choice (nats)": "first_choice.corrected",
    "listening (nats)": "listening",
    "obeyed": "obeyed",
    "by chance": "obeyed_chance",
    "vocabulary": "vocabulary",
    "understood": "understood",
}
_DRIFT = {
    "drift (nats per message)": "drift.kl",
    "new words": "drift.new_words",
    "taught": "drift.new_words_reference",
    "unreadable": "drift.unreadable",
    "taught ": "drift.unreadable_reference",
}


def print_figures(rows: Sequence[Mapping[str, Any]]) -> None:
    """Prints returns, success and metrics, a row per checkpoint.

    Args:
        rows: The figures of each (`CheckpointEvaluation.to_json`).
    """
    from rllib_llm_comm.sama.plans import without_empty_counts

    changed = any(row.get("shuffled_same_share") is not None for row in rows)
    shown = [
        name
        for name in _SHOWN
        if any(row.get(name) is not None for row in rows) and (changed or name not in _OF_CONTROLS)
    ]
    metrics = [row["metrics"] for row in rows]
    counted = without_empty_counts(dict.fromkeys(name for one in metrics for name in one), metrics)
    figures = [
        {name: "" if row.get(name) is None else row[name] for name in shown}
        | {name: row["metrics"].get(name, "") for name in counted}
        for row in rows
    ]
    # Equal figures of all checkpoints stand once below: a terminal has few columns.
    same = [name for name in shown if len(rows) > 1 and len({str(figure[name]) for figure in figures}) == 1]
    caption = ", ".join(f"{name.replace('_', ' ')} {_text(figures[0][name])}" for name in same)
    names = [name for name in figures[0] if name not in same]
    labels = _labels([row["checkpoint"] for row in rows]) if len(rows) > 1 else [""]
    lines = [[label, *(_text(figure[name]) for name in names)] for label, figure in zip(labels, figures, strict=True)]
    cells = [["checkpoint", *(name.replace("_", " ") for name in names)], *lines]
    if len(rows) == 1:
        cells = [line[1:] for line in cells]
    print_table(cells, f"All: {caption}" if same else None)


def print_talk(checkpoints: Sequence[str], measured: Sequence[Mapping[str, Any] | None]) -> None:
    """Prints the measures of communication, a row per checkpoint; `-` for a missing one, no column where all miss it.

    Args:
        checkpoints: Their paths.
        measured: The entry `communication` of each one's figures; `None` for agents that say nothing.
    """
    drifts = any((told or {}).get("drift") for told in measured)
    named = {**_TALK, **_DRIFT} if drifts else _TALK
    shown = {name: path for name, path in named.items() if any(_nested(told, path) is not None for told in measured)}
    cells = [["checkpoint", *shown]]
    for label, told in zip(_labels(checkpoints) if len(checkpoints) > 1 else [""], measured, strict=True):
        values = [_nested(told, path) for path in shown.values()]
        cells.append([label, *("-" if value is None else _text(value) for value in values)])
    print_table([line if len(checkpoints) > 1 else line[1:] for line in cells], "Talk: docs/guides/communication.md")


def _nested(values: Any, path: str) -> Any:
    for key in path.split("."):
        values = None if values is None else values[key]
    return values


def _labels(checkpoints: Sequence[str]) -> list[str]:
    """The parts in which paths of checkpoints differ, so that a row fits in a line: trials by their varied settings."""
    columns = list(itertools.zip_longest(*(Path(path).parts for path in checkpoints)))
    differing = [column for column in columns if len(set(column)) > 1] or columns
    names = [[_TRIAL.sub("", part) for part in column if part] for column in differing]
    if len(set(names[0])) == len(checkpoints):
        return names[0]
    return ["/".join(part for part in row if part) for row in zip(*differing, strict=True)]


def _text(value: Any) -> str:
    """A figure as a cell of the table."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{round(value, 3) + 0.0:g}" if isinstance(value, float) else str(value)
