"""`kill -9` of the command in the midst of a population (minutes: `pytest -m slow`)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.command import start_rllib, succeeds
from tests.cli.faults import kill, require_finished, rows, wait_until

pytestmark = pytest.mark.slow
MEMBERS, ITERATIONS, PART = 2, 4, 1
GROWING = MEMBERS * ITERATIONS // PART


KITCHEN = {
    "env_config": {"layout": "cramped_room", "horizon": 10},
    "members_at_once": 1, "num_cpus_for_main_process": 1,
    "num_envs_per_env_runner": 2, "train_batch_size_per_learner": 80, "minibatch_size": 80, "num_epochs": 1,
}  # fmt: skip
TALK = {
    "env_config": {"map_name": "B", "recipe": "lettuce-tomato salad", "max_game_steps": 2},
    "member_kinds": {"taught": {"message_checkpoint": "zoo:told_salad"}, "silent": {"messages": "none"}},
    "num_envs_per_env_runner": 2, "train_batch_size_per_learner": 16, "num_epochs": 1,
}  # fmt: skip
OWN = {"FCP": ("rllib_llm_comm/overcooked_ai-v0", KITCHEN), "VercoFCP": ("rllib_llm_comm/overcooked_text-v0", TALK)}


def write(folder: Path, name: str) -> None:
    env, own = OWN[name]
    config = {
        "population_size": MEMBERS, "member_iterations": ITERATIONS, "iterations_per_task": PART,
        "member_keep_every": 1, **own,
    }  # fmt: skip
    stop = {"training_iteration": GROWING + 2}
    keep = {"checkpoint_frequency": 100, "checkpoint_at_end": True, "num_to_keep": 2}
    spec = {"run": name, "env": env, "stop": stop, "checkpoint_config": keep}
    (folder / "fcp.json").write_text(json.dumps({"fcp": {**spec, "config": config}}))


def figures(trial: Path) -> list[dict]:
    return [json.loads(line)["population"] for line in (trial / "result.json").read_text().splitlines()]


@pytest.mark.parametrize("name", list(OWN))
def test_a_population_that_was_killed_goes_on(name, tmp_path):
    """Parts that had ended are not trained again: a checkpoint is there of each, although none is due for long."""
    write(tmp_path, name)
    command = ["train", "file", "fcp.json", "--ray-num-cpus", "2"]
    running = start_rllib(*command, cwd=tmp_path)
    trial = tmp_path / "results/fcp/fcp/trial_0"
    wait_until(
        lambda: len(list(trial.glob("checkpoint_*"))) >= 1 and len(rows(trial)) >= 3 or running.poll() is not None,
        seconds=400,
    )
    assert running.poll() is None
    kill(running)
    ended = len(rows(trial))
    done = succeeds(*command, cwd=tmp_path, timeout=480)
    shown = [int(line.split()[0]) for line in done.stdout.splitlines() if line[:7].strip().isdigit()]
    assert shown[0] >= ended >= 3, done.stdout  # at most the last row had no whole checkpoint yet
    require_finished(tmp_path / "results")
    assert rows(trial) == list(range(1, GROWING + 3))
    counts = [row["member_iterations"] for row in figures(trial)]
    assert counts == [*range(1, GROWING + 1), GROWING, GROWING]
    assert figures(trial)[-1]["members_done"] == MEMBERS
    (last,) = [path for path in sorted(trial.glob("checkpoint_*"))[-1:] if path.is_dir()]
    assert len(list((last / "population").iterdir())) == 3 * MEMBERS
