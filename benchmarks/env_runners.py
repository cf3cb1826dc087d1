"""Roll-outs: cost per decision with more kitchens, and two EnvRunners against one.

    python benchmarks/env_runners.py --json docs/results/benchmarks/env_runners.json

`N kitchens` compares what a decision costs in an EnvRunner of N kitchens with its cost in one of a single kitchen. `two
EnvRunners` compares the decisions per second of two remote EnvRunners with those of one. Both are done for work bound
by the game (the small network of `SymbolicPPO` decides) and for the language model (Verco, messages
included, everything new in every round). `outside of the game` tells how much of a game-bound roll-out is neither game
nor network but RLlib's episodes and connectors.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import ray

from harness import Row, alternate
from harness import main as run
from rllib_llm_comm import SymbolicPPOConfig, VercoConfig

KITCHENS = (4, 16, 64)
GAME, LANGUAGE = "game-bound", "language model"


def configure(kind: str, num_envs: int, runners: int) -> Any:
    """The config of an algorithm that is only asked to play."""
    if kind == GAME:
        config: Any = SymbolicPPOConfig()
    else:
        config = VercoConfig().language_model(temperature=1.5)
    return (
        config.environment(
            "rllib_llm_comm/overcooked_text-v0", env_config={"map_name": "B", "recipe": "lettuce-tomato salad"}
        )
        .debugging(seed=0)
        .env_runners(num_env_runners=runners, num_envs_per_env_runner=num_envs)
    )


@contextmanager
def player(kind: str, num_envs: int, runners: int) -> Iterator[Any]:
    """The EnvRunners of an algorithm."""
    algorithm = configure(kind, num_envs, runners).build_algo()
    try:
        yield algorithm.env_runner_group
    finally:
        algorithm.stop()


def play(group: Any, decisions: int) -> int:
    """Lets every EnvRunner play so many decisions with nothing remembered, and gives how many were made."""

    def sample(runner: Any) -> int:
        """One EnvRunner's decisions, and their number."""
        for module in runner.module.values():
            network = getattr(module, "network", None)
            if hasattr(network, "forget"):
                network.forget()
        episodes = runner.sample(num_timesteps=decisions, random_actions=False)
        runner.get_metrics()
        return sum(len(single) for episode in episodes for single in episode.agent_episodes.values())

    counts = group.foreach_env_runner(sample, local_env_runner=group.num_remote_env_runners() == 0)
    return int(sum(counts))


def more_kitchens(kind: str, decisions: int, rounds: int) -> list[Row]:
    """Seconds per decision with more kitchens against one."""
    seconds: dict[int, float] = {}
    for num_envs in (1, *KITCHENS):
        with player(kind, num_envs, 0) as group:
            count = play(group, decisions)
            (times,) = alternate([lambda group=group: play(group, decisions)], rounds)
            seconds[num_envs] = min(times) / count
    return [
        Row(
            f"env_runners/{n} kitchens, {kind}", 1000 * seconds[n], 1000 * seconds[1], "ms/decision", 0.9,
            {"num_envs_per_env_runner": n, "reference": "1 kitchen", "decisions": decisions}, lower_is_better=True,
        )
        for n in KITCHENS
    ]  # fmt: skip


def two_runners(kind: str, decisions: int, rounds: int) -> Row:
    """Decisions per second of two remote EnvRunners against one."""
    with player(kind, 16, 2) as two, player(kind, 16, 1) as one:
        counts: dict[int, int] = {}

        def timed(group: Any, runners: int) -> None:
            """Lets a group play and notes the number of decisions."""
            counts[runners] = play(group, decisions)

        both, single = alternate([lambda: timed(two, 2), lambda: timed(one, 1)], rounds)
    rates = sorted((counts[2] / a, counts[1] / b) for a, b in zip(both, single, strict=True))
    ours, reference = sorted(rates, key=lambda pair: pair[0] / pair[1])[len(rates) // 2]
    goal = 1.7 if kind == GAME else None
    settings = {"num_envs_per_env_runner": 16, "decisions": decisions, "runners": 2}
    return Row(f"env_runners/two EnvRunners, {kind}", ours, reference, "decisions/s", goal, settings)


class Stopwatch:
    """Adds up the seconds that functions take."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.seconds, self._clock = 0.0, clock

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, timed."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            """The function's result; its seconds are added up."""
            start = self._clock()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds += self._clock() - start

        return timed


def outside_of_the_game(decisions: int) -> Row:
    """Seconds of a game-bound roll-out that the game does not take."""
    with player(GAME, 16, 0) as group:
        play(group, decisions)
        watch = Stopwatch()
        for kitchen in group.local_env_runner.env.envs:
            game = kitchen.unwrapped.env
            game.step, game.reset = watch.around(game.step), watch.around(game.reset)
        start = time.perf_counter()
        play(group, decisions)
        whole = time.perf_counter() - start
    settings = {"decisions": decisions, "share": round(1 - watch.seconds / whole, 3)}
    rest = whole - watch.seconds
    return Row("env_runners/outside of the game", rest, whole, "s", None, settings, lower_is_better=True)


def measure(options: argparse.Namespace) -> list[Row]:
    """All rows."""
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    ray.init(num_cpus=4, num_gpus=0, include_dashboard=False, object_store_memory=200 * 2**20, log_to_driver=False)
    decisions, rounds = (64, 1) if options.smoke else (1024, options.rounds)
    try:
        rows = [outside_of_the_game(decisions)]
        for kind in (GAME, LANGUAGE):
            rows += more_kitchens(kind, decisions, rounds)
            rows.append(two_runners(kind, decisions, rounds))
    finally:
        ray.shutdown()
    return rows


if __name__ == "__main__":
    run(__doc__.splitlines()[0], measure)
