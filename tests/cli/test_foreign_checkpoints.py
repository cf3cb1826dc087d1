"""`rllib evaluate` and `replay` with what is a user's own: a stock PPO's checkpoint, a planner behind `--import`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hostile import SOUPS, write_checkpoint

from tests.cli.command import rllib, succeeds

PPO = Path(__file__).parents[1] / "data" / "stock_ppo.py"
PLANNER = """
from rllib_llm_comm.sama.planners import ScriptedPlanner, register_planner
from rllib_llm_comm.sama.plans import AssignedSubgoal, Plan, Planner

class Mine(ScriptedPlanner):
    name = "mine"

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
