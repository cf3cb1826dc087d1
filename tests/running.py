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


@contextmanager
def running(made: AlgorithmConfig | Algorithm) -> Iterator[Any]:
    """Gives an algorithm, or builds that of a config, and stops it at the end."""
    algo = made.build_algo() if isinstance(made, AlgorithmConfig) else made
    try:
        yield algo
    finally:
        algo.stop()
