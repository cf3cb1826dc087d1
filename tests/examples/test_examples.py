"""Every example script runs to its end in its smoke form, as a user would start it."""

from __future__ import annotations

import importlib.util
import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rllib_llm_comm.errors import UserError

FOLDER = Path(__file__).parents[2] / "examples"
SAYS = {
    "own_planner": "scripted planner",
    "own_teacher": "labels of",
    "own_text_environment": "12 checks passed",
    "pieces_in_own_ppo": " 2 ",
    "planner_in_own_ppo": "subgoals done",
    "tune_pbt": "times a trial took over another one's checkpoint",
    "tune_sweep": "seed 1  temperature 1.5",
}
# Those whose smoke form is run by a test of their own.
OWN_TEST = {"adapters_in_plain_peft", "tune_trackers"}
# Several trials, each a process of its own, take more than a minute.
SLOW = {"tune_pbt", "tune_sweep"}


def test_all_examples_are_here():
    assert {path.stem for path in FOLDER.glob("*.py") if not path.stem.startswith("_")} == set(SAYS) | OWN_TEST


@pytest.mark.timeout(500)
@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] if n in SLOW else []) for n in SAYS])
def test_smoke(name, tmp_path):
    assert SAYS[name] in run_smoke(name, tmp_path)


def run_smoke(name: str, folder: Path) -> str:
    """What an example prints when it is run in `folder`."""
    done = subprocess.run(
        [sys.executable, str(FOLDER / f"{name}.py"), "--smoke"],
        cwd=folder, capture_output=True, text=True, timeout=480, check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_plain_peft_says_the_same(tmp_path):
    """The figures that `adapters_in_plain_peft` prints side by side agree."""
    done = subprocess.run(
        [sys.executable, str(FOLDER / "adapters_in_plain_peft.py"), "--smoke"],
        cwd=tmp_path, capture_output=True, text=True, timeout=480, check=True,
    )  # fmt: skip
    said = [
        line.split(":", 1)[1].strip() for line in done.stdout.splitlines() if " says: " in line and "bob" not in line
    ]
    assert said[0] == said[1]
    pairs = [line.split("PEFT")[1].split("load_policy") for line in done.stdout.splitlines() if line.startswith("  ")]
    assert len(pairs) > 2
    for by_peft, own in pairs:
        assert float(by_peft) == pytest.approx(float(own), abs=1e-4)


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
    sentence = f"`--tracker {tracker}` needs a package that is not installed: `pip install {tracker}`."
    with pytest.raises(UserError) as raised:
        example.require(tracker)
    assert str(raised.value) == sentence
    monkeypatch.setattr(sys, "argv", ["tune_trackers.py", "--tracker", tracker])
    with pytest.raises(SystemExit, match="Error: .*pip install"):
        example.main()
    example.require("tensorboard")
