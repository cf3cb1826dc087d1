"""Algorithms that are stopped at the end of a block, whatever happens in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig


def curve(algo: Any) -> list[float]:
    """The losses of two iterations."""
    return [float(algo.train()["learners"]["shared"]["policy_loss"]) for _ in range(2)]


def cooks(kind: type[Any], rows: int, horizon: int = 30, width: int = 16, games: int = 3, **training: Any) -> Any:
    """A config of PPO on onion soups in the smallest kitchen: games side by side, `rows` decisions per batch."""
    return (
        kind()
        .environment(env_config={"layout": "cramped_room", "horizon": horizon})
        .policy_network(hiddens=[width])
        .env_runners(num_envs_per_env_runner=games)
        .training(**{"train_batch_size_per_learner": rows, "minibatch_size": 60, "num_epochs": 2, **training})
        .debugging(seed=0)
    )


@contextmanager
def running(made: AlgorithmConfig | Algorithm) -> Iterator[Any]:
    """Gives an algorithm, or builds that of a config, and stops it at the end."""
    algo = made.build_algo() if isinstance(made, AlgorithmConfig) else made
    try:
        yield algo
    finally:
        algo.stop()
