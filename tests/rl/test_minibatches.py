"""Every row once per epoch."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from ray.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch

from rllib_llm_comm.rl.train_batch import WholeEpochs


def batch(**counts):
    return MultiAgentBatch(
        {m: SampleBatch({"x": torch.arange(n), "obs": {"y": torch.arange(n) * 10}}) for m, n in counts.items()},
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


@given(st.lists(st.integers(0, 6), min_size=1, max_size=60), st.integers(1, 30), st.booleans())
def test_rows_of_one_text_stay_together(texts, size, shuffle):
    numbers = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    groups = torch.tensor([numbers[text] for text in texts])
    rows = MultiAgentBatch({"a": SampleBatch({"x": torch.arange(len(texts)), "row_group": groups})}, 1)
    parts = list(WholeEpochs(rows, minibatch_size=size, shuffle=shuffle))
    seen = [set(groups[p["a"]["x"]].tolist()) for p in parts]
    assert sorted(torch.cat([p["a"]["x"] for p in parts]).tolist()) == list(range(len(texts)))
    assert sum(map(len, seen)) == len(set.union(*seen))  # no text in two minibatches
    largest = int(torch.bincount(groups).max())
    assert all(len(p["a"]["x"]) <= size + largest for p in parts)
    assert all("row_group" not in p["a"] for p in parts)


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
