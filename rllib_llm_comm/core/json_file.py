"""Values of a JSON file that know where they stand, so that damage is told in one sentence."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.files import read_foreign_json

_MOST_BYTES = 2**28


@dataclass(frozen=True)
class JsonValue:
    """A value of a file; all methods raise a `UserError` if it is not what is asked for.

    Attributes:
        content: The plain value.
        file: The file it is of.
        remedy: The user's remedy if the file is damaged, as the end of a sentence.
        place: Keys down to it, joined by dots; empty for the whole file.
    """

    content: Any
    file: Path
    remedy: str
    place: str = ""

    def __contains__(self, key: str) -> bool:
        """True if a mapping has a key."""
        return key in self._mapping()

    def __getitem__(self, key: str) -> JsonValue:
        """The value of a key of a mapping."""
        content = self._mapping()
        if key not in content:
            raise damaged(self.file, f"`{self._inner(key)}` is missing", self.remedy)
        return self._part(key, content[key])

    def items(self, least: int = 0) -> dict[str, JsonValue]:
        """The values of a mapping of at least so many."""
        content = self._mapping()
        self._require(least, "a mapping")
        return {key: self._part(key, value) for key, value in content.items()}

    def elements(self, least: int = 0) -> list[JsonValue]:
        """The values of a list of at least so many."""
        if not isinstance(self.content, list):
            raise self.wrong("a list")
        self._require(least, "a list")
        return [self._part(str(k), value) for k, value in enumerate(self.content)]

    def text(self) -> str:
        """A text."""
        if not isinstance(self.content, str) or any("\ud800" <= sign <= "\udfff" for sign in self.content):
            raise self.wrong("a text")  # JSON may hold halves of signs, which nothing can write
        return self.content

    def number(self) -> float:
        """A finite number."""
        if isinstance(self.content, bool) or not isinstance(self.content, int | float):
            raise self.wrong("a number")
        try:
            number = float(self.content)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise self.wrong("a finite number")
        return number

    def whole(self, low: int = -(2**63), high: int = 2**63 - 1) -> int:
        """A whole number in a range."""
        if isinstance(self.content, bool) or not isinstance(self.content, int):
            raise self.wrong("a whole number")
        if not low <= self.content <= high:
            raise self.wrong(f"a whole number from {low} to {high}")
        return self.content

    def wrong(self, demand: str) -> UserError:
        """The error of a value that is something else.

        Args:
            demand: The allowed values, in words.
        """
        name = f"`{self.place}`" if self.place else "the content"
        return damaged(self.file, f"{name} is {reprlib.repr(self.content)} but must be {demand}", self.remedy)

    def _mapping(self) -> Mapping[str, Any]:
        if not isinstance(self.content, Mapping):
            raise self.wrong("a mapping")
        return self.content

    def _require(self, least: int, kind: str) -> None:
        if len(self.content) < least:
            raise self.wrong(f"{kind} of at least {least}" if least > 1 else f"{kind} that is not empty")

    def _part(self, key: str, content: Any) -> JsonValue:
        return JsonValue(content, self.file, self.remedy, self._inner(key))

    def _inner(self, key: str) -> str:
        return f"{self.place}.{key}" if self.place else key


def read_json(path: Path, remedy: str) -> JsonValue:
    """The content of a JSON file.

    Args:
        remedy: The user's remedy if it is damaged, as the end of a sentence.

    Raises:
        UserError: If it cannot be read.
    """
    try:
        return JsonValue(read_foreign_json(path, _MOST_BYTES), path, remedy)
    except (OSError, ValueError) as error:
        raise damaged(path, f"{type(error).__name__}: {error}", remedy) from error


def damaged(path: Path, what: str, remedy: str) -> UserError:
    """The error of a file that is not what it was.

    Args:
        remedy: The user's remedy, as the end of a sentence.
    """
    return UserError(f"{str(path)!r} is damaged or incomplete: {what}; {remedy}.")
