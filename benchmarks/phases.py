"""CPU seconds of every phase of an iteration: the fast engine against the plain one, and talk against silence.

    python benchmarks/phases.py --json docs/results/benchmarks/phases.json

The plain engine (`engine: plain`) computes the same without packing, folding, kept keys and values, and memory.
`talking seat` compares planners' seats that choose a message from a menu, which PPO trains, with the same seats in
silence: both make all gradient steps, as `target_kl` is off. One iteration of theirs comes first and is not counted.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import ray

from harness import Row, main
from rllib_llm_comm import VercoConfig
from rllib_llm_comm.core.phases import PHASES, phase

MENU = [
    "i wait here", "make a tomato salad", "make a lettuce salad", "make a onion salad", "tell me the order",
    "please bring the tomato", "please bring the lettuce", "please bring the onion", "please bring the bowl",
    "i bring the bowl",
]  # fmt: skip


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


def seats(talk: bool, decisions: int, minibatch_size: int) -> Any:
    """PPO of tuned_examples/study_planner_told.yaml, without a clone."""
    salads = ["tomato salad", "lettuce salad", "onion salad"]
    game = {"map_name": "B", "recipe": salads, "told_to": ["alice"], "max_game_steps": 60}
    menu = {"messages": "menu", "message_menu": MENU, "train_messages": True, "message_temperature": 1.0}
    return (
        VercoConfig()
        .environment("rllib_llm_comm/overcooked_text_planner-v0", env_config={"game": game, "seats": "apart"})
        .language_model(score_normalization="token")
        .communication(**(menu if talk else {"messages": "none"}))
        .env_runners(num_env_runners=0, num_envs_per_env_runner=16)
        .training(
            train_batch_size_per_learner=decisions, minibatch_size=minibatch_size, num_epochs=2, target_kl=None,
            lr=0.0005, critic_lr=0.003, entropy_coeff=0.001,
        )
        .debugging(seed=0)
    )  # fmt: skip


def rows_of(
    name: str, configs: tuple[Any, Any], rounds: int, settings: Mapping[str, Any], warm_up: bool = False
) -> list[Row]:
    """A row per phase, and one for the whole iteration.

    Args:
        name: In front of the rows' names.
        configs: Ours, and the reference.
        rounds: Iterations that are counted.
        settings: Of the rows.
        warm_up: Whether an iteration comes before them.
    """
    algorithms = [config.build_algo() for config in configs]
    seconds: list[list[dict[str, float]]] = [[], []]
    try:
        for _ in range(warm_up + rounds):
            for algorithm, own in zip(algorithms, seconds, strict=True):
                start = time.process_time()
                result = algorithm.train()
                own.append({**result["phase_seconds"], "whole iteration": time.process_time() - start})
    finally:
        for algorithm in algorithms:
            algorithm.stop()
    told = {**settings, "epochs": 2, "num_envs": 16, "iterations": rounds, "clock": "CPU seconds"}
    rows = []
    for part in (*PHASES, "whole iteration"):
        ours, other = (float(np.mean([each.get(part, 0.0) for each in own[warm_up:]])) for own in seconds)
        rows.append(Row(f"{name}{part}", ours, other or None, "s", None, told, lower_is_better=True))
    return rows


def measure(options: argparse.Namespace) -> list[Row]:
    """Rows of both comparisons."""
    main_job = (64, 32) if options.smoke else (192, 64)
    seat = (64, 32) if options.smoke else (1024, 128)
    phase.clock = time.process_time
    ray.init(num_cpus=1, num_gpus=0, include_dashboard=False, object_store_memory=100 * 2**20, log_to_driver=False)
    try:
        of_main_job = {"decisions": main_job[0], "minibatch_size": main_job[1], "reference": "engine: plain"}
        engines = configure("fast", *main_job), configure("plain", *main_job)
        rows = rows_of("phases/", engines, 1 if options.smoke else 2, of_main_job)
        of_seats = {"decisions": seat[0], "minibatch_size": seat[1], "reference": "the same seats in silence"}
        both = seats(True, *seat), seats(False, *seat)
        rows += rows_of("phases/talking seat, ", both, 1 if options.smoke else 3, of_seats, not options.smoke)
    finally:
        ray.shutdown()
    return rows


if __name__ == "__main__":
    main(__doc__.splitlines()[0], measure)
