"""One small Ray for all tests of this folder."""

from __future__ import annotations

import pytest
from toys import TESTS


@pytest.fixture(scope="package")
def small_ray():
    import ray

    if ray.is_initialized():
        ray.shutdown()
    ray.init(
        num_cpus=3,
        object_store_memory=2 * 10**8,
        include_dashboard=False,
        log_to_driver=False,
        runtime_env={"env_vars": {"PYTHONPATH": TESTS, "OMP_NUM_THREADS": "1"}},
    )
    yield ray
    ray.shutdown()
