"""Training steps per second of a best response in the onion-soup kitchens, beside self-play.

    python benchmarks/partners.py --json docs/results/benchmarks/partners.json

Both train whole iterations (roll-outs and updates) in turns in one process, with batches of as many rows. `game steps`
are those that are played and learned from; a best response learns from one row of each, self-play from two. `rows` are
those that are learned from. Partners are fresh networks of the learner's size; FCP's pool has 15 in the study, where
the critic is told the partner, and 24 with 8 members.
"""

from __future__ import annotations

import argparse
from typing import Any

import ray

from harness import Row, alternate, main
from rllib_llm_comm import BestResponsePPOConfig, SelfPlayPPOConfig
from rllib_llm_comm.baselines.population.kitchen_partners import FrozenPartner, PartnerPool
from rllib_llm_comm.policies.numeric_network import NumericNetwork, NumericSettings
from rllib_llm_comm.policies.policy_folder import PolicyExport, network_file
from rllib_llm_comm.policies.policy_manifest import NUMERIC

LAYOUT, SIZE, ACTIONS = "cramped_room", 26 * 5 * 4, 6
GOAL = 0.8


def measure(options: argparse.Namespace) -> list[Row]:
    """Rows for pools of one and of many partners."""
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, object_store_memory=10**8)
    try:
        settings = ((1, "own"), (15, "partner"), (24, "own"))
        return [row for count, critic in settings for row in with_partners(count, critic, options)]
    finally:
        ray.shutdown()


def with_partners(count: int, critic: str, options: argparse.Namespace) -> list[Row]:
    """Game steps and rows per second with so many partners, and a critic that is told them or not."""
    rows = 128 if options.smoke else 12_800
    own, alone = _built(BestResponsePPOConfig, rows, ["stay"] * count, critic), _built(SelfPlayPPOConfig, rows)
    try:
        own.set_pool(PartnerPool(tuple(FrozenPartner(str(number), _partner(number)) for number in range(count))))
        seconds = [min(found) for found in alternate([own.train, alone.train], options.rounds)]
    finally:
        own.stop()
        alone.stop()
    settings = {"layout": LAYOUT, "rows": rows, "partners": count, "critic_observation": critic}
    steps = [rows / seconds[0], rows / 2 / seconds[1]]
    learned = [rows / seconds[0], rows / seconds[1]]
    return [
        Row(f"partners/game steps, best response to {count}", *steps, "steps/s", GOAL, settings),
        Row(f"partners/rows, best response to {count}", *learned, "rows/s", GOAL, settings),
    ]


def _built(kind: Any, rows: int, pool: list[str] | None = None, critic: str = "own") -> Any:
    config = kind().environment(env_config={"layout": LAYOUT}).debugging(seed=0)
    config.training(train_batch_size_per_learner=rows, minibatch_size=min(1600, rows))
    if pool is not None:
        config.partners(pool=pool).policy_network(critic_observation=critic)
    return config.build_algo()


def _partner(seed: int) -> PolicyExport:
    settings = NumericSettings(activation="relu", init_seed=seed)
    sizes = {"size": SIZE, "actions": ACTIONS, "critic_size": None}
    network = NumericNetwork(settings, SIZE, ACTIONS)
    return PolicyExport(NUMERIC, network_file(network), {**settings.to_dict(), **sizes})


if __name__ == "__main__":
    main(__doc__.splitlines()[0], measure)
