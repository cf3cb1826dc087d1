"""Win rates of MiniRTS officers under scripted commanders, and whether what they are told decides the games."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from rllib_llm_comm.core.errors import UserError, require_choice, require_number, require_whole
from rllib_llm_comm.core.files import read_foreign_json, write_atomically
from rllib_llm_comm.envs.minirts.commanders.command_level import NAMES, Commander, make_commander
from rllib_llm_comm.envs.minirts.commanders.officers import SCRIPTED
from rllib_llm_comm.envs.minirts.commanders.tasks import NOTHING, Command
from rllib_llm_comm.envs.minirts.env import MAX_TICK, MiniRTS
from rllib_llm_comm.evaluation.columns import from_columns, to_columns
from rllib_llm_comm.evaluation.officer_lockstep import LockstepGame, in_lockstep
from rllib_llm_comm.evaluation.statistics import wilson

_RANDOM = "random"
_SAVE_AFTER = 10.0
_MOST_BYTES = 2**28


@dataclass(frozen=True)
class OfficerScoreSettings:
    """Settings of the games.

    Attributes:
        executor: The officers, as of `envs.minirts`.
        commanders: Names of scripted commanders; "random:0.5" says a random command with that probability at each
            decision, and else nothing.
        games: Games per commander, >= 1.
        seed: Seed of the first game; the others count up.
        opponent: As of `envs.minirts`.
        num_agents: As of `envs.minirts`.
        max_tick: As of `envs.minirts`.
        side_by_side: Games that are played at once, >= 1. More of them take less time each, and change no result.
    """

    executor: str = SCRIPTED
    commanders: Sequence[str] = NAMES
    games: int = 100
    seed: int = 0
    opponent: str = "medium2"
    num_agents: int = 2
    max_tick: int = MAX_TICK
    side_by_side: int = 16

    def __post_init__(self) -> None:
        require_whole("games", self.games, 1)
        require_whole("seed", self.seed, 0)
        require_whole("side_by_side", self.side_by_side, 1)
        for name in self.commanders:
            _parts_of(name)

    def env(self) -> MiniRTS:
        """The game that is played; refuses settings that it does not allow."""
        return MiniRTS(
            num_agents=self.num_agents,
            opponent=self.opponent,
            max_tick=self.max_tick,
            executor=self.executor,
            observe=["vector"],
        )


def officer_scores(
    settings: OfficerScoreSettings,
    path: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Plays the same games under each commander.

    Args:
        settings: The settings.
        path: A JSON file that keeps the games; what it holds of the same settings is not played again.
        progress: Called with the numbers of games that are done and of all.

    Returns:
        Settings, per commander the share of games `won`, with its interval `won_95`, `drawn` and `lost`, and the mean
        of `ticks`; and all games.

    Raises:
        UserError: If a setting is not allowed, or the file holds games of other settings.
    """
    envs, kept = (
        [settings.env()],
        {k: v for k, v in asdict(settings).items() if k not in ("commanders", "games", "side_by_side")},
    )
    played = _kept(path, kept)
    seeds = range(settings.seed, settings.seed + settings.games)
    asked = [(name, seed) for name in settings.commanders for seed in seeds]
    missing = [(name, seed) for name, seed in asked if str(seed) not in played.setdefault(name, {})]
    done, saved = len(asked) - len(missing), time.monotonic()
    envs += [settings.env() for _ in range(1, min(settings.side_by_side, len(missing)))]
    for name, seed, result in play_side_by_side(envs, missing):
        played[name][str(seed)] = result
        done += 1
        if progress:
            progress(done, len(asked))
        if path is not None and time.monotonic() - saved > _SAVE_AFTER:
            _save(path, kept, played)
            saved = time.monotonic()
    if path is not None:
        _save(path, kept, played)
    return _figures(kept, played)


