"""Games of frozen numeric policies with each other in an onion-soup kitchen, all pairs side by side in arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from rllib_llm_comm.envs.overcooked_ai.batch import KitchenBatch
from rllib_llm_comm.envs.overcooked_ai.rules import HORIZON, NUM_ACTIONS
from rllib_llm_comm.policies.policy_folder import PolicyExport, network_of


@dataclass(frozen=True)
class Matches:
    """Sums over the games of each pair (P,).

    Attributes:
        sparse: Points for soups.
        shaped: Shaped rewards of both cooks, at factor 1.
        steps: Game steps.
        games: Games per pair.
    """

    sparse: np.ndarray
    shaped: np.ndarray
    steps: np.ndarray
    games: int

    @property
    def scores(self) -> np.ndarray:
        """Points per game (P,)."""
        return np.asarray(self.sparse / self.games)


def play_matches(
    policies: Sequence[PolicyExport],
    pairs: Sequence[tuple[int, int]],
    games: int,
    env_config: Mapping[str, Any],
    seed: int | Sequence[int],
) -> Matches:
    """Plays whole games of all pairs with sampled actions.

    Args:
        policies: Numeric policies that see the kitchen's lossless planes.
        pairs: Numbers of the policies that are player 0 and player 1, P >= 1 pairs.
        games: Games of each pair, >= 1.
        env_config: Settings of the kitchen: `layout`, `dynamics`, `horizon`.
        seed: Of the actions.
    """
    rng = np.random.default_rng(seed)
    horizon = env_config.get("horizon", HORIZON)
    kitchens = KitchenBatch(
        len(pairs) * games, env_config.get("layout", "cramped_room"), env_config.get("dynamics", "old"), horizon
    )
    player = np.repeat(np.asarray(pairs, int), games, axis=0).reshape(-1)
    rows = {int(number): np.flatnonzero(player == number) for number in np.unique(player)}
    networks = {number: network_of(policies[number]) for number in rows}
    sparse, shaped = np.zeros(len(kitchens.states)), np.zeros(len(kitchens.states))
    logits = np.zeros((len(player), NUM_ACTIONS))
    with torch.no_grad():
        for _ in range(horizon):
            planes = torch.from_numpy(kitchens.lossless().reshape(len(player), -1).view(np.uint8)).float()
            for number, network in networks.items():  # all actions are allowed, so the actor alone is enough
                logits[rows[number]] = network.actor(planes[rows[number]]).numpy()
            actions = (logits + rng.gumbel(size=logits.shape)).argmax(1)
            points, shares, _ = kitchens.step(actions.reshape(-1, 2))
            sparse += points.sum(1)
            shaped += shares.sum(1)
    points, shares = (sums.reshape(len(pairs), games).sum(1) for sums in (sparse, shaped))
    return Matches(points, shares, np.full(len(pairs), float(games * horizon)), games)
