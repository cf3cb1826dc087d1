"""Every example script runs to its end in its smoke form, as a user would start it."""

from __future__ import annotations

import glob
import importlib.util
import json
import re
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rllib_llm_comm.core.errors import UserError
from tests import forked

FOLDER = Path(__file__).parents[2] / "examples"
SAYS = {
    "own_planner": "scripted planner",
    "own_teacher": "labels of",
    "own_text_environment": "15 checks passed",
    "pieces_in_own_ppo": "bob says",
    "planner_in_own_ppo": "subgoals done",
    "tune_sweep": "seed 1  temperature 1.5",
}
# Those whose smoke form is run by a test of their own.
OWN_TEST = {"adapters_in_plain_peft", "tune_pbt", "tune_trackers"}
# Several trials, each a process of its own, take more than a minute.
SLOW = {"tune_sweep"}


def test_all_examples_are_here():
    assert {path.stem for path in FOLDER.glob("*.py") if not path.stem.startswith("_")} == set(SAYS) | OWN_TEST


@pytest.mark.timeout(500)
@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] if n in SLOW else []) for n in SAYS])
def test_smoke(name, tmp_path):
    assert SAYS[name] in run_smoke(name, tmp_path)


def run_smoke(name: str, folder: Path, *arguments: str) -> str:
    """What an example prints when it is run in `folder`."""
    done = forked.run(FOLDER / f"{name}.py", "--smoke", *arguments, cwd=folder, timeout=480)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_plain_peft_says_the_same(tmp_path):
    """The figures that `adapters_in_plain_peft` prints side by side agree."""
    shown = run_smoke("adapters_in_plain_peft", tmp_path).splitlines()
    said = [line.split(":", 1)[1].strip() for line in shown if " says: " in line and "bob" not in line]
    assert said[0] == said[1]
    pairs = [line.split("PEFT")[1].split("load_policy") for line in shown if line.startswith("  ")]
    assert len(pairs) > 2
    for by_peft, own in pairs:
        assert float(by_peft) == pytest.approx(float(own), abs=1e-4)


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_a_trial_that_is_behind_goes_on_from_the_other_ones_checkpoint(tmp_path):
    said = run_smoke("tune_pbt", tmp_path, "--storage-path", str(tmp_path))
    taken = (tmp_path / "verco_pbt" / "pbt_global.txt").read_text().splitlines()
    assert int(re.search(r"taken over from another trial: (\d+)", said)[1]) == len(taken) == 1
    heir, source, *_, config = json.loads(taken[0])
    before, after = results_of(tmp_path / "verco_pbt", heir)
    better, _ = results_of(tmp_path / "verco_pbt", source)
    assert better["learners"]["shared"]["entropy"] >= before["learners"]["shared"]["entropy"]
    # The clock is in the checkpoint, so it tells whose it was.
    assert after["time_total_s"] - after["time_this_iter_s"] == pytest.approx(better["time_total_s"])
    assert better["time_total_s"] != pytest.approx(before["time_total_s"])
    assert after["config"]["lr"] == config["lr"] != before["config"]["lr"]
    assert after["learners"]["shared"]["actor_learning_rate"] == pytest.approx(config["lr"])


def results_of(folder: Path, tag: str) -> list[dict]:
    """What a trial, named by Tune's tag, reported in each iteration."""
    (path,) = folder.glob(f"*_{glob.escape(tag)}_*/result.json")
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_tensorboard_shows_what_tune_wrote(tmp_path):
    said = run_smoke("tune_trackers", tmp_path)
    assert f"Show it: tensorboard --logdir {tmp_path / 'tracked' / 'tensorboard'}" in said
    trials = sorted((tmp_path / "tracked" / "tensorboard" / "trials").glob("*/result.json"))
    assert len(trials) == 2
    for trial in trials:
        results = [json.loads(line) for line in trial.read_text().splitlines()]
        written = [result["env_runners"]["team_return_mean"] for result in results]
        (events,) = trial.parent.glob("events.out.tfevents.*")
        shown = list(scalars(events, "ray/tune/env_runners/team_return_mean"))
        assert len(shown) == 2
        assert shown == pytest.approx(written)
        assert f"seed {results[-1]['config']['seed']}  2 iterations  team return {written[-1]:.6f}" in said


def scalars(path: Path, tag: str) -> Iterator[float]:
    """The values of a scalar in a TensorBoard file, which is a sequence of length, checksum, event, checksum."""
    from tensorboardX.proto.event_pb2 import Event

    data = path.read_bytes()
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        event = Event.FromString(data[12 : 12 + length])
        yield from (value.simple_value for value in event.summary.value if value.tag == tag)
        data = data[16 + length :]


@pytest.mark.parametrize(("tracker", "missing"), [("mlflow", "mlflow"), ("mlflow", "sqlalchemy"), ("wandb", "wandb")])
def test_missing_tracker_is_told_in_a_sentence(tracker, missing, monkeypatch):
    spec = importlib.util.spec_from_file_location("tune_trackers", FOLDER / "tune_trackers.py")
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    monkeypatch.setattr(example, "find_spec", lambda name: None if name == missing else spec)
    with pytest.raises(UserError, match=f"`--tracker {tracker}` .*`pip install {tracker}`"):
        example.require(tracker)
    monkeypatch.setattr(sys, "argv", ["tune_trackers.py", "--tracker", tracker])
    with pytest.raises(SystemExit, match="Error: .*pip install"):
        example.main()
    example.require("tensorboard")
