"""Rows of figures as columns: a file that keeps games one by one then says each name once, not once per game."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def to_columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One list per name, columns of columns for figures that are rows themselves.

    A row may lack some figures; `None` stands for them, so that no figure may be `None`. Whole numbers lose their ".0".
    """
    columns: dict[str, Any] = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        told = [row.get(name) for row in rows]
        inner = [one for one in told if isinstance(one, Mapping)]
        columns[name] = to_columns([one or {} for one in told]) if inner else [_short(one) for one in told]
    return columns


def _short(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def from_columns(columns: Mapping[str, Any], count: int) -> list[dict[str, Any]]:
    """The given number of rows of what `to_columns` made.

    Raises:
        ValueError: If a column has another number of figures.
        TypeError: If something else than columns is given.
    """
    rows: list[dict[str, Any]] = [{} for _ in range(count)]
    for name, column in columns.items():
        told = from_columns(column, count) if isinstance(column, Mapping) else column
        for row, value in zip(rows, told, strict=True):
            if value is not None:
                row[name] = value
    return rows
