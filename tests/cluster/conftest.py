"""Ray clusters of several nodes, all on this machine."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
import ray
from ray.cluster_utils import Cluster

STORE = 2 * 10**8


@contextmanager
def cluster_of(head_cpus, node_cpus):
    """A cluster of a head and one more node; gives the node's id."""
    if ray.is_initialized():
        ray.shutdown()
    cluster = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": head_cpus, "object_store_memory": STORE, "include_dashboard": False},
    )
    try:
        node = cluster.add_node(num_cpus=node_cpus, object_store_memory=STORE)
        ray.init(address=cluster.address, log_to_driver=False)
        cluster.wait_for_nodes()
        yield node.node_id
    finally:
        ray.shutdown()
        cluster.shutdown()


@pytest.fixture
def second_node():
    """The id of the node that has all CPUs; the head, on which the driver is, has none."""
    with cluster_of(0, 2) as node:
        yield node


@pytest.fixture
def two_equal_nodes():
    """The id of the second of two nodes that have two CPUs each."""
    with cluster_of(2, 2) as node:
        yield node
