"""`rllib train --track`: the trackers' own files have what Tune wrote. MLflow and W&B are tested where they are."""

from __future__ import annotations

import json
import math
import struct
from importlib.util import find_spec
from types import SimpleNamespace

import pytest

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.experiments import trackers
from rllib_llm_comm.experiments.console import out, say_error
from rllib_llm_comm.experiments.experiment_file import make_experiment
from rllib_llm_comm.experiments.stages import Stage
from rllib_llm_comm.experiments.trackers import TRACKERS, MLflowRuns, RunLogger, check_trackers
from tests.cli.command import succeeds
from tests.examples.test_examples import scalars
from tests.refusal import refused

FIGURE = "env_runners/team_return_mean"
TINY = {
    "run": "SymbolicPPO", "env": "rllib_llm_comm/overcooked_text-v0", "stop": {"training_iteration": 2},
    "config": {
        "env_config": {"map_name": "B", "max_game_steps": 20}, "train_batch_size_per_learner": 256,
        "num_env_runners": 0, "num_envs_per_env_runner": 4, "metrics_num_episodes_for_smoothing": 4, "seed": 5,
    },
}  # fmt: skip
THERE = [name for name, tracker in TRACKERS.items() if all(find_spec(module) for module in tracker.needs)]


def require(name):
    if name not in THERE:
        pytest.skip(f"{name} is not installed; `pip install -e '.[trackers]'` brings it")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A short training that all installed trackers follow: folder, what Tune wrote, what the command said."""
    folder = tmp_path_factory.mktemp("track")
    (folder / "small.json").write_text(json.dumps({"tiny": TINY}))
    options = [word for name in THERE for word in ("--track", name)]
    done = succeeds("train", "file", "small.json", *options, "--ray-num-cpus", "2", cwd=folder, timeout=540)
    (path,) = folder.glob("results/small/tiny/trial_*/result.json")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return SimpleNamespace(folder=folder, trial=path.parent, rows=rows, said=done.stdout)


def written(run):
    return [row["env_runners"]["team_return_mean"] for row in run.rows]


def test_tensorboard(run):
    assert "Follow it: tensorboard --logdir results/small" in run.said
    (events,) = run.trial.glob("events.out.tfevents.*")
    numbers = [value for value in written(run) if isinstance(value, float) and math.isfinite(value)]
    assert numbers and list(scalars(events, f"ray/tune/{FIGURE}")) == pytest.approx(numbers)


def test_mlflow(run):
    require("mlflow")
    client = trackers.open_mlflow(trackers.mlflow_uri(run.folder / "results/small"))
    (one,) = client.search_runs([client.get_experiment_by_name("small").experiment_id])
    assert one.info.status == "FINISHED" and one.data.tags["stage"] == "tiny"
    assert one.data.params["config/seed"] == "5" and one.data.params["run"] == "SymbolicPPO"
    history = client.get_metric_history(one.info.run_id, FIGURE)
    assert [metric.step for metric in history] == [1, 2]
    assert [metric.value for metric in history] == pytest.approx(written(run), nan_ok=True)
    assert not list(run.folder.rglob("mlruns"))


def test_wandb(run):
    require("wandb")
    (path,) = (run.folder / "results/small/wandb").glob("offline-run-*/run-*.wandb")
    assert recorded(path) == pytest.approx(written(run), nan_ok=True)


def recorded(path):
    """A figure's values in a file of W&B."""
    from wandb.proto import wandb_internal_pb2

    values = []
    for data in pieces(path.read_bytes()):
        record = wandb_internal_pb2.Record.FromString(data)
        for item in record.history.item:
            if FIGURE in (item.key, "/".join(item.nested_key)):
                values.append(float(json.loads(item.value_json)))
    return values


def pieces(data, block=32_768, heading=7):
    """The records of a LevelDB log, whose first block begins with W&B's own heading of seven bytes."""
    place, record = heading, b""
    while place + heading <= len(data):
        if block - place % block < heading:
            place += block - place % block
            continue
        length, kind = struct.unpack("<HB", data[place + 4 : place + heading])
        record += data[place + heading : place + heading + length]
        place += heading + length
        if kind in (1, 4):  # whole, or the last part of one
            yield record
            record = b""


