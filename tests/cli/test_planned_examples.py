"""The experiment files with planners run from end to end in their smallest form, through the real command."""

from __future__ import annotations

import json

import pytest
import yaml

from rllib_llm_comm.cli.example import examples
from tests.cli.command import rllib

FILES = ("sama", "twosome_planned", "frozen_lake_planned")
SMALL = {
    "EMMA": {"train_batch_size_per_learner": 64, "num_envs_per_env_runner": 2, "width": 8, "filters": 8},
    "TWOSOME": {"train_batch_size_per_learner": 8, "minibatch_size": 8, "num_envs_per_env_runner": 2},
    "SymbolicPPO": {"train_batch_size_per_learner": 64, "num_envs_per_env_runner": 2},
}


def smoke() -> dict:
    """All stages of the files, each in its smallest form."""
    stages: dict = {}
    for file in FILES:
        for name, stage in yaml.safe_load(examples()[file].read_text()).items():
            config = stage["config"]
            if stage["run"] in SMALL:
                stage["stop"] = {"training_iteration": 1}
                config |= {**SMALL[stage["run"]], "num_epochs": 1, "minibatch_size": 8}
                config["env_config"]["horizon"] = 8
            else:
                config |= {"episodes": 1, "checkpoint": config["checkpoint"].replace("${", "${" + file + "_")}
            stages[f"{file}_{name}"] = stage
    return stages


@pytest.mark.timeout(1800)
def test_the_files_run(tmp_path):
    (tmp_path / "smoke.yaml").write_text(yaml.safe_dump(smoke(), sort_keys=False))
    done = rllib("train", "file", "smoke.yaml", "--ray-num-cpus", "2", cwd=tmp_path, timeout=1500)
    assert done.returncode == 0, done.stdout + done.stderr
    results = tmp_path / "results/smoke"

    def figures(stage):
        return json.loads((results / stage / "evaluation.json").read_text())["metrics"]

    for stage in (
        "sama_planned",
        "sama_reflected",
        "twosome_planned_evaluation",
        "frozen_lake_planned_evaluation_planned",
    ):
        assert figures(stage)["plans"] >= 1, stage
        (line,) = (results / stage / "plans.jsonl").read_text().splitlines()
        told = json.loads(line)
        assert told["rounds"][0][0]["plan"]["subgoals"] and sum(map(len, told["rounds"])) == figures(stage)["plans"]
    assert figures("sama_reflected")["reflections"] >= 0
    for stage in ("twosome_planned_alone", "frozen_lake_planned_evaluation_alone"):
        assert "plans" not in figures(stage) and not (results / stage / "plans.jsonl").exists()
    for stage in ("sama_replay", "twosome_planned_replay"):
        assert '"rounds":[[{' in (results / stage / "replay.html").read_text()

    follower = str(next((results / "sama_follower").glob("trial_*/checkpoint_*")))
    log = tmp_path / "log.jsonl"
    again = rllib(
        "evaluate", follower, "--episodes", "1", "--planner", '{"name": "plan4mc"}', "--trials", "1", "--patience", "3",
        "--log", str(log), cwd=tmp_path,
    )  # fmt: skip
    assert again.returncode == 0, again.stderr
    rounds = json.loads(log.read_text())["rounds"]
    assert rounds[0][0]["plan"]["planner"] == "plan4mc" and {len(attempts) for attempts in rounds} <= {1, 2}
    wrong = rllib("replay", follower, "--planner", "nobody", cwd=tmp_path)
    assert wrong.returncode == 1 and "`planner` is 'nobody' but must be one of" in wrong.stderr
    wrong = rllib("evaluate", follower, "--trials", "2", cwd=tmp_path)
    assert wrong.returncode == 1 and "nobody plans" in wrong.stderr
    assert wrong.stderr.count("\n") == 1
