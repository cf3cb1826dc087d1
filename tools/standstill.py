"""Kitchens in which a team stands still or walks in circles, with its best actions and with some random ones.

    python -m tools.standstill CHECKPOINT... --json docs/results/value_decomposition/standstill.json

Different states of a game are counted over 100 game steps: 1 if it stands still, a few if its cooks walk in circles.
The steps end 40 before the end of the game: from there on the cooks' view counts down.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rllib_llm_comm import load_policy
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.policies.decision import Request

LOOK, LEFT = 100, 40  # game steps that are looked at, and those after them


def rows(checkpoint: str, games: int, shares: list[float]) -> Iterator[dict[str, Any]]:
    """Points and different states of the games, means, for each share of random actions."""
    policy = load_policy(checkpoint)
    env = policy.env(shaping=0.0)
    for share in shares:
        played = [play(policy, env, seed, share) for seed in range(1000, 1000 + games)]
        points, states = np.mean(played, axis=0).tolist()
        yield {
            "checkpoint": checkpoint,
            "random_share": share,
            "games": games,
            "points": points,
            "states": states,
        }
    env.close()


def play(policy: Any, env: Any, seed: int, share: float) -> tuple[float, int]:
    """Points of a game, and its different states in the steps that are looked at."""
    draws = np.random.default_rng(seed)
    seen, _ = env.reset(seed=seed)
    memory, points, states = policy.begin(seed), 0.0, []
    while env.agents:
        decisions = policy.act_together([Request(memory, seen)], explore=False)[0]
        actions = {agent: decision.action for agent, decision in decisions.items()}
        for agent in actions:
            if draws.random() < share:
                actions[agent] = int(draws.integers(env.action_space(agent).n))
                policy.keep(agent, memory, actions[agent])
        states.append(env.state().tobytes())
        seen, rewards, *_ = env.step(actions)
        points += float(np.mean(list(rewards.values())))
    if len(states) < LOOK + LEFT:
        raise UserError(f"A game has {len(states)} steps but must have {LOOK + LEFT} or more; give other checkpoints.")
    return points, len(set(states[-LOOK - LEFT : -LEFT]))


def main() -> None:
    """Plays all checkpoints and writes their rows."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("checkpoints", nargs="+", metavar="CHECKPOINT", help="checkpoints of onion-soup kitchens")
    parser.add_argument("--json", type=Path, required=True, help="file of the rows")
    parser.add_argument("--games", type=int, default=20, help="games of each, with seeds from 1000 up; 20")
    parser.add_argument(
        "--random", type=float, nargs="+", default=[0.0, 0.05], help="shares of random actions; 0, 0.05"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    told = []
    try:
        for checkpoint in options.checkpoints:
            for row in rows(checkpoint, options.games, options.random):
                print(row, flush=True)
                told.append(row)
    except UserError as error:
        parser.error(str(error))
    partial = options.json.with_suffix(".partial")
    partial.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    partial.replace(options.json)


if __name__ == "__main__":
    main()
