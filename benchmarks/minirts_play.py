"""Share of games that scripted commanders win in the strategy game, by commander and opponent.

    python benchmarks/minirts_play.py --games 100 --seeds 3 --json docs/results/minirts/play.json

Two commanders choose commands in words, scripted officers carry them out. A seed s plays the games with the seeds
1000 s, 1000 s + 1, ... Results are kept game by game, so that a run that was cut off goes on.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from rllib_llm_comm.envs import minirts
from rllib_llm_comm.envs.minirts.commanders import NAMES, make_commander
from rllib_llm_comm.envs.minirts.env import MAX_TICK
from rllib_llm_comm.evaluation.officers import games_as_columns, games_by_seed
from rllib_llm_comm.evaluation.statistics import wilson

OPPONENTS = ("simple", "medium", "medium2", "medium3", "medium_tower", "strong")
SPREAD = 1000


def play(env: minirts.MiniRTS, name: str, seed: int) -> dict[str, Any]:
    """One game."""
    env.reset(seed=seed)
    commander = make_commander(name, env.executor, env.commands, seed)
    while env.agents:
        actions = {agent: env.commands.index(commander(i)) for i, agent in enumerate(env.agents)}
        env.step(actions)
    return {"result": (env.game.winner == env.team.player) - (env.game.winner == 1 - env.team.player),
            "ticks": env.game.tick}  # fmt: skip


def summary(games: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Shares of all games of a cell, with the 95 % interval of the wins (Wilson)."""
    results = [game["result"] for game in games.values()]
    count, wins = len(results), results.count(1)
    won = wilson(wins, count).rounded()
    return {
        "games": count,
        "won": won["value"],
        "drawn": round(results.count(0) / count, 4),
        "won_95": [won["low"], won["high"]],
        "ticks_mean": round(sum(game["ticks"] for game in games.values()) / count),
    }


def main() -> None:
    """Plays the pairs that are asked for and writes their figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", type=int, default=100, help="games per seed, commander and opponent")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--commanders", nargs="+", default=list(NAMES))
    parser.add_argument("--opponents", nargs="+", default=list(OPPONENTS))
    parser.add_argument("--num-agents", type=int, default=2)
    parser.add_argument("--json", type=Path, help="where results are kept")
    options = parser.parse_args()
    kept: dict[str, Any] = json.loads(options.json.read_text()) if options.json and options.json.exists() else {}
    cells = {name: games_by_seed(games) for name, games in kept.get("played", {}).items()}
    start = time.perf_counter()
    for seed in range(options.seeds):
        for commander in options.commanders:
            for opponent in options.opponents:
                env = minirts.parallel_env(num_agents=options.num_agents, opponent=opponent, observe=["vector"])
                games = cells.setdefault(f"{commander} against {opponent}", {})
                for number in range(SPREAD * seed, SPREAD * seed + options.games):
                    if str(number) not in games:
                        games[str(number)] = play(env, commander, number)
                if options.json:
                    write(options, cells)
    print(table(options, cells))
    print(f"{time.perf_counter() - start:.0f} s")


def write(options: argparse.Namespace, cells: dict[str, Any]) -> None:
    """Keeps all games, and their figures."""
    data = {
        "what": "games won by scripted commanders with scripted officers, by commander and opponent",
        "settings": {"num_agents": options.num_agents, "max_tick": MAX_TICK},
        "summary": {name: summary(games) for name, games in cells.items() if games},
        "played": {name: games_as_columns(games) for name, games in cells.items()},
    }
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(data, separators=(",", ":")) + "\n")


def table(options: argparse.Namespace, cells: dict[str, Any]) -> str:
    """Shares of games won, as Markdown."""
    lines = [f"| Commander | {' | '.join(options.opponents)} |", f"|{' --- |' * (len(options.opponents) + 1)}"]
    for commander in options.commanders:
        found = [cells.get(f"{commander} against {opponent}") for opponent in options.opponents]
        shares = [f"{summary(games)['won']:.2f}" if games else "" for games in found]
        lines.append(f"| {commander} | {' | '.join(shares)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
