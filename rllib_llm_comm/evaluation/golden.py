"""Replays recorded episodes of an original game against ours and tells every difference.

A golden file has one JSON object (one episode) per line, gzipped or not. Which game it belongs to is seen
from the keys of its first episode; a further game needs one entry in `FORMATS`.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rllib_llm_comm.errors import UserError
from rllib_llm_comm.evaluation.golden_report import GoldenReport


def read_episodes(path: str | Path) -> Iterator[dict[str, Any]]:
    """Reads a golden file.

    Args:
        path: A file with one JSON object per line, gzipped or not.

    Yields:
        The episodes.

    Raises:
        UserError: If the file cannot be read, or a line is not a JSON object.
    """
    source = Path(path)
    try:
        with source.open("rb") as raw:
            zipped = raw.read(2) == b"\x1f\x8b"
        with gzip.open(source, "rt", encoding="utf-8") if zipped else source.open(encoding="utf-8") as lines:
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
            `original_games.read_games`.

    Returns:
        What was replayed and what differed.

    Raises:
        UserError: If the file cannot be read, is empty, or has a format of no known game.
    """
    report = GoldenReport()
    for episode in read_episodes(path):
        game = next((name for name, fmt in FORMATS.items() if fmt.keys <= episode.keys()), None)
        if game is None:
            wanted = "; ".join(f"{name}: {sorted(fmt.keys)}" for name, fmt in FORMATS.items())
            raise UserError(
                f"Episode {report.episodes + 1} of the golden file {str(path)!r} has the keys "
                f"{sorted(episode)}, which belong to no known game; known are {wanted}."
            )
        report.game = game
        if settings and game != SAVED_GAMES:
            raise UserError(
                f"{' and '.join(f'`{name}`' for name in settings)} cannot be told for the golden file {str(path)!r}, "
                "whose episodes tell it themselves; leave it away."
            )
        try:
            FORMATS[game].replay(episode, report, **settings)
        except UserError as error:
            raise UserError(f"Episode {episode.get('id')!r} of the golden file {str(path)!r}: {error}") from error
        except (KeyError, TypeError, IndexError, AttributeError, ValueError, zlib.error) as error:
            raise UserError(
                f"Episode {episode.get('id')!r} of the golden file {str(path)!r} is not of the format "
                f"{game!r} ({type(error).__name__}: {error}); make the file anew."
            ) from error
        report.episodes += 1
    if report.episodes == 0:
        raise UserError(f"The golden file {str(path)!r} has no episode; give a file with at least one.")
    return report


@dataclass(frozen=True)
class Format:
    """How the golden episodes of a game are replayed.

    Attributes:
        keys: The keys by which an episode of this game is known.
        replay: Replays one episode and notes differences in the report; takes what can be told in addition by name.
    """

    keys: frozenset[str]
    replay: Callable[..., None]


def _overcooked_text(episode: Mapping[str, Any], report: GoldenReport) -> None:
    from rllib_llm_comm.evaluation.golden_formats import overcooked_text

    overcooked_text.replay(episode, report)


def _overcooked_ai(episode: Mapping[str, Any], report: GoldenReport) -> None:
    from rllib_llm_comm.evaluation.golden_formats import overcooked_ai

    overcooked_ai.replay(episode, report)


def _minirts(episode: Mapping[str, Any], report: GoldenReport) -> None:
    from rllib_llm_comm.evaluation.golden_formats import minirts

    minirts.replay(episode, report)


def _overcooked_ai_games(trajectories: Mapping[str, Any], report: GoldenReport, **settings: Any) -> None:
    from rllib_llm_comm.evaluation.golden_formats import overcooked_ai_games

    overcooked_ai_games.replay(trajectories, report, **settings)


SAVED_GAMES = "overcooked_ai_games"
"""What the original Overcooked-AI writes to JSON itself."""
FORMATS: dict[str, Format] = {
    "overcooked_text": Format(
        frozenset({"id", "mode", "map", "task", "n_agents", "obs_radius", "layout", "initial", "steps"}),
        _overcooked_text,
    ),
    "overcooked_ai": Format(frozenset({"id", "kind", "layout", "dynamics"}), _overcooked_ai),
    SAVED_GAMES: Format(frozenset({"ep_states", "ep_actions"}), _overcooked_ai_games),
    # Its kinds have little in common, so it comes last.
    "minirts": Format(frozenset({"id", "kind"}), _minirts),
}
"""The known games, in the order in which they are tried."""
