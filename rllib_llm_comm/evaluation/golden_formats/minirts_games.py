"""Golden whole games of the strategy game: scripted opponents against each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rllib_llm_comm.envs.minirts.engine import opponents
from rllib_llm_comm.envs.minirts.engine.mapgen import MapSettings, game_seed
from rllib_llm_comm.envs.minirts.engine.rts_game import Game, Settings, Unit
from rllib_llm_comm.envs.minirts.engine.units import IS_MOBILE, NAMES, RESOURCE
from rllib_llm_comm.evaluation.golden_report import GoldenReport

_ORDERS = ("IDLE", "ATTACK", "MOVE", "BUILD", "GATHER")
# Mean positions have three digits behind the point.
_ROUNDING = 6e-4


def replay_game(episode: Mapping[str, Any], report: GoldenReport) -> None:
    """Replays a game with what both sides had every 50 ticks.

    Args:
        episode: The recorded game.
        report: Takes the differences.
    """
    game = _begin(episode, report)
    name = episode["id"]
    report.compare(name, 0, "init.water", episode["init"]["water"], "".join(".W"[c] for c in game.record["terrain"][0]))
    units = [[u.player, u.name, u.x, u.y] for u in sorted(game.units(), key=lambda unit: unit.number)]
    report.compare(name, 0, "init.units", episode["init"]["units"], units)
    for tick, first, second, both in episode["summaries"]:
        # Taken at the end of the tick of that number.
        game.run(tick + 1 - game.tick)
        for player, expected in enumerate((first, second)):
            _compare_side(name, tick, player, expected, game, report)
        report.compare(name, tick, "seen", both["seen"], [int(game.explored(player).sum()) for player in range(2)])
        report.compare(name, tick, "ore", both["ore"], sum(u.hp for u in game.units(kind=RESOURCE)))
    _finish(episode, game, report)


def replay_result(episode: Mapping[str, Any], report: GoldenReport) -> None:
    """Replays a game of which only the end is known: what was drawn, the winner, the tick and whether it was a jam.

    Args:
        episode: The recorded game.
        report: Takes the differences.
    """
    _finish(episode, _begin(episode, report), report)


def _begin(episode: Mapping[str, Any], report: GoldenReport) -> Game:
    chosen = {key: episode[key] for key in ("fair", "num_peasants", "num_resources", "resource_dist")}
    settings = Settings(
        map=MapSettings(**chosen),
        opponents=(episode["p0"], episode["p1"]),
        money=episode["resource"],
        max_tick=episode["max_tick"],
        frame_skip=episode["fs"],
    )
    seed = episode["seed"]
    game = Game(game_seed(seed), settings, (seed, seed))
    report.compare(episode["id"], 0, "drawn", episode["drawn"], [_drawn(game, player) for player in range(2)])
    return game


def _drawn(game: Game, player: int) -> dict[str, Any]:
    drawn = opponents.drawn(game.record, player)
    types = {"type": NAMES[drawn.types[0]]} if drawn.types else {}
    return {**types, "min": drawn.least, "max": drawn.most}


def _finish(episode: Mapping[str, Any], game: Game, report: GoldenReport) -> None:
    while not game.over:
        game.run(1000)
    report.steps += game.tick
    for key, value in (("winner", game.winner), ("end_tick", game.tick), ("error", game.broken)):
        report.compare(episode["id"], game.tick, key, episode[key], value)


def _compare_side(
    name: str, tick: int, player: int, expected: Mapping[str, Any], game: Game, report: GoldenReport
) -> None:
    units = [unit for unit in game.units(player) if unit.type != RESOURCE]
    finished = [unit for unit in units if unit.finished]
    types = [unit.name for unit in finished]
    running = ["BUILD" if unit.order == "TRAIN" else unit.order for unit in finished]
    ours: dict[str, Any] = {
        "res": game.money(player),
        "hp": sum(unit.hp for unit in finished),
        "constructing": len(units) - len(finished),
        "n": {kind: types.count(kind) for kind in types},
        "cmd": {kind: running.count(kind) for kind in _ORDERS},
    }
    for key, value in ours.items():
        report.compare(name, tick, f"p{player}.{key}", expected[key], value)
    mean = _mean_place(finished)
    if not np.allclose(expected["mean_xy"], mean, rtol=0, atol=_ROUNDING):
        report.compare(name, tick, f"p{player}.mean_xy", expected["mean_xy"], mean)


def _mean_place(units: list[Unit]) -> list[float]:
    """Mean place of the mobile units; (-1, -1) if there are none."""
    places = [(unit.x, unit.y) for unit in units if IS_MOBILE[unit.type]]
    return [float(sum(axis) / len(places)) for axis in zip(*places, strict=True)] if places else [-1.0, -1.0]
