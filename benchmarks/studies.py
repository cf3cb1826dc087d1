"""Seeds of a study that follow each other in one process, beside a process for each of them, in wall time.

    python benchmarks/studies.py --json docs/results/benchmarks/studies.json

Eight seeds of TWOSOME with the embedded model in the textual kitchen (trials of `tuned_examples/study.yaml`), by Tune
on all cores, as `rllib study` runs them. `reference` is Tune's own way, a new process for each trial. Both leave the
same figures per seed but for rounding, which is checked. One row per length of a trial in PPO iterations; a study's own
trials have 16.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time

import ray
import torch
from ray import tune

from harness import Row, main
from rllib_llm_comm.experiments.algorithm_settings import find_algorithm
from rllib_llm_comm.rl.algorithms import register_all
from rllib_llm_comm.rl.policy_checkpoints import with_policy_folder

GOAL = 2.0
LENGTHS = (1, 4)


def measure(options: argparse.Namespace) -> list[Row]:
    """A row per length of a trial."""
    seeds = options.seeds or (2 if options.smoke else 8)
    ray.init(num_cpus=os.cpu_count(), object_store_memory=10**8, include_dashboard=False, log_to_driver=False)
    register_all()
    try:
        return [row(length, seeds, options) for length in ((1,) if options.smoke else options.iterations)]
    finally:
        ray.shutdown()


def row(iterations: int, seeds: int, options: argparse.Namespace) -> Row:
    """Seconds of all trials, in turn in a process and in processes of their own; the smallest of the rounds."""
    seconds: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(options.rounds):
        told = {}
        for in_turn, own in seconds.items():
            taken, told[in_turn] = sweep(iterations, seeds, in_turn, options.smoke)
            own.append(taken)
        torch.testing.assert_close(told[True], told[False], rtol=1e-3, atol=1e-4)  # processes round differently
    settings = {"seeds": seeds, "iterations": iterations, "run": "TWOSOME", "base_model": "embedded"}
    name = f"studies/{seeds} seeds, {iterations} iteration{'s' * (iterations > 1)} each"
    return Row(name, min(seconds[True]), min(seconds[False]), "s", GOAL, settings, lower_is_better=True)


def sweep(iterations: int, seeds: int, in_turn: bool, smoke: bool) -> tuple[float, list[float]]:
    """Seconds of a sweep over seeds, and what its trials have come to."""
    batch = 64 if smoke else 1024
    config = {
        "env": "rllib_llm_comm/overcooked_text-v0",
        "env_config": {"map_name": "B", "recipe": "lettuce-tomato salad"},
        "base_model": "embedded",
        "num_env_runners": 0,
        "num_envs_per_env_runner": 16,
        "train_batch_size_per_learner": batch,
        "minibatch_size": batch // 4,
        "num_epochs": 2,
        "seed": tune.grid_search(list(range(seeds))),
    }
    folder = tempfile.mkdtemp(prefix="studies-")
    try:
        began = time.perf_counter()
        analysis = tune.run(
            with_policy_folder(find_algorithm("TWOSOME")),
            config=config,
            stop={"training_iteration": iterations},
            storage_path=folder,
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=True),
            reuse_actors=in_turn,
            verbose=0,
        )
        seconds = time.perf_counter() - began
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    trials = sorted(analysis.trials, key=lambda trial: trial.config["seed"])
    return seconds, [float(trial.last_result["learners"]["shared"]["policy_loss"]) for trial in trials]


def more(parser: argparse.ArgumentParser) -> None:
    """The number of seeds, and the lengths of their trials."""
    parser.add_argument("--seeds", type=int, help="trials of a sweep; 8, and 2 with --smoke")
    parser.add_argument("--iterations", type=int, nargs="+", default=LENGTHS, help="iterations of a trial, a row each")


if __name__ == "__main__":
    main(__doc__.splitlines()[0], measure, more)
