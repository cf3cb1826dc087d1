"""Seconds of every phase of an iteration: the fast engine against the plain one, as `phase_seconds` logs them.

    python benchmarks/phases.py --json docs/results/benchmarks/phases.json

The plain engine (`engine: plain`) computes the same without packing, folding, kept keys and values, and memory.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import ray

from harness import Row, main
from rllib_llm_comm import VercoConfig
from rllib_llm_comm.core.phases import PHASES


def configure(engine: str, decisions: int, minibatch_size: int) -> Any:
    """The main job's PPO with the embedded model."""
    return (
        VercoConfig()
        .environment(
            "rllib_llm_comm/overcooked_text-v0", env_config={"map_name": "B", "recipe": "lettuce-tomato salad"}
        )
        .language_model(temperature=1.5, engine=engine)
        .env_runners(num_env_runners=0, num_envs_per_env_runner=16)
        .training(
            train_batch_size_per_learner=decisions, minibatch_size=minibatch_size, num_epochs=2, target_kl=None,
            lr=0.002, critic_lr=0.001, entropy_coeff=0.01,
        )
        .debugging(seed=0)
    )  # fmt: skip


def measure(options: argparse.Namespace) -> list[Row]:
    """A row per phase, and one for the whole iteration."""
    decisions, minibatch = (64, 32) if options.smoke else (192, 64)
    rounds = 1 if options.smoke else 2
    ray.init(num_cpus=1, num_gpus=0, include_dashboard=False, object_store_memory=100 * 2**20, log_to_driver=False)
    seconds: dict[str, list[dict[str, float]]] = {"fast": [], "plain": []}
    algorithms = {engine: configure(engine, decisions, minibatch).build_algo() for engine in seconds}
    try:
        for _ in range(rounds):
            for engine, algorithm in algorithms.items():
                result = algorithm.train()
                seconds[engine].append({**result["phase_seconds"], "whole iteration": result["time_this_iter_s"]})
    finally:
        for algorithm in algorithms.values():
            algorithm.stop()
        ray.shutdown()
    settings = {"decisions": decisions, "minibatch_size": minibatch, "epochs": 2, "num_envs": 16,
                "iterations": rounds, "reference": "engine: plain"}  # fmt: skip
    rows = []
    for name in (*PHASES, "whole iteration"):
        ours, plain = (float(np.mean([each[name] for each in seconds[engine]])) for engine in ("fast", "plain"))
        rows.append(Row(f"phases/{name}", ours, plain, "s", None, settings, lower_is_better=True))
    return rows


if __name__ == "__main__":
    main(__doc__.splitlines()[0], measure)
