"""Untrained policies for kitchens of onion soup: a cook of single steps, and a follower of subgoals."""

from __future__ import annotations

from typing import Any

import torch

from rllib_llm_comm.envs.overcooked_ai.subgoal_env import subgoal_env
from rllib_llm_comm.language.text_encoder import load_text_encoder
from rllib_llm_comm.policies.numeric_network import NumericNetwork, NumericSettings
from rllib_llm_comm.policies.policy_folder import network_file, write_policy
from rllib_llm_comm.policies.policy_manifest import GROUNDED, NUMERIC, PolicyManifest
from rllib_llm_comm.sama.emma.network import EmmaNetwork, EmmaSettings, emma_space

AI, SUBGOALS = "rllib_llm_comm/overcooked_ai-v0", "rllib_llm_comm/overcooked_ai_subgoals-v0"


def write_cook(folder, size: int, seed: int = 3, sharp: float = 1.0, **env_config: Any) -> str:
    """Writes a policy that sees `size` numbers; gives its path. The larger `sharp`, the more chances differ."""
    network = NumericNetwork(NumericSettings(init_seed=seed, hiddens=[16]), size, 6)
    with torch.no_grad():
        network.actor[-1].weight *= sharp
    model = {**network.settings.to_dict(), "size": size, "actions": 6, "critic_size": None}
    manifest = PolicyManifest("SelfPlayPPO", model, {}, AI, {"observe": ["vector"], **env_config}, kind=NUMERIC)
    return str(write_policy(folder, network_file(network), manifest))


def follower(seed: int = 0, sharp: float = 1.0, critic: dict[str, str] | None = None, **env_config: Any):
    """An EMMA and its manifest; `critic` are settings of its critic."""
    env = subgoal_env(**env_config)
    how = EmmaSettings(width=6, filters=5, hiddens=[8], init_seed=seed, **(critic or {}))
    space = emma_space("alice", env.observation_space("alice"), env.action_space("alice"), how)
    sizes = {
        "symbols": int(space["frames"].high.max()) + 1,
        "shape": list(space["frames"].shape[1:3]),
        "actions": int(env.action_space("alice").n),
        "state_size": space["critic_state"].shape[0] if "critic_state" in space.spaces else 0,
    }
    network = EmmaNetwork(how, encoder=load_text_encoder(), **sizes)
    with torch.no_grad():
        network.actor.head.weight *= sharp
    return network, PolicyManifest("EMMA", {**how.to_dict(), **sizes}, {}, SUBGOALS, env_config, kind=GROUNDED)


def write_follower(folder, **how: Any) -> str:
    """Writes a follower; gives its path."""
    network, manifest = follower(**how)
    return str(write_policy(folder, network_file(network), manifest))
