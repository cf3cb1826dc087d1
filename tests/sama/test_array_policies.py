"""What policies of numbers and maps keep of an episode is theirs, also where an environment reuses its arrays."""

from __future__ import annotations

import numpy as np
import pytest

from rllib_llm_comm.baselines.numeric.policy import NumericPolicy
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.overcooked_ai.subgoal_env import subgoal_env
from rllib_llm_comm.language.text_encoder import load_text_encoder
from rllib_llm_comm.policies.numeric_network import NumericNetwork, NumericSettings
from rllib_llm_comm.policies.policy_manifest import PolicyManifest
from rllib_llm_comm.sama.emma.inputs import emma_space
from rllib_llm_comm.sama.emma.network import EmmaNetwork
from rllib_llm_comm.sama.emma.policy import GroundedPolicy
from rllib_llm_comm.sama.emma.settings import EmmaSettings


def numeric_policy():
    """A team of untrained CommNet agents with vectors of four numbers and three actions."""
    net = NumericNetwork(NumericSettings(network="commnet", init_seed=0), 4, 3)
    model = {"actions": 3, "size": 4}
    manifest = PolicyManifest(algorithm="CommNet", model_config=model, communication={}, kind="numeric")
    return NumericPolicy(net.eval(), manifest)


def test_a_mask_without_an_open_action_is_told():
    seen = {"vector": np.zeros(4, np.float32), "action_mask": np.zeros(3, np.int8)}
    with pytest.raises(UserError, match=r"`action_mask` of agent 'alice' is .*, and a 1 for at least one of them"):
        numeric_policy().act({"alice": seen})


def test_vectors_of_busy_agents():
    policy = numeric_policy()
    vectors = {agent: np.full(4, index, np.float32) for index, agent in enumerate(("alice", "bob"))}
    policy.act({agent: {"vector": vector} for agent, vector in vectors.items()})
    vectors["bob"].fill(9.0)  # bob is busy now
    memory = policy._memory
    batch = policy.batch([("alice", memory, {"vector": vectors["alice"]})])
    assert batch["team_vectors"][0, :, 0].tolist() == [0.0, 1.0]


def test_earlier_maps():
    env = subgoal_env(observe=["entities"], action_level="goal_cell")
    how = EmmaSettings(width=6, filters=5, hiddens=[8], frames=3, init_seed=0)
    space = emma_space("alice", env.observation_space("alice"), env.action_space("alice"), how)
    actions = int(env.action_space("alice").n)
    net = EmmaNetwork(
        how, symbols=int(space["frames"].high.max()) + 1, shape=space["frames"].shape[1:3], actions=actions,
        state_size=0, encoder=load_text_encoder(),
    )  # fmt: skip
    manifest = PolicyManifest(algorithm="EMMA", model_config={"actions": actions}, communication={}, kind="grounded")
    policy = GroundedPolicy(net.eval(), manifest)
    seen = env.reset(seed=0)[0]["alice"]
    memory = policy.begin(0)
    for number in (1, 2, 3):
        seen["entities"].fill(number)
        batch = policy.batch([("alice", memory, seen)])
    assert batch["frames"][0, :, 0, 0, 0].tolist() == [1, 2, 3]
