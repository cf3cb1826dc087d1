"""Updates and game steps per second of QMIX under RLlib, beside plain torch and beside games played one by one.

    python benchmarks/value_decomposition.py --json docs/results/benchmarks/value_decomposition.json

`update` is one update with its draw from the replay: by RLlib's learner, and (reference) by plain torch with the same
loss, network and optimizer. It is measured for both ways to play: kitchens as compiled arrays, in whole episodes and in
the study's pieces, and a game step by step, here a short one. `play` is game steps with the acting network: kitchens as
arrays, and (reference) the same kitchen step by step.
"""

from __future__ import annotations

import argparse
import copy
from typing import Any

import ray
import torch

from harness import Row, alternate, compare, main
from rllib_llm_comm import QMIXConfig

ENV = "rllib_llm_comm/overcooked_ai-v0"
EPISODES, GAMES = 32, 8
PIECE, SHORT = 50, 40  # steps of a piece, and of a short episode


def measure(options: argparse.Namespace) -> list[Row]:
    """All rows."""
    ray.init(num_cpus=1, object_store_memory=10**8, include_dashboard=False, log_to_driver=False)
    horizon = 20 if options.smoke else 400
    arrays = algorithm(horizon, array_games=True)
    pieces = algorithm(horizon, array_games=True, recurrent=False, sequence_length=PIECE, td_lambda=0.6)
    stepwise, single = (algorithm(steps, array_games=False) for steps in (SHORT, horizon))
    try:
        whole = {"episodes": EPISODES, "horizon": horizon}
        rows = [
            update("whole episodes, arrays", arrays, whole, options.rounds),
            update("pieces, arrays", pieces, {**whole, "sequence_length": PIECE}, options.rounds),
            update("whole episodes, step by step", stepwise, {**whole, "horizon": SHORT}, options.rounds),
        ]
        rows.append(play(arrays, single, horizon, options.rounds))
    finally:
        for algo in (arrays, pieces, stepwise, single):
            algo.stop()
        ray.shutdown()
    return rows


def algorithm(horizon: int, array_games: bool, recurrent: bool = True, **training: Any) -> Any:
    """QMIX in cramped_room."""
    return (
        QMIXConfig()
        .environment(ENV, env_config={"horizon": horizon, "observe": ["vector"], "vector": "planes"})
        .env_runners(num_envs_per_env_runner=GAMES if array_games else 1)
        .policy_network(recurrent=recurrent)
        .training(
            array_games=array_games, train_batch_size_per_learner=EPISODES, buffer_episodes=4 * EPISODES, **training
        )
        .debugging(seed=0)
        .build_algo()
    )


def update(name: str, algo: Any, settings: dict[str, Any], rounds: int) -> Row:
    """Updates by RLlib's learner, beside some in plain torch; both draw from the same replay."""
    while len(algo.local_replay_buffer) < EPISODES:
        algo.local_replay_buffer.add(algo.env_runner.roll_out(GAMES, 0))
    live = copy.deepcopy(algo.learner_group._learner.module["default_policy"].unwrapped().team)
    target = copy.deepcopy(live).eval()
    optimizer = torch.optim.RMSprop(live.parameters(), lr=5e-4, alpha=0.99, eps=1e-5)
    loss = algo.config.team_loss()

    def plain() -> None:
        """An update without RLlib."""
        episodes = algo.local_replay_buffer.sample(EPISODES, algo.config.sequence_length)
        value, _ = loss(live, target, {name: torch.as_tensor(values) for name, values in episodes.items()})
        optimizer.zero_grad()
        value.backward()
        torch.nn.utils.clip_grad_norm_(live.parameters(), 10.0)
        optimizer.step()

    own, reference = compare(algo._update, plain, rounds)
    chosen = {name: getattr(algo.config, name) for name in ("array_games", "recurrent", "td_lambda")}
    settings = {"layout": "cramped_room", **settings, **chosen}
    return Row(f"value_decomposition/update, {name}", 1 / own, 1 / reference, "updates/s", None, settings)


def play(arrays: Any, single: Any, horizon: int, rounds: int) -> Row:
    """Game steps of both runners."""
    seconds = alternate(
        [lambda: arrays.env_runner.roll_out(GAMES, 0), lambda: single.env_runner.roll_out(1, 0)], rounds
    )
    own, reference = (sorted(times)[len(times) // 2] for times in seconds)
    settings = {"layout": "cramped_room", "games": GAMES, "horizon": horizon}
    rates = GAMES * horizon / own, horizon / reference
    return Row("value_decomposition/play, arrays", *rates, "steps/s", None, settings)


if __name__ == "__main__":
    main(__doc__.splitlines()[0], measure)
