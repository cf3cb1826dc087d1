"""Base of settings as plain data, and checks of single values."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

from rllib_llm_comm.core.errors import UserError, did_you_mean, shown

MOST_LAYERS, MOST_WIDTH = 16, 65536
_Settings = TypeVar("_Settings", bound="FromMapping")


class FromMapping:
    """Adds construction from a dict that refuses unknown names."""

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """The names of all settings."""
        return tuple(field.name for field in dataclasses.fields(cls))  # type: ignore[arg-type]

    @classmethod
    def from_mapping(cls: type[_Settings], values: Mapping[str, Any]) -> _Settings:
        """Builds the settings from a dict such as a `model_config`.

        Raises:
            UserError: If a name is unknown or a value is out of its range.
        """
        known = cls.names()
        for name in values:
            if name not in known:
                raise UserError(
                    f"`{name}` is no setting here; known are {', '.join(known)}.{did_you_mean(str(name), known)}"
                )
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """The settings as a dict of plain values (JSON can hold it)."""
        plain = dataclasses.asdict(self)  # type: ignore[call-overload]
        return {key: list(value) if isinstance(value, tuple) else value for key, value in plain.items()}


def require_whole(name: str, value: Any, least: int, most: int | None = None) -> None:
    """Raises a `UserError` unless a setting is a whole number in its range.

    Args:
        name: The setting.
        value: Its value.
        least: The smallest allowed.
        most: The largest allowed; `None` for no bound.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least or (most is not None and value > most):
        allowed = f"of at least {least}" + ("" if most is None else f" and at most {most}")
        raise UserError(f"`{name}` is {shown(value)} but must be a whole number {allowed}.")


def require_whole_numbers(name: str, values: Any, longest: int, most: int) -> None:
    """Raises a `UserError` unless a setting is a list of whole numbers from 1 to `most`.

    Args:
        name: The setting.
        values: Its value.
        longest: Most entries.
        most: The largest allowed entry.
    """
    if not isinstance(values, list | tuple) or len(values) > longest:
        raise UserError(f"`{name}` is {shown(values)} but must be a list of at most {longest} whole numbers.")
    for value in values:
        require_whole(name, value, 1, most)


def require_number(name: str, value: Any, least: float, most: float, *, above: bool = False, hint: str = "") -> None:
    """Raises a `UserError` unless a setting is a number in its range.

    Args:
        name: The setting.
        value: Its value.
        least: The smallest allowed.
        most: The largest allowed.
        above: True if `least` itself is not allowed.
        hint: Meaning of the smallest value.
    """
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not least <= value <= most or (above and value == least):
        allowed = f"{'larger than' if above else 'of at least'} {least:g}{hint} and at most {most:g}"
        raise UserError(f"`{name}` is {shown(value)} but must be a number {allowed}.")


def require_seed(name: str, value: Any) -> None:
    """Raises a `UserError` unless a setting is a seed that torch takes, or `None`."""
    if value is not None:
        require_whole(name, value, -(2**63), 2**63 - 1)
