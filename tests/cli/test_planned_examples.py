"""The experiment files with planners run from end to end in their smallest form, through the real command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from rllib_llm_comm.experiments.packaged_examples import examples
from tests.cli.command import succeeds

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
SMALL = {
    "EMMA": {"train_batch_size_per_learner": 64, "num_envs_per_env_runner": 2, "width": 8, "filters": 8},
    "TWOSOME": {"train_batch_size_per_learner": 8, "minibatch_size": 8, "num_envs_per_env_runner": 2},
    "SymbolicPPO": {"train_batch_size_per_learner": 64, "num_envs_per_env_runner": 2},
}


def smoke(file: str) -> dict:
    """All stages of a file, each in its smallest form."""
    stages: dict = yaml.safe_load(examples()[file].read_text())
    for stage in stages.values():
        config = stage["config"]
        if stage["run"] in SMALL:
            stage["stop"] = {"training_iteration": 1}
            config |= {**SMALL[stage["run"]], "num_epochs": 1, "minibatch_size": 8}
            config["env_config"]["horizon"] = 8
        else:
            config |= {"episodes": 1}
    return stages


def run(file: str, folder: Path) -> Path:
    """Runs a file in its smallest form; gives the folder of its results."""
    (folder / "smoke.yaml").write_text(yaml.safe_dump(smoke(file), sort_keys=False))
    succeeds("train", "file", "smoke.yaml", "--ray-num-cpus", "2", cwd=folder, timeout=800)
    return folder / "results/smoke"


def figures(stage: Path) -> dict:
    """What an evaluation counted."""
    return json.loads((stage / "evaluation.json").read_text())["metrics"]


def check_planned(stage: Path) -> None:
    """An evaluation under a planner counts its plans and keeps them."""
    assert figures(stage)["plans"] >= 1
    (line,) = (stage / "plans.jsonl").read_text().splitlines()
    told = json.loads(line)
    assert told["rounds"][0][0]["plan"]["subgoals"]
    assert sum(map(len, told["rounds"])) == figures(stage)["plans"]


def test_sama_rules(tmp_path):
    results = run("sama_rules", tmp_path)
    for stage in ("planned", "reflected", "rounds"):
        check_planned(results / stage)
    assert figures(results / "rounds")["reflections"] == 0 <= figures(results / "reflected")["reflections"]
    assert '"rounds":[[{' in (results / "replay/replay.html").read_text()

    follower = str(next((results / "follower").glob("trial_*/checkpoint_*")))
    log = tmp_path / "log.jsonl"
    options = ["--episodes=1", '--planner={"name": "plan4mc"}', "--trials=1", "--patience=3", "--recover=replay"]
    succeeds("evaluate", follower, *options, "--log", str(log), cwd=tmp_path)
    rounds = json.loads(log.read_text())["rounds"]
    assert rounds[0][0]["plan"]["planner"] == "plan4mc" and {len(attempts) for attempts in rounds} <= {1, 2}


@pytest.mark.parametrize(
    ("file", "planned", "alone"),
    [("twosome_planned", "evaluation", "alone"), ("frozen_lake_planned", "evaluation_planned", "evaluation_alone")],
)
def test_planned_and_alone(tmp_path, file, planned, alone):
    results = run(file, tmp_path)
    check_planned(results / planned)
    assert "plans" not in figures(results / alone) and not (results / alone / "plans.jsonl").exists()
