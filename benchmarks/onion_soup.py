"""Game steps per second of the onion-soup kitchens, beside the original package.

    pip install "overcooked-ai==1.1.0" "gym==0.26.2" tqdm scipy   # the yardstick, only for this benchmark
    python benchmarks/onion_soup.py --json docs/results/benchmarks/onion_soup.json

`bare` is the game alone, `lossless` with the 26 channels for both cooks after every step, on one core; `many games`
are 1,024 kitchens stepped together with encodings, by one thread and by two. Without the original package its column
stays empty. JaxMARL's published rate for many kitchens on a CPU or GPU was not measured here; the goals are rates per
second.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable
from typing import Any

import numpy as np

from harness import Row, alternate, main
from rllib_llm_comm.envs.overcooked_ai import parallel_env
from rllib_llm_comm.envs.overcooked_ai.layouts import LAYOUT_NAMES, ORIGINAL_NAMES
from rllib_llm_comm.envs.overcooked_ai.rules import NUM_ACTIONS, KitchenBatch, SoupKitchen

GAMES, THREADS = 1024, 2
# Rates that are asked for, in game steps per second.
BARE_GOAL, LOSSLESS_GOAL, BATCH_GOAL = 100_000.0, 50_000.0, 450_000.0


def measure(options: argparse.Namespace) -> list[Row]:
    """All rows."""
    steps = 400 if options.smoke else 20_000
    layouts = LAYOUT_NAMES[:1] if options.smoke else LAYOUT_NAMES
    original = _original()
    rows = []
    for layout in layouts:
        rows += one_game(layout, steps, options.rounds, original)
        rows += [many_games(layout, steps, threads, options.rounds) for threads in (1, THREADS)]
    rows.append(environment(steps // 4, options.rounds))
    return rows


def one_game(layout: str, steps: int, rounds: int, original: Any) -> list[Row]:
    """One game, without and with its encoding."""
    rng = random.Random(0)
    draws = [(rng.randrange(NUM_ACTIONS), rng.randrange(NUM_ACTIONS)) for _ in range(steps)]
    kitchen = SoupKitchen(layout)

    def bare() -> None:
        """Steps without encodings."""
        kitchen.reset()
        for first, second in draws:
            kitchen.advance(first, second)

    def lossless() -> None:
        """Steps with the planes after each."""
        kitchen.reset()
        for first, second in draws:
            kitchen.advance(first, second)
            kitchen.lossless()

    few = draws[: max(100, steps // 20)]
    theirs: list[Callable[[], None]] = []
    if original is not None:
        theirs = [lambda: original(layout, few, False), lambda: original(layout, few, True)]
    seconds = [sorted(own)[len(own) // 2] for own in alternate([bare, lossless, *theirs], rounds)]
    rates = [steps / seconds[0], steps / seconds[1], *(len(few) / own for own in seconds[2:])]
    their_rates = rates[2:] or [None, None]
    return [
        Row(f"onion_soup/{name}, {layout}", rate, other, "steps/s", None, {"steps": steps, "asked_for": goal})
        for name, rate, other, goal in (
            ("bare", rates[0], their_rates[0], BARE_GOAL),
            ("lossless", rates[1], their_rates[1], LOSSLESS_GOAL),
        )
    ]


def many_games(layout: str, steps: int, threads: int, rounds: int) -> Row:
    """Many games together, with encodings; with all threads against the rate that is asked for."""
    batch = KitchenBatch(GAMES, layout, num_threads=threads)
    rounds_of_steps = max(1, 4 * steps // GAMES)
    draws = np.random.default_rng(0).integers(0, NUM_ACTIONS, (rounds_of_steps, GAMES, 2)).astype(np.int8)

    def play() -> None:
        """Steps of all games, with their planes."""
        for actions in draws:
            batch.restart(batch.step(actions)[2])
            batch.lossless()

    (seconds,) = alternate([play], rounds)
    rate = rounds_of_steps * GAMES / sorted(seconds)[len(seconds) // 2]
    asked = (BATCH_GOAL, "steps/s", 1.0) if threads == THREADS else (None, "steps/s", None)
    return Row(f"onion_soup/many games, threads {threads}, {layout}", rate, *asked, {"games": GAMES})


def environment(steps: int, rounds: int) -> Row:
    """The whole PettingZoo environment with planes."""
    env: Any = parallel_env(observe=["planes"])
    rng = random.Random(0)

    def play() -> None:
        """Steps of the environment."""
        env.reset(seed=0)
        for _ in range(steps):
            if not env.agents:
                env.reset()
            env.step({agent: rng.randrange(NUM_ACTIONS) for agent in env.agents})

    (seconds,) = alternate([play], rounds)
    rate = steps / sorted(seconds)[len(seconds) // 2]
    return Row("onion_soup/PettingZoo with planes, cramped_room", rate, None, "steps/s", None, {"steps": steps})


def _original() -> Callable[[str, list[tuple[int, int]], bool], None] | None:
    """A function that plays the original, or `None` if it is not installed."""
    np.Inf = np.inf  # type: ignore[attr-defined]  # it was written for NumPy 1
    np.bool8 = np.bool_  # type: ignore[attr-defined]
    try:
        from overcooked_ai_py.mdp.actions import Action
        from overcooked_ai_py.mdp.overcooked_mdp import OvercookedGridworld
    except ImportError as error:
        print(f"The original is not installed ({error}); its column stays empty.")
        return None
    worlds = {name: OvercookedGridworld.from_layout_name(ORIGINAL_NAMES[name]) for name in LAYOUT_NAMES}

    def play(layout: str, draws: list[tuple[int, int]], encode: bool) -> None:
        """Steps of the original."""
        world = worlds[layout]
        state = world.get_standard_start_state()
        for first, second in draws:
            state = world.get_state_transition(state, (Action.ALL_ACTIONS[first], Action.ALL_ACTIONS[second]))[0]
            if encode:
                world.lossless_state_encoding(state)

    return play


if __name__ == "__main__":
    main(__doc__.splitlines()[0], measure)
