"""Every row once per epoch."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from ray.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch

from rllib_llm_comm.learners.minibatches import WholeEpochs


def batch(**counts):
    return MultiAgentBatch(
        {
            m: SampleBatch({"x": torch.arange(n), "obs": {"y": torch.arange(n) * 10}})
            for m, n in counts.items()
        },
        3,
    )


@given(st.integers(1, 40), st.integers(1, 50), st.integers(1, 3), st.booleans())
def test_every_row_once_per_epoch(rows, size, epochs, shuffle):
    parts = list(WholeEpochs(batch(a=rows), num_epochs=epochs, minibatch_size=size, shuffle=shuffle))
    per_epoch = len(parts) // epochs
    for epoch in range(epochs):
        seen = torch.cat([p["a"]["x"] for p in parts[epoch * per_epoch : (epoch + 1) * per_epoch]])
        assert sorted(seen.tolist()) == list(range(rows))
    counts = [len(p["a"]["x"]) for p in parts]
    assert max(counts) <= size and max(counts) - min(counts) <= 1
    assert all(torch.equal(p["a"]["obs"]["y"], p["a"]["x"] * 10) for p in parts)


def test_no_size_means_the_whole_batch():
    parts = list(WholeEpochs(batch(a=7), num_epochs=2, minibatch_size=None))
    assert [len(p["a"]["x"]) for p in parts] == [7, 7]


def test_modules_keep_step():
    parts = list(WholeEpochs(batch(a=9, b=4), minibatch_size=3, shuffle=False))
    assert [len(p["a"]["x"]) for p in parts] == [3, 3, 3]
    assert torch.cat([p["b"]["x"] for p in parts]).tolist() == [0, 1, 2, 3]


def test_exact_number_for_several_learners():
    assert len(list(WholeEpochs(batch(a=9), minibatch_size=4, num_total_minibatches=7))) == 7
    assert list(WholeEpochs(batch(), minibatch_size=4, num_total_minibatches=7)) == []
