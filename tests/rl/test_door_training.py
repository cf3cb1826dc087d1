"""The door game, learned from labels to talk by the experiment file that comes with the package."""

from __future__ import annotations

import json

import pytest

from rllib_llm_comm.experiments.packaged_examples import examples
from tests.cli.command import succeeds


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_bob_opens_the_door_that_alice_names(tmp_path):
    file = str(examples()["verco_door"])
    succeeds("train", "file", file, "--ray-num-cpus", "4", cwd=tmp_path, timeout=1700)
    folder = tmp_path / "results" / "verco_door"
    own, other, silent = (
        json.loads((folder / stage / "evaluation.json").read_text())["return_mean"]
        for stage in ("evaluation", "other_fact", "silent_evaluation")
    )
    assert own >= 0.7
    assert max(other, silent) <= 0.3  # guessing pays 0, with a standard error of 0.07 over 100 episodes
