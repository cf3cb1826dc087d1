"""Share of games that scripted commanders win where one is told what the enemy trains and another owns the producers.

    python benchmarks/minirts_told.py --games 60 --json docs/results/told/minirts.json

The same games are played with talk and in silence, with one commander told and with all. Nothing that scripted
commanders do depends on `max_tick`, so the share won within fewer ticks is that of a game that ends there.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rllib_llm_comm.core.files import write_atomically
from rllib_llm_comm.envs import minirts
from rllib_llm_comm.envs.minirts.commanders import ScriptedTeam
from rllib_llm_comm.envs.minirts.engine.units import PEASANT
from rllib_llm_comm.envs.minirts.env import MAX_TICK
from rllib_llm_comm.envs.minirts.words import NOTHING, SCOUT, Command
from rllib_llm_comm.evaluation.columns import to_columns
from rllib_llm_comm.evaluation.statistics import wilson

OPPONENTS = ("medium", "medium_tower", "medium2")
LIMITS = (5200, MAX_TICK)
WAIT_UNTIL = 1200


class ScoutingTeam(ScriptedTeam):
    """Commanders who send a peasant to look for the enemy first, and wait for what it sees until tick 1,200."""

    def act(self, infos: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
        """Commands of all commanders at a decision, and the scout's way until the enemy is seen.

        Args:
            infos: Infos of the last step, by commander.
        """
        chosen, env = super().act(infos), self._env
        if self._seen:
            return chosen
        orders = env.executor.orders[0]
        if orders.mining and orders.stance != SCOUT:
            chosen["alice"] = env.commands.index(Command(SCOUT))
        if env.game.tick < WAIT_UNTIL:
            for agent, action in chosen.items():
                command = env.commands[action]
                if command.kind >= 0 and command.kind != PEASANT:
                    chosen[agent] = env.commands.index(NOTHING)
        return chosen


SYSTEMS: dict[str, tuple[type[ScriptedTeam], bool, Any]] = {
    "alice told, talk": (ScriptedTeam, True, ["alice"]),
    "alice told, silence": (ScriptedTeam, False, ["alice"]),
    "alice told, silence, scout first": (ScoutingTeam, False, ["alice"]),
    "all told, talk": (ScriptedTeam, True, "all"),
    "all told, silence": (ScriptedTeam, False, "all"),
    "bob told, talk": (ScriptedTeam, True, ["bob"]),
    "bob told, silence": (ScriptedTeam, False, ["bob"]),
}
"""The team, whether it talks, and who is told; bob owns the producers."""


def play(system: str, opponent: str, seeds: range, decision_ticks: int = 50) -> list[dict[str, Any]]:
    """Games of one system: result, last tick, and what the enemy trained."""
    kind, talk, told_to = SYSTEMS[system]
    rules = {"told_to": told_to, "producers": "bob", "decision_ticks": decision_ticks}
    env = minirts.parallel_env(opponent=opponent, **rules, observe=["vector"])
    team, played = kind(env, talk=talk), []
    for seed in seeds:
        _, infos = env.reset(seed=seed)
        team.begin(seed)
        fact = next(info["private"] for info in infos.values() if info["private"])
        while env.agents:
            _, _, _, _, infos = env.step(team.act(infos))
        result = (env.game.winner == env.team.player) - (env.game.winner == 1 - env.team.player)
        played.append({"result": result, "ticks": env.game.tick, "enemy": fact})
    return played


def share(games: list[dict[str, Any]], limit: int) -> dict[str, Any]:
    """Share of games won within a number of ticks, with its 95 % interval (Wilson)."""
    count, wins = len(games), sum(game["result"] == 1 and game["ticks"] <= limit for game in games)
    won = wilson(wins, count).rounded()
    return {"won": won["value"], "won_95": [won["low"], won["high"]]}


def main() -> None:
    """Plays the systems that are asked for and writes their figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", type=int, default=60, help="games per system and opponent, with the seeds 0, 1, ...")
    parser.add_argument("--systems", nargs="+", default=list(SYSTEMS), choices=list(SYSTEMS))
    parser.add_argument("--opponents", nargs="+", default=list(OPPONENTS))
    parser.add_argument("--decision-ticks", type=int, default=50, help="ticks from one decision to the next")
    parser.add_argument("--json", type=Path, help="where results are kept")
    options = parser.parse_args()
    cells: dict[str, Any] = {}
    for opponent in options.opponents:
        for system in options.systems:
            games = play(system, opponent, range(options.games), options.decision_ticks)
            shares = {f"within {limit} ticks": share(games, limit) for limit in LIMITS}
            cells[f"{system}; {opponent}"] = {**shares, "games": to_columns(games)}
            print(
                f"{opponent:14} {system:34}",
                *(f"{one['won']:.2f} {one['won_95']}" for one in shares.values()),
                flush=True,
            )
    if options.json:
        data = {
            "what": "share of games won by scripted commanders, bob owns the producers",
            "made_by": shlex.join(["python", "benchmarks/minirts_told.py", *sys.argv[1:]]),
            "stands_in": "scripted commanders and officers; no model",
            "max_tick": MAX_TICK,
            "decision_ticks": options.decision_ticks,
            "cells": cells,
        }
        options.json.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(options.json, json.dumps(data, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
