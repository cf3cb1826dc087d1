"""MiniRTS officers judged: win rates under scripted commanders, single tasks, and the order that RED's paper found."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from rllib_llm_comm.baselines.red.officer_policy import TrainedExecutor, orders_together
from rllib_llm_comm.baselines.red.officer_settings import OfficerScoreSettings, OfficerTaskSettings, commander_of
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.files import read_foreign_json, write_atomically
from rllib_llm_comm.core.json_file import JsonValue, read_json
from rllib_llm_comm.envs.minirts.commanders import Commander, make_commander
from rllib_llm_comm.envs.minirts.engine.rts_game import Order
from rllib_llm_comm.envs.minirts.engine.units import MADE_BY
from rllib_llm_comm.envs.minirts.env import MiniRTS
from rllib_llm_comm.envs.minirts.executor import Executor
from rllib_llm_comm.envs.minirts.words import BUILD, KIND_OF, MINE, NOTHING, TRAIN, Command
from rllib_llm_comm.evaluation.columns import from_columns, to_columns
from rllib_llm_comm.evaluation.statistics import holm, same_share, wilson


class LockstepGame:
    """A game at its first decision in an environment, and its commanders."""

    def __init__(self, env: MiniRTS, seed: int) -> None:
        self.env = env
        env.reset(seed=seed)

    def look(self) -> bool:
        """Looks at what the orders did; true if nothing is left to play."""
        return self.env.game.over

    def says(self, number: int) -> Command:
        """The command that a commander gives now."""
        raise NotImplementedError

    def told(self) -> Executor:
        """The officers, after what the commanders say now: all of them before anybody is obeyed, as in `env.step`."""
        executor = self.env.executor
        for number, command in enumerate([self.says(number) for number in range(executor.side.size)]):
            executor.command(number, command)
        return executor


GameT = TypeVar("GameT", bound=LockstepGame)


def in_lockstep(envs: Sequence[MiniRTS], missing: Iterable[Callable[[MiniRTS], GameT]]) -> Iterator[GameT]:
    """Plays games at once; one that is over makes room for the next. Nothing is observed besides what officers see.

    Args:
        envs: Environments with the same settings, one for each game at a time.
        missing: Begins each game in one of them.

    Yields:
        Games, as they end; read them before the next one.
    """
    waiting, free = iter(missing), list(envs)
    going: list[GameT] = []
    while True:
        going += [begin(free.pop()) for begin in islice(waiting, len(free))]
        if not going:
            return
        for game, orders in zip(going, _orders(going), strict=True):
            game.env.advance(orders)
        for game in [game for game in going if game.look()]:
            going.remove(game)
            free.append(game.env)
            yield game


def _orders(going: Sequence[LockstepGame]) -> list[list[Order]]:
    executors = [game.told() for game in going]
    trained = [executor for executor in executors if isinstance(executor, TrainedExecutor)]
    return orders_together(trained) if trained else [executor.give_orders() for executor in executors]


_SAVE_AFTER = 10.0
_MOST_BYTES = 2**28


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
    envs = [settings.env()]
    kept = {k: v for k, v in settings.to_dict().items() if k not in ("commanders", "games", "side_by_side")}
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
    """Plays games under scripted commanders in lockstep, each in one of some environments with the same settings.

    `missing` are names of commanders, and the seeds of the games and of what these commanders draw.

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
    plain, share = commander_of(name)
    commander = make_commander(plain, env.executor, env.commands, seed)
    if share == 1.0:
        return commander
    rng = np.random.default_rng([seed, 1])
    return lambda number: commander(number) if rng.random() < share else NOTHING


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


TOLD, UNTOLD = "told", "not told"


