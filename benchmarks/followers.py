"""EMMA under planners: the pairs of cross-play side by side, beside one after the other; texts that are read once.

    python benchmarks/followers.py --rounds 2 --json docs/results/benchmarks/followers.json

Both sides of cross-play play the same games to the same scores: the cook of the package with itself and with a random
one, in both seats. The yardstick plays the episodes of one pair at once (`arrays=False`). In all rows it reads manual
and subgoals in every forward pass. From planners' seats EMMA gets subgoals that are drawn at random. All figures are
seconds of a core (CPU time), so that other work on the machine counts less.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import ray
import torch

from harness import Row, compare, main
from rllib_llm_comm import EMMAConfig, load_policy, make_env
from rllib_llm_comm.envs.interface import asked
from rllib_llm_comm.evaluation.cross_play import CrossPlay, CrossPlaySettings
from rllib_llm_comm.language.text_encoder import load_text_encoder
from rllib_llm_comm.sama.emma.network import EmmaEncoder, EmmaNetwork

COOK, LAYOUT = "zoo:emma_cramped_room", "cramped_room"
SUBGOALS = ("go to floor 1:1", "fetch an onion from the left onion crate")


def measure(options: argparse.Namespace) -> list[Row]:
    """Rows for several numbers of episodes, and for roll-outs."""
    horizon = 10 if options.smoke else 100
    counts = (1,) if options.smoke else (1, 10)
    rows = [cross_play(count, horizon, options.rounds) for count in counts]
    return [*rows, *(forward_passes(count, options) for count in (2, 32)), roll_out(options), seats(options)]


def cross_play(episodes: int, horizon: int, rounds: int) -> Row:
    """Milliseconds per game step with so many episodes per pair."""

    def player(arrays: bool) -> Callable[[], Any]:
        steps = {"action_level": "primitive", "commit": False, "horizon": horizon}
        how = CrossPlaySettings(
            episodes=episodes, planning={"planner": "scripted"}, env_config=steps, metric="shaped", arrays=arrays
        )
        cross = CrossPlay([{"policy": COOK, "name": "emma"}], {"x": ["random"]}, how)
        return lambda: cross.play().scores

    ours, reference = player(True), forgetful(player(False))
    if ours() != reference():
        raise SystemExit("The two ways gave different scores.")
    seconds = compare(ours, reference, rounds, clock=time.process_time)
    steps = 3 * episodes * horizon
    settings = {"cook": COOK, "horizon": horizon, "episodes": episodes}
    name = f"followers/cross-play, {episodes} episodes per pair"
    return Row(name, *(1000 * one / steps for one in seconds), "ms/game step", None, settings, lower_is_better=True)


def forward_passes(count: int, options: argparse.Namespace) -> Row:
    """Milliseconds per forward pass of the actor for so many rows."""
    policy: Any = load_policy(COOK)
    batch, passes = seen_by(policy, count), 2 if options.smoke else 20

    def logits() -> None:
        with torch.no_grad():
            for _ in range(passes):
                policy.network.logits(batch)

    seconds = compare(logits, forgetful(logits), options.rounds, clock=time.process_time)
    found = [1000 * one / passes for one in seconds]
    settings = {"cook": COOK, "rows": count}
    return Row(f"followers/logits of {count} rows", *found, "ms", None, settings, lower_is_better=True)


def roll_out(options: argparse.Namespace) -> Row:
    """Seconds of an EnvRunner for the choices of an iteration, without its update."""
    games, choices = (4, 32) if options.smoke else (32, 2048)
    kitchen = {"observe": ["entities", "state"], "action_level": "goal_cell", "commit": True}
    kitchen |= {"layout": LAYOUT, "subgoals": "sampled", "random_starts": True}
    config: Any = EMMAConfig().environment("rllib_llm_comm/overcooked_ai_subgoals-v0", env_config=kitchen)
    config.env_runners(num_env_runners=0, num_envs_per_env_runner=games).debugging(seed=0)
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, object_store_memory=10**8)
    try:
        algorithm = config.build_algo()

        def sample() -> None:
            algorithm.env_runner.sample(num_timesteps=choices, random_actions=False)
            algorithm.env_runner.get_metrics()

        found = compare(sample, forgetful(sample), options.rounds, clock=time.process_time)
        algorithm.stop()
    finally:
        ray.shutdown()
    settings = {**kitchen, "games": games, "num_timesteps": choices}
    return Row(f"followers/roll-out of {games} games", *found, "s", None, settings, lower_is_better=True)


def seats(options: argparse.Namespace) -> Row:
    """Milliseconds per game step of one game from its planners' seats."""
    horizon = 10 if options.smoke else 100
    settings = {"game": {"layout": LAYOUT, "horizon": horizon}, "executor": f"trained:{COOK}"}
    env = make_env("rllib_llm_comm/overcooked_ai_planner-v0", **settings)

    def play() -> None:
        rng = np.random.default_rng(0)
        seen, infos = env.reset(seed=0)
        while env.agents:
            free = {agent: np.flatnonzero(seen[agent]["action_mask"]) for agent in asked(env.agents, infos)}
            seen, _, _, _, infos = env.step({agent: int(rng.choice(choices)) for agent, choices in free.items()})

    seconds = compare(play, forgetful(play), options.rounds, clock=time.process_time)
    found = [1000 * one / horizon for one in seconds]
    return Row("followers/planners' seats", *found, "ms/game step", None, settings, lower_is_better=True)


def seen_by(policy: Any, count: int) -> dict[str, torch.Tensor]:
    """Observations of so many cooks at the start of a game, with two subgoals."""
    env = policy.env()
    observations, _ = env.reset(seed=0)
    seen = observations[env.possible_agents[0]]
    encoder = EmmaEncoder(load_text_encoder(policy.network.settings.text_encoder), policy.network.settings)
    rows = [encoder.encode({**seen, "subgoal": SUBGOALS[k % 2]}, [], False) for k in range(count)]
    return {name: torch.stack([torch.from_numpy(row[name]) for row in rows]) for name in rows[0]}


def forgetful(function: Callable[[], Any]) -> Callable[[], Any]:
    """The function with networks that read each text of a step in it, as those do that learn."""
    remembering = EmmaNetwork.meanings

    def anew(network: EmmaNetwork, *asked: Any) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.enable_grad():
            meant, rows = remembering(network, *asked)
        return meant.detach(), rows

    def run() -> Any:
        EmmaNetwork.meanings = anew  # type: ignore[method-assign]
        try:
            return function()
        finally:
            EmmaNetwork.meanings = remembering  # type: ignore[method-assign]

    return run


if __name__ == "__main__":
    main(__doc__.splitlines()[0], measure)
