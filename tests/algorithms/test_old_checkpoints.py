"""Checkpoints written before modules moved are restored, trained on, and acted with."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest
from safetensors.torch import load_file
from toys import TESTS

from rllib_llm_comm import load_policy
from tests import forked


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    """Folder with the checkpoints `verco` (with a teacher's messages) and `mappo`, both of Door, by version 0.1."""
    folder = tmp_path_factory.mktemp("old")
    for name in ("verco", "mappo"):
        with tarfile.open(Path(TESTS, "data", f"{name}_checkpoint_0.1.tgz")) as archive:
            archive.extractall(folder, filter="data")
    return folder


@pytest.mark.parametrize(
    ("name", "restored_with", "classes"),
    [
        ("verco", "Verco", ["Verco", "MultiAgentPPOLearner", "LLMCommModule"]),
        ("mappo", "algorithm", ["MAPPO", "MAPPOLearner", "NumericModule"]),
    ],
)
def test_an_old_checkpoint_is_restored_and_trained_on(old, name, restored_with, classes):
    run = forked.run(f"{TESTS}/algorithms/restore_old_checkpoint.py", str(old / name), restored_with, cwd=old)
    assert "RESULT" in run.stdout, run.stderr[-3000:]
    found = json.loads(run.stdout.split("RESULT")[1].splitlines()[0])
    assert [found["algorithm"], found["learner"], found["module"]] == classes
    assert (found["iteration"], found["after"], found["finite"]) == (1, 2, True)
    saved = [array for file in (old / name / "policy").rglob("*.safetensors") for array in load_file(file).values()]
    assert found["weights"] == pytest.approx(sum(float(array.double().abs().sum()) for array in saved), rel=1e-9)


@pytest.mark.parametrize("name", ["verco", "mappo"])
def test_the_policy_of_an_old_checkpoint_acts(old, name):
    policy = load_policy(old / name)
    env = policy.env()
    observations, _ = env.reset(seed=1)
    policy.reset(seed=1)
    decisions = policy.act(observations)
    assert set(decisions) == set(observations)
    assert all(sum(one.probabilities) == pytest.approx(1.0, abs=1e-5) for one in decisions.values())