def officer_tasks(settings: OfficerTaskSettings, progress: Callable[[int, int], None] | None = None) -> dict[str, Any]:
    """Plays the beginnings of games in which one unit is asked for, and the same games without asking.

    Returns:
        Settings; and per unit `building`, the share of games in which its building stood in time, with its interval
        `building_95`, and of those games the share in which the unit came in time: `told` and `not_told`, with theirs.
    """
    seeds = range(settings.seed, settings.seed + settings.games)
    asked = [(unit, told, seed) for unit in settings.units for told in (TOLD, UNTOLD) for seed in seeds]
    begins = [
        partial(_TaskGame, unit=unit, how=told, seed=seed, decisions=settings.decisions) for unit, told, seed in asked
    ]
    envs = [settings.env() for _ in range(min(settings.side_by_side, len(asked)))]
    ended: list[tuple[str, str, bool, bool]] = []
    for game in in_lockstep(envs, begins):
        ended.append((game.unit, game.how, game.built, game.made))
        if progress:
            progress(len(ended), len(asked))
    kept = {name: value for name, value in settings.to_dict().items() if name != "side_by_side"}
    return {"settings": kept, "units": {unit: _task_figures(unit, ended) for unit in settings.units}}


class _TaskGame(LockstepGame):
    """A game until the unit is there, or time is up; `how` it is asked for is `TOLD` or `UNTOLD`."""

    def __init__(self, env: MiniRTS, unit: str, how: str, seed: int, decisions: int) -> None:
        super().__init__(env, seed)
        self.unit, self.how = unit, how
        self.built = self.made = False
        self._kind = KIND_OF[unit]
        self._building = int(MADE_BY[self._kind])
        self._limit = self._left = decisions
        self._said = list[Command]()
        self._owner, self._before = -1, 0

    def look(self) -> bool:
        """Sees whether the building stands, and then the unit; true if it does or time is up."""
        self._left -= 1
        if self.built:
            self.made = self._number_made() > self._before
        elif owners := [n for n in range(self.env.team.size) if self.env.team.counts(n)[self._building]]:
            self.built, self._owner = True, owners[0]
            self._left, self._before = self._limit, self._number_made()
        return self.made or self._left == 0 or self.env.game.over

    def _number_made(self) -> int:
        return sum(made[self._kind] for made in self.env.team.made)

    def says(self, number: int) -> Command:
        """Mine, once; the building, by the last commander; the unit, once, by who has the building."""
        commanders = self.env.team.size
        if len(self._said) < commanders:
            self._said.append(Command(MINE))
            return self._said[-1]
        if not self.built:
            return Command(BUILD, self._building, 1) if number == commanders - 1 else NOTHING
        train = Command(TRAIN, self._kind, 1)
        if number != self._owner or self.how == UNTOLD or train in self._said:
            return NOTHING
        self._said.append(train)
        return train


def _task_figures(unit: str, ended: Sequence[tuple[str, str, bool, bool]]) -> dict[str, Any]:
    own = [one for one in ended if one[0] == unit]
    built_games = [one for one in own if one[2]]
    built = wilson(len(built_games), len(own)).rounded()
    figures: dict[str, Any] = {
        "games": len(own), "building": built["value"], "building_95": [built["low"], built["high"]],
    }  # fmt: skip
    for how, name in ((TOLD, "told"), (UNTOLD, "not_told")):
        made = [one[3] for one in built_games if one[1] == how]
        if made:
            share = wilson(sum(made), len(made)).rounded()
            figures |= {name: share["value"], f"{name}_95": [share["low"], share["high"]], f"{name}_games": len(made)}
    return figures


ORDER = ("oracle", "none", "random", "adversarial")
"""Commanders by how many games an officer wins under them, most first (RED, Table 1)."""
LEVEL = 0.05
_MOST_GAMES = 10**7
_ROUNDED = 1e-4


class Step(NamedTuple):
    """Two neighbours of the order under one officer, who should win more under `above` than under `below`.

    Attributes:
        difference: Share won under `above` less that under `below`.
        overlap: Whether the two 95 % intervals (Wilson) have a point in common.
        p: Of the two-sided test that both shares are the same.
        p_corrected: The same after Holm's correction over all steps that were asked for.
    """

    officer: str
    above: str
    below: str
    difference: float
    overlap: bool
    p: float
    p_corrected: float

    @property
    def holds(self) -> bool:
        """True if the share under `above` is larger, at the level 0.05 after the correction."""
        return self.difference > 0 and self.p_corrected <= LEVEL


