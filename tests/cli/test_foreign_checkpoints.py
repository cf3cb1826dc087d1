"""What is a user's own: a stock PPO's checkpoint, a planner behind `--import` in commands and in a study."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
import yaml
from hostile import SOUPS, write_checkpoint

from tests.cli.command import rllib, succeeds

PPO = Path(__file__).parents[1] / "data" / "stock_ppo.py"
PLANNER = """
import os
from pathlib import Path
from rllib_llm_comm.sama.planners import ScriptedPlanner, register_planner
from rllib_llm_comm.sama.plans import AssignedSubgoal, Plan, Planner

class Mine(ScriptedPlanner):
    name = "mine"
    def plan(self, request):
        (Path(__file__).parent / f"planned_by_{os.getpid()}").touch()
        return super().plan(request)

class Wrong(Planner):
    name = "wrong"
    def plan(self, request):
        return Plan(goal="", subgoals=[AssignedSubgoal(agent=a, subgoal="cook") for a in request.game.agents])

register_planner("mine", Mine)
register_planner("wrong", Wrong)
"""


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_what_train_wrote_of_a_stock_ppo_is_played(tmp_path):
    done = succeeds("train", "file", str(PPO), "--ray-num-cpus", "2", cwd=tmp_path)
    assert "rllib evaluate results/stock_ppo/stock_ppo" in done.stdout
    done = succeeds("evaluate", "results/stock_ppo", "--episodes", "2", "--json", "told.json", cwd=tmp_path)
    assert json.loads((tmp_path / "told.json").read_text())["episodes"] == 2


@pytest.mark.parametrize("command", ["evaluate", "replay"])
def test_a_planner_of_ones_own_is_imported(command, tmp_path):
    (tmp_path / "plans.py").write_text(PLANNER)
    write_checkpoint(tmp_path / "soups", SOUPS)
    own = [command, "soups", "--env-config", '{"horizon": 10}', "--episodes", "1"]
    done = succeeds(*own, "--planner", "mine", "--import", "plans", cwd=tmp_path)
    done = rllib(*own, "--planner", "wrong", "--import", "plans", cwd=tmp_path)
    assert done.returncode == 1 and done.stderr.startswith("Error: Planner 'wrong' gave alice the subgoal 'cook' but")
    if command == "evaluate":
        done = rllib(*own, "--planner", "mine", cwd=tmp_path)
        assert done.returncode == 1 and "`planner` is 'mine' but must be one of" in done.stderr


SMALL = {
    "planner": "mine", "num_env_runners": 0, "num_envs_per_env_runner": 2, "train_batch_size_per_learner": 32,
    "minibatch_size": 32, "num_epochs": 1,
}  # fmt: skip
STUDY = {
    "env": "rllib_llm_comm/frozen_lake-v0",
    "seeds": [0],
    "scenarios": {"lake": {"layout": "4x4", "horizon": 6, "observe": ["vector"]}},
    "systems": {"walkers": {"run": "SymbolicPPO", "stop": {"training_iteration": 1}, "config": SMALL}},
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
