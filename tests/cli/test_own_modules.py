"""What `--import` registers is known to all processes of a study, and to the commands that are printed at its end."""

from __future__ import annotations

import json
import shlex

import pytest
import yaml

from tests.cli.command import rllib, succeeds

PLANNER = """
import os
from pathlib import Path

from rllib_llm_comm.sama.planners import ScriptedPlanner, register_planner


class Mine(ScriptedPlanner):
    name = "mine"

    def plan(self, request):
        (Path(__file__).parent / f"planned_by_{os.getpid()}").touch()
        return super().plan(request)


register_planner("mine", Mine)
"""
STUDY = {
    "env": "rllib_llm_comm/frozen_lake-v0",
    "seeds": [0],
    "scenarios": {"lake": {"layout": "4x4", "horizon": 6, "observe": ["vector"]}},
    "systems": {
        "walkers": {
            "run": "SymbolicPPO",
            "stop": {"training_iteration": 1},
            "config": {
                "planner": "mine",
                "num_env_runners": 0,
                "num_envs_per_env_runner": 2,
                "train_batch_size_per_learner": 32,
                "minibatch_size": 32,
                "num_epochs": 1,
            },
        }
    },
    "evaluation": {"episodes": 2, "modes": ["sampled"]},
}


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_study_with_a_planner_of_ones_own(tmp_path):
    """The folder has a space in its name, which the printed commands quote."""
    folder = tmp_path / "my own"
    folder.mkdir()
    (folder / "plans.py").write_text(PLANNER)
    (folder / "study.yaml").write_text(yaml.safe_dump(STUDY))
    command = ("study", "file", "study.yaml", "--storage-path", "all results", "--ray-num-cpus", "2")
    unknown = rllib(*command, cwd=folder)
    assert unknown.returncode == 1 and "`planner` is 'mine' but must be one of" in " ".join(unknown.stderr.split())
    done = succeeds(*command, "--import", "plans", cwd=folder)
    results = folder / "all results" / "study"
    assert json.loads((results / "report" / "report.json").read_text())["missing"] == []
    # The trial is a process of its own; evaluations are played by the command itself.
    assert len(list(folder.glob("planned_by_*"))) == 2
    hint = next(line for line in done.stdout.splitlines() if line.startswith("Next: rllib "))
    words = shlex.split(hint.removeprefix("Next: rllib "))
    assert words == ["evaluate", "all results/study/lake.walkers", "--import", "plans"]
    succeeds(*words, "--episodes", "1", cwd=folder)
