"""Games and ticks per second of the strategy game.

    python benchmarks/minirts.py --json docs/results/benchmarks/minirts.json

One core; scripted opponents on both sides, which act every 50 ticks. The yardstick is the rate that is asked for; the
original (C++, maps in Lua) was measured elsewhere to play 2.6 to 3.9 games/s with map generation and 43,000 ticks/s
without, on a core of another machine.
"""

from __future__ import annotations

import argparse

from harness import Row, alternate, main
from rllib_llm_comm.envs.minirts.engine.mapgen import generate
from rllib_llm_comm.envs.minirts.engine.rts_game import RTSGame, RTSSettings

PAIRS = (("simple", "medium"), ("medium", "medium"), ("strong", "medium"), ("medium2", "medium3"))
# What is asked for.
GAMES_GOAL, TICKS_GOAL = 8.0, 43_000.0


def measure(options: argparse.Namespace) -> list[Row]:
    """All rows."""
    games = 1 if options.smoke else 16
    rows = [row for pair in PAIRS[: 1 if options.smoke else None] for row in play(pair, games, options.rounds)]
    rows.append(maps(4 * games, options.rounds))
    return rows


def play(pair: tuple[str, str], games: int, rounds: int) -> list[Row]:
    """Whole games, with and without the generation of their maps."""
    game = RTSGame(0, RTSSettings(opponents=pair))
    lengths: list[int] = []

    def whole() -> None:
        """Games from their maps to their ends."""
        lengths.clear()
        for seed in range(games):
            game.reset(seed)
            while not game.over:
                game.run(1000)
            lengths.append(game.tick)

    def only_maps() -> None:
        """The generation of the maps alone."""
        for seed in range(games):
            game.reset(seed)

    seconds = [sorted(own)[len(own) // 2] for own in alternate([whole, only_maps], rounds)]
    settings = {"games": games, "ticks_per_game": round(sum(lengths) / games)}
    name = " against ".join(pair)
    rates = games / seconds[0], sum(lengths) / max(1e-9, seconds[0] - seconds[1])
    return [
        Row(f"minirts/games, {name}", rates[0], GAMES_GOAL, "games/s", 1.0, settings),
        Row(f"minirts/ticks without maps, {name}", rates[1], TICKS_GOAL, "ticks/s", None, settings),
    ]


def maps(count: int, rounds: int) -> Row:
    """Map generation alone."""
    (seconds,) = alternate([lambda: [generate(seed) for seed in range(count)]], rounds)
    return Row("minirts/maps", count / sorted(seconds)[len(seconds) // 2], None, "maps/s", None, {"maps": count})


if __name__ == "__main__":
    main(__doc__.splitlines()[0], measure)
