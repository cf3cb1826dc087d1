"""Replays recorded episodes of an original game against ours and tells every difference.

A golden file has one JSON object (one episode) per line, gzipped or not. The game is found by the
keys of its first episode; the record of each game names its format.
"""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.files import open_regular
from rllib_llm_comm.core.lazy import load_setting
from rllib_llm_comm.core.places import local_path
from rllib_llm_comm.envs.games import GAMES, GoldenFormat

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


def read_episodes(path: str | Path) -> Iterator[dict[str, Any]]:
    """Reads a golden file.

    Args:
        path: A file with one JSON object per line, gzipped or not.

    Yields:
        The episodes.

    Raises:
        UserError: If the file cannot be read, or a line is not a JSON object.
    """
    source = local_path(path)
    try:
        with open_regular(source) as raw:
            zipped = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            lines = io.TextIOWrapper(gzip.open(raw) if zipped else raw, encoding="utf-8-sig")  # noqa: SIM115
            # A .json file is one object, perhaps over several lines.
            whole = source.name.endswith((".json", ".json.gz"))
            for number, line in enumerate([lines.read().replace("\n", " ")] if whole else lines, 1):
                if not line.strip():
                    continue
                try:
                    episode = json.loads(line)
                except ValueError as error:
                    raise UserError(
                        f"Line {number} of the golden file {str(source)!r} is not JSON ({error}); "
                        "each line must be one episode as a JSON object."
                    ) from error
                if not isinstance(episode, dict):
                    raise UserError(
                        f"Line {number} of the golden file {str(source)!r} is a {type(episode).__name__}; "
                        "each line must be one episode as a JSON object."
                    )
                yield episode
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise UserError(
            f"The golden file {str(source)!r} cannot be read ({error}); "
            "give the path of an existing .jsonl or .jsonl.gz file."
        ) from error


def check_golden(path: str | Path, **settings: Any) -> GoldenReport:
    """Replays every episode of a golden file through our game.

    Args:
        path: The file: one object per line, or, if its name ends in .json, one object.
        **settings: `layout` and `dynamics`, for games that the original Overcooked-AI saved; see
            `golden.read_games`.

    Returns:
        What was replayed and what differed.

    Raises:
        UserError: If the file cannot be read, is empty, or has a format of no known game.
    """
    report = GoldenReport()
    for episode in read_episodes(path):
        fitting = [(name, golden) for name, golden in _formats() if golden.keys <= episode.keys()]
        if not fitting:
            wanted = "; ".join(f"{name}: {sorted(golden.keys)}" for name, golden in _formats())
            raise UserError(
                f"Episode {report.episodes + 1} of the golden file {str(path)!r} has the keys "
                f"{sorted(episode)}, which belong to no known game; known are {wanted}."
            )
        report.game, golden = max(fitting, key=lambda found: len(found[1].keys))
        if settings and not golden.settings:
            raise UserError(
                f"{' and '.join(f'`{name}`' for name in settings)} cannot be told for the golden file {str(path)!r}, "
                "whose episodes tell it themselves; omit it."
            )
        replay = load_setting(f"`golden` of the game {report.game!r}", golden.replay)
        try:
            replay(episode, report, **settings)
        except UserError as error:
            raise UserError(f"Episode {episode.get('id')!r} of the golden file {str(path)!r}: {error}") from error
        except (KeyError, TypeError, IndexError, AttributeError, ValueError, zlib.error) as error:
            raise UserError(
                f"Episode {episode.get('id')!r} of the golden file {str(path)!r} is not of the format "
                f"{report.game!r} ({type(error).__name__}: {error}); make the file anew."
            ) from error
        report.episodes += 1
    if report.episodes == 0:
        raise UserError(f"The golden file {str(path)!r} has no episode; give a file with at least one.")
    return report


def _formats() -> list[tuple[str, GoldenFormat]]:
    return [(golden.name or name, golden) for name, record in GAMES.items() for golden in record.golden]
