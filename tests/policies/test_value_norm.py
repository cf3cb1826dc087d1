"""ValueNorm against averages written as in the paper's code, in double precision."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rllib_llm_comm.policies.numeric_network import ValueNorm, moments


def by_hand(batches, beta):
    mean = square = weight = 0.0
    for batch in batches:
        mean = beta * mean + (1 - beta) * batch.mean()
        square = beta * square + (1 - beta) * (batch**2).mean()
        weight = beta * weight + (1 - beta)
    mean, square = mean / weight, square / weight
    return mean, max(1e-2, square - mean**2) ** 0.5


@given(
    beta=st.sampled_from([0.0, 0.5, 0.99, 0.99999]),
    count=st.integers(1, 30),
    centre=st.sampled_from([0.0, -3.0, 1000.0]),
    size=st.sampled_from([1e-3, 1.0, 50.0]),
    seed=st.integers(0, 99),
)
def test_it_is_the_debiased_average(beta, count, centre, size, seed):
    rng = np.random.default_rng(seed)
    batches = [rng.normal(centre + k * size / 10, size, rng.integers(1, 20)).astype(np.float32) for k in range(count)]
    norm = ValueNorm(beta)
    for batch in batches:
        norm.update(moments(torch.from_numpy(batch)))
    mean, std = by_hand([batch.astype(np.float64) for batch in batches], beta)
    assert float(norm.mean) == pytest.approx(mean, rel=1e-5, abs=1e-5 * size)
    assert float(norm.std) == pytest.approx(std, rel=1e-3)
    values = torch.from_numpy(rng.normal(centre, size, 7).astype(np.float32))
    np.testing.assert_allclose(norm.normalize(values).numpy(), (values.numpy() - mean) / std, rtol=1e-2, atol=2e-3)
    torch.testing.assert_close(norm.denormalize(norm.normalize(values)), values, rtol=1e-5, atol=1e-5)


def test_before_the_first_update_values_are_small():
    """As in the original: mean 0 and the least variance."""
    norm = ValueNorm()
    assert norm.denormalize(torch.tensor([1.0])).item() == pytest.approx(0.1)


def test_parts_of_a_batch_add_up():
    values = torch.randn(30) * 4 + 7
    whole, parts = ValueNorm(), ValueNorm()
    whole.update(moments(values))
    parts.update(moments(values[:11]) + moments(values[11:]))
    for norm in (whole, parts):
        assert float(norm.mean) == pytest.approx(float(values.mean()), rel=1e-5)
        assert float(norm.std) == pytest.approx(float(values.std(unbiased=False)), rel=1e-5)


def test_all_of_it_is_in_the_state_and_nothing_is_trained():
    norm = ValueNorm()
    for _ in range(3):
        norm.update(moments(torch.randn(8) * 5))
    other = ValueNorm()
    other.load_state_dict(norm.state_dict())
    for one in (norm, other):
        one.update(moments(torch.arange(8.0)))
    assert all(torch.equal(value, other.state_dict()[name]) for name, value in norm.state_dict().items())
    assert not list(norm.parameters()) and int(norm.updates) == 4
