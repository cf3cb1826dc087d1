"""Updates and game steps per second of QMIX under RLlib, beside plain torch and beside games played one by one.

    python benchmarks/value_decomposition.py --json docs/results/benchmarks/value_decomposition.json

`update` is one update with its draw from the replay: by RLlib's learner, and (reference) by plain torch with the same
loss, network and optimizer. `play` is game steps with the acting network: kitchens as compiled arrays, and (reference)
one environment under RLlib's runner of one agent.
"""

from __future__ import annotations

import argparse
import copy
from typing import Any

import ray
import torch

from harness import Row, alternate, compare, main
from rllib_llm_comm import QMIXConfig
from rllib_llm_comm.learners.q_losses import TeamLoss, tensors

ENV = "rllib_llm_comm/overcooked_ai-v0"
EPISODES, GAMES = 32, 8


def measure(options: argparse.Namespace) -> list[Row]:
    """All rows."""
    ray.init(num_cpus=1, object_store_memory=10**8, include_dashboard=False, log_to_driver=False)
    horizon = 20 if options.smoke else 400
    arrays, single = (algorithm(horizon, array_games) for array_games in (True, False))
    try:
        while len(arrays.local_replay_buffer) < EPISODES:
            arrays.local_replay_buffer.add(arrays.env_runner.roll_out(GAMES))
        rows = [update(arrays, horizon, options.rounds)]
        rows.append(play(arrays, single, horizon, options.rounds))
    finally:
        arrays.stop()
        single.stop()
        ray.shutdown()
    return rows


def algorithm(horizon: int, array_games: bool) -> Any:
    """QMIX in cramped_room."""
    return (
        QMIXConfig()
        .environment(ENV, env_config={"horizon": horizon, "observe": ["vector"], "vector": "planes"})
        .env_runners(num_envs_per_env_runner=GAMES if array_games else 1)
        .training(array_games=array_games, train_batch_size_per_learner=EPISODES, buffer_episodes=4 * EPISODES)
        .debugging(seed=0)
        .build_algo()
    )


def update(algo: Any, horizon: int, rounds: int) -> Row:
    """One update by RLlib's learner, beside one in plain torch."""
    live = copy.deepcopy(algo.learner_group._learner.module["default_policy"].unwrapped().team)
    target = copy.deepcopy(live).eval()
    optimizer = torch.optim.RMSprop(live.parameters(), lr=5e-4, alpha=0.99, eps=1e-5)
    loss = TeamLoss()

    def plain() -> None:
        value, _ = loss(live, target, tensors(algo.local_replay_buffer.sample(EPISODES)))
        optimizer.zero_grad()
        value.backward()
        torch.nn.utils.clip_grad_norm_(live.parameters(), 10.0)
        optimizer.step()

    own, reference = compare(algo._update, plain, rounds)
    settings = {"layout": "cramped_room", "episodes": EPISODES, "horizon": horizon}
    return Row("value_decomposition/update, cramped_room", 1 / own, 1 / reference, "updates/s", None, settings)


def play(arrays: Any, single: Any, horizon: int, rounds: int) -> Row:
    """Game steps of both runners."""
    seconds = alternate([lambda: arrays.env_runner.roll_out(GAMES), lambda: single.env_runner.roll_out(1)], rounds)
    own, reference = (sorted(times)[len(times) // 2] for times in seconds)
    settings = {"layout": "cramped_room", "games": GAMES, "horizon": horizon}
    rates = GAMES * horizon / own, horizon / reference
    return Row("value_decomposition/play, cramped_room", *rates, "steps/s", None, settings)


if __name__ == "__main__":
    main(__doc__.splitlines()[0], measure)