def test_a_trial_that_goes_on_stays_one_run(tmp_path):
    require("mlflow")
    stage = Stage("tiny", make_experiment("tiny", TINY), tmp_path / "results/small/tiny")
    place = SimpleNamespace(trial_fs_path=str(tmp_path))
    trial = SimpleNamespace(trial_id="ab_00000", config={"seed": 5}, storage=place)
    before, after = MLflowRuns(stage), MLflowRuns(stage)
    run = before.begin(trial)
    before.end(run, "stopped")
    assert after.begin(trial) == run
    assert after._client.get_run(run).info.status == "RUNNING"


def test_a_tracker_that_fails_is_told_once_and_the_training_goes_on(monkeypatch, capsys, tmp_path):
    class Gone(RunLogger):
        tracker = "gone"
        asked = 0

        def begin(self, trial):
            return "run"

        def write(self, run, step, numbers):
            self.asked += 1
            raise ConnectionError("nobody answers at https://ann:p4ss@lab.example:5000/api")

        def end(self, run, status):
            raise AssertionError("a tracker that failed is asked no more")

    monkeypatch.setattr(out, "_file", None)
    gone = Gone(Stage("tiny", make_experiment("tiny", TINY), tmp_path))
    trial = SimpleNamespace(trial_id="ab_00000")
    for iteration in (1, 2):
        gone.log_trial_result(iteration, trial, {"training_iteration": iteration, "config": {}})
    gone.log_trial_end(trial)
    assert gone.asked == 1
    said = capsys.readouterr().out
    assert said.count("`--track gone` failed and is left out") == 1
    assert "https://lab.example:5000/api" in "".join(said.split("\n")) and "p4ss" not in said


def test_only_numbers_are_figures():
    result = {"training_iteration": 1, "config": {"lr": 0.1}, "done": True, "date": "x", "a": {"b": 2, "c": None}}
    assert trackers.numbers_of(result) == {"training_iteration": 1.0, "a/b": 2.0}


def test_mistakes_are_one_sentence_before_anything_starts(monkeypatch):
    with pytest.raises(UserError, match="mean 'tensorboard'"):
        check_trackers(["tensorbord"], any_training=True)
    with refused("--track"):
        check_trackers(["tensorboard"], any_training=False)
    monkeypatch.setattr(trackers, "find_spec", lambda module: None)
    for name in TRACKERS:
        with pytest.raises(UserError, match=f"`--track {name}` .*not installed: `pip install"):
            check_trackers([name], any_training=True)


def test_a_place_that_cannot_be_opened_is_one_sentence(tmp_path, monkeypatch):
    require("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(UserError, match="`--track mlflow`: http://127.0.0.1:9 "):
        trackers.open_trackers(["mlflow"], [tmp_path])


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("https://ann:p4ss@lab.example:5000", "https://lab.example:5000"),
        ("postgresql://ann:p4ss%40@lab.example/runs", "mlflow ui --backend-store-uri postgresql://lab.example/runs"),
        ("sqlite:////data/runs@home.db", "mlflow ui --backend-store-uri sqlite:////data/runs@home.db"),
        ("https://ann:p4/ss@lab.example", "https://lab.example"),
        ("https://ann:p4 ss@lab.example", "https://lab.example"),
        ("ann:p4ss@lab.example", "mlflow ui --backend-store-uri lab.example"),
        ("mysql://lab/x?password=p4ss", "mlflow ui --backend-store-uri 'mysql://lab/x?password=[hidden]'"),
    ],
)
def test_passwords_of_a_server_are_not_shown(uri, shown, monkeypatch, tmp_path):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    assert trackers.show_command("mlflow", tmp_path) == shown
    assert "p4" not in trackers.shown_place(f"'{uri}/api' is down", tmp_path)


def test_an_error_is_shown_without_passwords_with_its_traceback_too(capsys):
    try:
        try:
            raise OSError("http://ann:p4ss@lab.example is down")
        except OSError as error:
            raise ValueError("no runs at http://ann:p4ss@lab.example") from error
    except ValueError as error:
        say_error(error, verbosity=2)
    told = capsys.readouterr().err
    assert told.count("http://lab.example") >= 3 and "p4ss" not in told


def test_nothing_leaves_the_machine_unasked(monkeypatch):
    monkeypatch.delenv("WANDB_MODE", raising=False)
    assert trackers.wandb_mode() == "offline"
    monkeypatch.setenv("WANDB_MODE", "onlyne")
    monkeypatch.setattr(trackers, "find_spec", lambda module: True)
    with refused("WANDB_MODE", "choice"):
        check_trackers(["wandb"], any_training=True)