def play_side_by_side(
    envs: Sequence[MiniRTS], missing: Iterable[tuple[str, int]]
) -> Iterator[tuple[str, int, dict[str, int]]]:
    """Plays games under scripted commanders in lockstep.

    Args:
        envs: Environments with the same settings, one for each game at a time.
        missing: Names of commanders, and the seeds of the games and of what these commanders draw.

    Yields:
        Name, seed, and the game's `result` (1 won, 0 drawn, -1 lost) and `ticks`, as games end.
    """
    for game in in_lockstep(envs, (partial(_ScoredGame, name=name, seed=seed) for name, seed in missing)):
        yield game.name, game.seed, game.figures()


class _ScoredGame(LockstepGame):
    """A whole game under a scripted commander."""

    def __init__(self, env: MiniRTS, name: str, seed: int) -> None:
        super().__init__(env, seed)
        self.name, self.seed = name, seed
        self._commander = _commander(env, name, seed)

    def says(self, number: int) -> Command:
        """The command that a commander gives now."""
        return self._commander(number)

    def figures(self) -> dict[str, int]:
        """Result and length of a game that is over."""
        winner, player = self.env.game.winner, self.env.team.player
        return {"result": (winner == player) - (winner == 1 - player), "ticks": self.env.game.tick}


def _commander(env: MiniRTS, name: str, seed: int) -> Commander:
    plain, share = _parts_of(name)
    commander = make_commander(plain, env.executor, env.commands, seed)
    if share == 1.0:
        return commander
    rng = np.random.default_rng([seed, 1])
    return lambda number: commander(number) if rng.random() < share else NOTHING


def _parts_of(name: str) -> tuple[str, float]:
    """A commander's plain name, and the share of decisions at which it speaks."""
    plain, colon, share = name.partition(":")
    require_choice("commanders", plain, NAMES)
    if not colon:
        return plain, 1.0
    try:
        number = float(share)
    except ValueError:
        number = float("nan")
    if plain != _RANDOM:
        raise UserError(f"`commanders` has {name!r}, but only 'random' has a probability, such as 'random:0.5'.")
    require_number(f"commanders.{name}", number, 0.0, 1.0)
    return plain, number


def _figures(same: Mapping[str, Any], played: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    summary = {}
    ordered = {name: dict(sorted(games.items(), key=lambda game: int(game[0]))) for name, games in played.items()}
    for name, games in ordered.items():
        if not games:  # those of another commander came first
            continue
        results, count = [game["result"] for game in games.values()], len(games)
        won = wilson(results.count(1), count).rounded()
        summary[name] = {
            "games": count,
            "won": won["value"],
            "won_95": [won["low"], won["high"]],
            "drawn": round(results.count(0) / count, 4),
            "lost": round(results.count(-1) / count, 4),
            "ticks": round(float(np.mean([game["ticks"] for game in games.values()]))),
        }
    return {"settings": dict(same), "summary": summary, "played": ordered}


def games_as_columns(games: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Games by seed as files keep them: `seeds` as runs (first, number), and a column per figure."""
    runs: list[list[int]] = []
    for seed in map(int, games):
        if runs and seed == sum(runs[-1]):
            runs[-1][1] += 1
        else:
            runs.append([seed, 1])
    return {"seeds": runs, **to_columns(list(games.values()))}


def games_by_seed(games: Mapping[str, Any]) -> dict[str, Any]:
    """What `games_as_columns` made, as games by seed again."""
    seeds = [str(seed) for first, count in games["seeds"] for seed in range(first, first + count)]
    rows = from_columns({name: column for name, column in games.items() if name != "seeds"}, len(seeds))
    return dict(zip(seeds, rows, strict=True))


def _kept(path: Path | None, same: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    if path is None or not path.exists():
        return {}
    try:
        kept = read_foreign_json(path, _MOST_BYTES)
        settings = kept["settings"]
        found = {name: games_by_seed(games) for name, games in kept["played"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"{str(path)!r} is there and holds no games ({error}); give another file.") from error
    if settings != same:
        raise UserError(f"{str(path)!r} holds games of other settings; give another file or delete this one.")
    return found


def _save(path: Path, same: Mapping[str, Any], played: Mapping[str, Mapping[str, Any]]) -> None:
    figures = _figures(same, played)
    figures["played"] = {name: games_as_columns(games) for name, games in figures["played"].items()}
    write_atomically(path, json.dumps(figures, separators=(",", ":")) + "\n")
