"""Games per second of MiniRTS at the action level "red", with the observations that officers read.

    python benchmarks/minirts_observations.py --json docs/results/benchmarks/minirts_observations.json

One core, in seconds of its own work (CPU time), so that a machine with other work gives the same figures, roughly. Two
commanders decide every 50 ticks, as in RED, and order nothing; "medium" plays against them. Maps, the engine, masks and
infos count. The last row compares the compiled `planes` and `lists` of a commander with the plain functions, on the
same moments of games under the oracle.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness import Row, main
from rllib_llm_comm.envs import minirts
from rllib_llm_comm.envs.minirts import observations
from rllib_llm_comm.envs.minirts.collective_command import nothing_new
from rllib_llm_comm.envs.minirts.commanders import make_commander

sys.path.append(str(Path(__file__).parents[1]))  # the plain views are a test's
from tests.envs import plain_views  # noqa: E402

# What is asked for.
GAMES_GOAL = 10.0
PARTS = {"planes and lists": ("planes", "lists"), "the officer's view": ("officer",)}
_DECISIONS_APART = 5


def measure(options: argparse.Namespace) -> list[Row]:
    """All rows."""
    games = 1 if options.smoke else 12
    rows = [play(name, parts, games, options.rounds) for name, parts in PARTS.items()]
    return [*rows, views(1 if options.smoke else 40, options.rounds)]


def play(name: str, parts: tuple[str, ...], games: int, rounds: int) -> Row:
    """Whole games of officers who order nothing."""
    env = minirts.parallel_env(num_agents=2, opponent="medium", action_level="red", observe=parts)
    idle, lengths = nothing_new(), list[int]()

    def whole() -> None:
        lengths.clear()
        for seed in range(games):
            env.reset(seed=seed)
            decisions = 0
            while env.agents:
                env.step(dict.fromkeys(env.agents, idle))
                decisions += 1
            lengths.append(decisions)

    seconds = _in_turn([whole], rounds)[0]
    settings = {"games": games, "decisions_per_game": round(sum(lengths) / games), "clock": "cpu"}
    return Row(f"minirts_observations/games, {name}", games / seconds, GAMES_GOAL, "games/s", 1.0, settings)


def views(decisions: int, rounds: int) -> Row:
    """The arrays of one commander, compiled and plain, at some decisions of a game."""
    env = minirts.parallel_env(num_agents=2, opponent="medium2", observe=["vector"])
    env.reset(seed=0)
    commander = make_commander("oracle", env.executor, env.commands)
    spent = [[0.0, 0.0] for _ in range(rounds)]
    taken = 0
    while env.agents and taken < decisions:
        for _ in range(_DECISIONS_APART):
            env.step({agent: env.commands.index(commander(number)) for number, agent in enumerate(env.agents)})
        both = [lambda module=module: _seen(module, env.team) for module in (observations, plain_views)]
        for total, one in zip(spent, _rounds(both, rounds), strict=True):
            total[0], total[1] = total[0] + one[0], total[1] + one[1]
        taken += 1
    ours, plain = (sorted(total[which] for total in spent)[rounds // 2] / taken * 1e6 for which in range(2))
    settings = {"decisions": taken, "clock": "cpu"}
    return Row(
        "minirts_observations/planes and lists of a commander", ours, plain, "us", None, settings, lower_is_better=True
    )


def _seen(module: Any, side: Any) -> None:
    module.planes(side, 0)
    module.lists(side, 0)


def _in_turn(functions: list[Callable[[], None]], rounds: int) -> list[float]:
    """The median of the CPU seconds of each function."""
    found = _rounds(functions, rounds)
    return [sorted(one[which] for one in found)[rounds // 2] for which in range(len(functions))]


def _rounds(functions: list[Callable[[], None]], rounds: int) -> list[list[float]]:
    """CPU seconds of each function in each round; they take turns, after one round that does not count."""
    found = list[list[float]]()
    for _ in range(rounds + 1):
        found.append([])
        for function in functions:
            start = time.process_time()
            function()
            found[-1].append(time.process_time() - start)
    return found[1:]


if __name__ == "__main__":
    main(__doc__.splitlines()[0], measure)
