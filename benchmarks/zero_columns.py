"""Seconds of an iteration of self-play in the onion-soup kitchens, with and without columns that are always zero.

    python benchmarks/zero_columns.py --json docs/results/benchmarks/zero_columns.json

Whole iterations, roll-out and update, as in `tuned_examples/self_play_ppo.yaml`. The yardstick is the same algorithm
that learns from all columns of the planes. Both take turns in one process and go on learning meanwhile.
"""

from __future__ import annotations

import argparse
from typing import Any

import ray

from harness import Row, compare, main
from rllib_llm_comm import SelfPlayPPOConfig
from rllib_llm_comm.envs.overcooked_ai.layouts import LAYOUT_NAMES
from rllib_llm_comm.policies import numeric_network

USUAL = numeric_network.WORTH_IT


def measure(options: argparse.Namespace) -> list[Row]:
    """A row per kitchen."""
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, object_store_memory=10**8)
    try:
        layouts = LAYOUT_NAMES[:1] if options.smoke else LAYOUT_NAMES
        return [in_kitchen(layout, options) for layout in layouts]
    finally:
        ray.shutdown()


def in_kitchen(layout: str, options: argparse.Namespace) -> Row:
    """Seconds of an iteration in one kitchen."""
    rows = 128 if options.smoke else 12_800
    config = SelfPlayPPOConfig().environment(env_config={"layout": layout}).debugging(seed=0)
    config.training(train_batch_size_per_learner=rows, minibatch_size=min(1600, rows))
    narrow, whole = config.build_algo(), config.copy().build_algo()
    try:
        seconds = compare(lambda: _train(narrow, USUAL), lambda: _train(whole, -1.0), options.rounds)
        first = narrow.learner_group._learner.module["shared"].unwrapped().network.actor[0]
        settings = {"rows": rows, "columns": first.in_features, "left": len(first.columns)}
    finally:
        narrow.stop()
        whole.stop()
    return Row(f"zero_columns/self-play, {layout}", *seconds, "s/iteration", None, settings, lower_is_better=True)


def _train(algo: Any, worth_it: float) -> None:
    numeric_network.WORTH_IT = worth_it
    algo.train()


if __name__ == "__main__":
    main(__doc__.splitlines()[0], measure)
