"""Loss of RED's collective action: games won when scripted officers act through its labels, by rule of the label.

    python benchmarks/minirts_labels.py --games 100 --json docs/results/minirts/labels.json

The oracle commands. At each decision the scripted officers' orders become one collective command per commander
(`collective_command`), which is played with the action level "red". "orders" plays the orders themselves. All
play the same games, with the seeds 0, 1, ... Games are kept one by one, so that a run that was cut off goes on.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from rllib_llm_comm.core.files import write_atomically
from rllib_llm_comm.envs import minirts
from rllib_llm_comm.envs.minirts.collective_command import HEADS, RULES, CollectiveLabels
from rllib_llm_comm.envs.minirts.commanders import make_commander
from rllib_llm_comm.envs.minirts.words import all_commands
from rllib_llm_comm.evaluation.officers import games_as_columns, games_by_seed
from rllib_llm_comm.evaluation.statistics import wilson

ORDERS = "orders"
NUMBERS = (1, 3, 5)


def play(env: minirts.MiniRTS, rule: str, seed: int) -> dict[str, Any]:
    """One game."""
    env.reset(seed=seed)
    commands = all_commands(NUMBERS)
    commander = make_commander("oracle", env.executor, commands, seed)
    labels = None if rule == ORDERS else CollectiveLabels(env.team, rule)
    wanted = labelled = 0
    while env.agents:
        chosen = [commander(i) for i in range(env.team.size)]
        if labels is None:
            env.step({agent: commands.index(chosen[i]) for i, agent in enumerate(env.agents)})
            continue
        for i, command in enumerate(chosen):
            env.executor.command(i, command)
        orders = env.executor.give_orders()
        actions = labels.actions(orders)
        wanted += len(orders)
        labelled += sum(int(action[len(HEADS) :].sum()) for action in actions)
        env.step(dict(zip(env.agents, actions, strict=True)))
    result = (env.game.winner == env.team.player) - (env.game.winner == 1 - env.team.player)
    return {"result": result, "ticks": env.game.tick, "orders": wanted, "labelled": labelled}


def summary(games: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Shares of the games of a cell, with the 95 % interval of the wins (Wilson), and the share of orders labelled."""
    results = [game["result"] for game in games.values()]
    count, won = len(results), wilson(results.count(1), len(results)).rounded()
    wanted = sum(game["orders"] for game in games.values())
    return {
        "games": count,
        "won": won["value"],
        "drawn": round(results.count(0) / count, 4),
        "won_95": [won["low"], won["high"]],
        "ticks_mean": round(sum(game["ticks"] for game in games.values()) / count),
        "orders_labelled": round(sum(game["labelled"] for game in games.values()) / wanted, 4) if wanted else None,
    }


def main() -> None:
    """Plays the rules that are asked for and writes their figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", type=int, default=100, help="games per rule")
    parser.add_argument("--rules", nargs="+", default=[ORDERS, *RULES])
    parser.add_argument("--opponent", default="medium2")
    parser.add_argument("--num-agents", type=int, default=2)
    parser.add_argument("--json", type=Path, required=True, help="where results are kept")
    options = parser.parse_args()
    kept: dict[str, Any] = json.loads(options.json.read_text()) if options.json.exists() else {}
    cells = {name: games_by_seed(games) for name, games in kept.get("played", {}).items()}
    start = time.perf_counter()
    for rule in options.rules:
        level = {"action_level": "command", "numbers": NUMBERS} if rule == ORDERS else {"action_level": "red"}
        env = minirts.parallel_env(
            num_agents=options.num_agents, opponent=options.opponent, observe=["vector"], **level
        )  # fmt: skip
        games = cells.setdefault(f"{rule} against {options.opponent}, {options.num_agents} commanders", {})
        for number in range(options.games):
            if str(number) not in games:
                games[str(number)] = play(env, rule, number)
                write(options.json, cells)
    for name, games in cells.items():
        print(name, summary(games))
    print(f"{time.perf_counter() - start:.0f} s")


def write(path: Path, cells: dict[str, Any]) -> None:
    """Keeps all games, and their figures."""
    data = {
        "what": "games won under the oracle by scripted officers that act through the labels of collective commands",
        "summary": {name: summary(games) for name, games in cells.items() if games},
        "played": {name: games_as_columns(games) for name, games in cells.items()},
    }
    write_atomically(path, json.dumps(data, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
