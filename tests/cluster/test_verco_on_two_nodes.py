"""Verco on a Ray cluster of two nodes, both on this machine: two EnvRunners and two Learners, spread over both."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import ray
from ray import cloudpickle

from rllib_llm_comm import VercoConfig
from tests.running import running

pytestmark = pytest.mark.slow  # two nodes, and four processes that load a language model
MODULE = "shared"
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # the other processes do not know this file


def config():
    return (
        VercoConfig()
        .environment("rllib_llm_comm/overcooked_text-v0", env_config={"map_name": "B", "max_game_steps": 12})
        .env_runners(num_env_runners=2, num_envs_per_env_runner=2)
        .learners(num_learners=2)
        .training(train_batch_size_per_learner=24, minibatch_size=12, num_epochs=2, lr=1e-3)
        .debugging(seed=0)
    )


def learned(learner):
    """What a Learner holds, by name, and the node that it is on."""
    state = learner.get_state(components="rl_module")["rl_module"][MODULE]
    return ray.get_runtime_context().get_node_id(), {name: np.asarray(array) for name, array in state.items()}


def played_with(runner):
    """What an EnvRunner plays with, and its node."""
    state = runner.module[MODULE].get_state()
    return ray.get_runtime_context().get_node_id(), {name: np.asarray(array) for name, array in state.items()}


def equal(one, other):
    names = one.keys() & other.keys()
    return bool(names) and all(np.array_equal(one[name], other[name]) for name in names)


def test_learners_agree_and_their_adapters_alone_reach_the_other_node(two_equal_nodes):
    nodes = {node["NodeID"] for node in ray.nodes() if node["Alive"]}
    assert len(nodes) == 2 and two_equal_nodes in nodes
    with running(config()) as algo:
        before = [one.get() for one in algo.learner_group.foreach_learner(learned)]
        results = [algo.train() for _ in range(2)]
        after = [one.get() for one in algo.learner_group.foreach_learner(learned)]
        runners = algo.env_runner_group.foreach_env_runner(played_with, local_env_runner=False)
    assert len(after) == len(runners) == 2
    assert {node for node, _ in [*after, *runners]} == nodes, "processes on both nodes"
    assert equal(before[0][1], before[1][1]) and equal(after[0][1], after[1][1]), "Learners average their gradients"
    assert not equal(before[0][1], after[0][1]), "something was learned"
    assert all(equal(state, after[0][1]) for _, state in runners), "EnvRunners have the newest adapters"
    sent = {name: array for name, array in runners[0][1].items() if name in after[0][1]}
    assert 0 < sum(array.nbytes for array in sent.values()) < 500_000, "kilobytes, no base"
    assert not [name for name in sent if "critic" in name]
    assert float(results[0]["learners"][MODULE]["ratio_first_minibatch"]) < 1e-4
