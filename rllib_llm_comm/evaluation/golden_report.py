"""Findings of a replay of recorded episodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

TOLERANCE = 1e-9
_MAX_KEPT = 200


@dataclass(frozen=True)
class Mismatch:
    """One difference.

    Attributes:
        episode: The episode's id.
        step: Number of the game step, from 1; 0 is the start state.
        field: The value that differs, such as "state.grid".
        expected: The recorded value.
        got: Our value.
    """

    episode: str
    step: int
    field: str
    expected: Any
    got: Any

    def __str__(self) -> str:
        where = f"episode {self.episode}, step {self.step}, {self.field}"
        return f"{where}: expected {self.expected}, got {self.got}"


@dataclass
class GoldenReport:
    """The outcome of a check.

    Attributes:
        game: Name of the game's format.
        episodes: Number of episodes replayed.
        steps: Number of game steps replayed.
        mismatches: The differences, at most the first 200.
        mismatch_count: Number of all differences.
    """

    game: str = ""
    episodes: int = 0
    steps: int = 0
    mismatches: list[Mismatch] = field(default_factory=list)
    mismatch_count: int = 0

    @property
    def ok(self) -> bool:
        """True if at least one episode was replayed and nothing differed."""
        return self.episodes > 0 and self.mismatch_count == 0

    def add(self, mismatch: Mismatch) -> None:
        """Notes a difference."""
        self.mismatch_count += 1
        if len(self.mismatches) < _MAX_KEPT:
            self.mismatches.append(mismatch)

    def compare(self, episode: str, step: int, name: str, expected: Any, got: Any) -> None:
        """Notes a difference where two values are not exactly equal."""
        if expected != got:
            self.add(Mismatch(episode, step, name, expected, got))

    def compare_numbers(
        self, episode: str, step: int, name: str, expected: Sequence[float], got: Sequence[float]
    ) -> None:
        """Notes a difference where two lists of numbers differ by more than 1e-9."""
        same = len(expected) == len(got) and all(abs(a - b) <= TOLERANCE for a, b in zip(expected, got, strict=True))
        if not same:
            self.add(Mismatch(episode, step, name, list(expected), list(got)))
