"""Win rates of MiniRTS officers under scripted commanders, and whether what they are told decides the games."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rllib_llm_comm.envs.minirts.commanders.command_level import NAMES, Commander, make_commander
from rllib_llm_comm.envs.minirts.commanders.officers import SCRIPTED
from rllib_llm_comm.envs.minirts.commanders.tasks import NOTHING
from rllib_llm_comm.envs.minirts.env import MAX_TICK, MiniRTS
from rllib_llm_comm.errors import UserError, require_choice, require_number, require_whole
from rllib_llm_comm.evaluation.statistics import wilson
from rllib_llm_comm.files import write_atomically

_RANDOM = "random"
_SAVE_AFTER = 10.0


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
    """

    executor: str = SCRIPTED
    commanders: Sequence[str] = NAMES
    games: int = 100
    seed: int = 0
    opponent: str = "medium2"
    num_agents: int = 2
    max_tick: int = MAX_TICK

    def __post_init__(self) -> None:
        require_whole("games", self.games, 1)
        require_whole("seed", self.seed, 0)
        for name in self.commanders:
            _parts_of(name)

    def env(self) -> MiniRTS:
        """The game that is played; refuses settings that it does not allow."""
        return MiniRTS(
            self.num_agents,
            self.opponent,
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
    env, same = settings.env(), {k: v for k, v in asdict(settings).items() if k not in ("commanders", "games")}
    played = _kept(path, same)
    total, done, saved = settings.games * len(settings.commanders), 0, time.monotonic()
    for name in settings.commanders:
        games = played.setdefault(name, {})
        for seed in range(settings.seed, settings.seed + settings.games):
            if str(seed) not in games:
                games[str(seed)] = play_game(env, name, seed)
            done += 1
            if progress:
                progress(done, total)
            if path is not None and time.monotonic() - saved > _SAVE_AFTER:
                _save(path, same, played)
                saved = time.monotonic()
    if path is not None:
        _save(path, same, played)
    return _figures(same, played)


def play_game(env: MiniRTS, name: str, seed: int) -> dict[str, int]:
    """A game under a commander: its `result` (1 won, 0 drawn, -1 lost) and `ticks`.

    Args:
        env: The game.
        name: Name of the commander.
        seed: Seed of the game and of what the commander draws.
    """
    env.reset(seed=seed)
    commander = _commander(env, name, seed)
    while env.agents:
        env.step({agent: env.commands.index(commander(number)) for number, agent in enumerate(env.agents)})
    result = (env.game.winner == env.team.player) - (env.game.winner == 1 - env.team.player)
    return {"result": result, "ticks": env.game.tick}


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
    for name, games in played.items():
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
    return {"settings": dict(same), "summary": summary, "played": dict(played)}


def _kept(path: Path | None, same: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    if path is None or not path.exists():
        return {}
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        settings, played = kept["settings"], kept["played"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(f"{str(path)!r} is there and holds no games ({error}); give another file.") from error
    if settings != same:
        raise UserError(f"{str(path)!r} holds games of other settings; give another file or delete this one.")
    found: dict[str, dict[str, Any]] = played
    return found


def _save(path: Path, same: Mapping[str, Any], played: Mapping[str, Mapping[str, Any]]) -> None:
    write_atomically(path, json.dumps(_figures(same, played), separators=(",", ":")) + "\n")