def read_scores(paths: Sequence[Path]) -> dict[str, dict[str, Any]]:
    """Files of `rllib officer play`, by their names without the ending.

    Args:
        paths: The files.

    Returns:
        Name -> `game` (opponent, number of commanders, length), `seed` (of the first game), and `won` (commander ->
        games won and played).

    Raises:
        UserError: If a file cannot be read, holds no win rates, two have one name, or they are of different games.
    """
    found: dict[str, dict[str, Any]] = {}
    for path in paths:
        if path.stem in found:
            raise UserError(f"Two files are named {path.stem!r}; give files with different names.")
        held = read_json(path, "play the games again with `rllib officer play`")
        settings, summary = held["settings"], held["summary"].items(least=1)
        if strange := [name for name in summary if not name.isprintable()]:
            raise held["summary"].wrong(f"by names of commanders, not {strange[0]!r}")
        found[path.stem] = {
            "game": {
                "opponent": settings["opponent"].text(),
                "num_agents": settings["num_agents"].whole(low=1),
                "max_tick": settings["max_tick"].whole(low=1),
            },
            "seed": settings["seed"].whole(low=0),
            "won": {name: _won(one) for name, one in summary.items()},
        }
    games = {json.dumps(one["game"]): name for name, one in found.items()}
    if len(games) > 1:
        told = "; ".join(f"{name}: {game[:120]}" for game, name in games.items())
        raise UserError(f"Officers can be compared in the same game only, but these played different ones ({told}).")
    return found


def _won(one: JsonValue) -> tuple[int, int]:
    """Games won and played under a commander, from the share of them that the file tells."""
    games, share = one["games"].whole(1, _MOST_GAMES), one["won"].number()
    won = round(share * games) if 0 <= share <= 1 else -1
    if won < 0 or abs(share * games - won) > _ROUNDED * games:
        raise one["won"].wrong(f"the share of {games} games")
    return won, games


def apart_note(scores: Mapping[str, Mapping[str, Any]]) -> str | None:
    """A sentence if the officers (as of `read_scores`) played from different seeds or different numbers of games."""
    played = [(name, games) for one in scores.values() for name, (_, games) in one["won"].items()]
    if len({one["seed"] for one in scores.values()}) < 2 and len(set(played)) == len(dict(played)):
        return None
    listed = ", ".join(f"{name} {_counts(one)} from seed {one['seed']}" for name, one in scores.items())
    return (
        f"The files hold different games, per commander: {listed}; so officers differ by their games, too, while each "
        "step is of one file."
    )


def _counts(one: Mapping[str, Any]) -> str:
    """Games per commander of a file."""
    counts = sorted({games for _, games in one["won"].values()})
    return " to ".join(str(count) for count in dict.fromkeys((counts[0], counts[-1])))


def order_steps(scores: Mapping[str, Mapping[str, Any]]) -> list[Step]:
    """The steps of the order oracle, none, random, adversarial under each officer that played all four.

    They are tested by `statistics.same_share` and corrected over all of them. That the same seeds were played under all
    commanders is not used.
    """
    steps = [
        (name, above, below)
        for name, one in scores.items()
        if not missing_commanders(one)
        for above, below in itertools.pairwise(ORDER)
    ]
    pairs = [(wilson(*scores[name]["won"][a]), wilson(*scores[name]["won"][b])) for name, a, b in steps]
    raw = [same_share(*scores[name]["won"][a], *scores[name]["won"][b]) for name, a, b in steps]
    return [
        Step(*step, above.value - below.value, above.overlaps(below), p, corrected)
        for step, (above, below), p, corrected in zip(steps, pairs, raw, holm(raw), strict=True)
    ]


def missing_commanders(one: Mapping[str, Any]) -> list[str]:
    """The commanders of the order under whom an officer of `read_scores` has not played."""
    return [name for name in ORDER if name not in one["won"]]
