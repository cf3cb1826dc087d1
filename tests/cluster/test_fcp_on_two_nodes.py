"""FCP on a Ray cluster of two nodes, both on this machine: members are trained where the CPUs are."""

from __future__ import annotations

import pytest
import ray

from rllib_llm_comm import FCPConfig
from rllib_llm_comm.baselines.population.fcp import train_part
from tests.running import running

pytestmark = pytest.mark.slow  # two nodes and their processes
ITERATIONS = 2


@ray.remote(num_cpus=1)
def place():
    return ray.get_runtime_context().get_node_id()


def test_members_are_trained_on_the_second_node_and_come_back(second_node):
    cpus = {node["NodeID"]: node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]}
    assert len(cpus) == 2 and {one for one, count in cpus.items() if count} == {second_node}
    assert ray.get(place.remote()) == second_node != ray.get_runtime_context().get_node_id()
    config = (
        FCPConfig()
        .environment(env_config={"layout": "cramped_room", "horizon": 10})
        .policy_network(hiddens=[8])
        .env_runners(num_envs_per_env_runner=3)
        .training(train_batch_size_per_learner=120, minibatch_size=60, num_epochs=1)
        .population(size=2, member_iterations=ITERATIONS, iterations_per_task=ITERATIONS, members_at_once=2)
        .debugging(seed=4)
    )
    with running(config) as algo:
        results = [algo.train() for _ in range(3)]  # a task for each member, then the learner
        assert [one["population"]["members_done"] for one in results] == [1, 2, 2]
        assert len(algo._pool.partners) == 6
        member = algo._population.members[0]
    own = config.member_config()
    own.seed = member.seed
    here = train_part(own, None, ITERATIONS)["past"][-1]
    assert here == member.milestones["final"].to_state(), "the same as trained in this process"
