"""Cooks that have learned nothing: one whose choices do not depend on what it sees, and who likes to stay."""

from __future__ import annotations

from pathlib import Path

import torch

from rllib_llm_comm.policies.numeric_network import NumericNetwork, NumericSettings
from rllib_llm_comm.policies.policy_folder import network_file, write_policy
from rllib_llm_comm.policies.policy_manifest import NUMERIC, PolicyManifest

AI = "rllib_llm_comm/overcooked_ai-v0"
SIZE = 26 * 5 * 4  # planes of cramped_room
LIKED = [0.0, -1.0, -2.0, -3.0, 5.0, 4.0]  # logits: stay, then interact, then north, south, east, west


def idle_cook(folder: Path, horizon: int) -> str:
    """Writes its policy for cramped_room.

    Args:
        folder: The policy's folder; made.
        horizon: Game steps of an episode.

    Returns:
        The folder.
    """
    network = NumericNetwork(NumericSettings(init_seed=0, hiddens=[4]), SIZE, 6)
    with torch.no_grad():
        network.actor[-1].weight.zero_()
        network.actor[-1].bias.copy_(torch.tensor(LIKED))
    return write_cook(folder, network, horizon)


def random_cook(folder: Path, horizon: int, seed: int = 0) -> str:
    """As `idle_cook`, of a network as it is drawn."""
    return write_cook(folder, NumericNetwork(NumericSettings(init_seed=seed, hiddens=[16]), SIZE, 6), horizon)


def write_cook(folder: Path, network: NumericNetwork, horizon: int) -> str:
    """Writes the policy of a network; gives its folder."""
    kitchen = {"layout": "cramped_room", "horizon": horizon, "observe": ["vector"], "vector": "planes"}
    model = {**network.settings.to_dict(), "size": SIZE, "actions": 6, "critic_size": None}
    manifest = PolicyManifest("SelfPlayPPO", model, {}, AI, kitchen, kind=NUMERIC)
    return str(write_policy(folder, network_file(network), manifest))
