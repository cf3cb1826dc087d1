"""Runs that are cut off: full disks, torn files, kills, ctrl-C and SIGTERM; nothing good is lost, curves stay right."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import signal
from pathlib import Path
from unittest.mock import Mock

import pytest
from ray import cloudpickle
from ray.train._internal.checkpoint_manager import _CheckpointManager
from ray.tune import CheckpointConfig
from ray.tune.experiment import Trial
from ray.tune.schedulers import TrialScheduler

from rllib_llm_comm.experiments.tune_callback import CurveRows, CurveTable
from rllib_llm_comm.experiments.tune_state import STATE_COPY, _repair_trial, find_state, repair_state, whole_checkpoints
from rllib_llm_comm.policies.find_checkpoint import shipped_policy
from rllib_llm_comm.policies.signatures import OwnStates, make_key, seal_checkpoint, sealed_metrics
from tests.cli.command import fork_rllib, rllib, start_rllib, succeeds
from tests.cli.faults import actor, disk, remount, require_finished, rows, shown, table_rows, wait_for_iteration
from tests.forked import Running

TINY = {"num_env_runners": 0, "num_epochs": 1, "train_batch_size_per_learner": 64, "minibatch_size": 64}
SEEDS = {"one run": 1, "a sweep": {"grid_search": [0, 1]}}
COMMAND = ["train", "file", "tiny.json", "--ray-num-cpus", "2"]


def write(folder: Path, iterations: int, seed: object = 1, **keys: object) -> None:
    config = {**TINY, "seed": seed}
    spec = {"run": "PPO", "env": "CartPole-v1", "stop": {"training_iteration": iterations}, "config": config, **keys}
    (folder / "tiny.json").write_text(json.dumps({"cartpole": spec}))


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
@pytest.mark.parametrize("size", ["4m", "7m"])
@pytest.mark.parametrize("kind", SEEDS)
def test_a_full_disk_takes_no_checkpoint_and_more_room_gets_out_of_it(tmp_path, kind, size):
    write(tmp_path, 14, SEEDS[kind])
    with disk(tmp_path / "disk", size) as place:
        command = [*COMMAND, "--storage-path", str(place)]
        stage = place / "tiny/cartpole"
        full = rllib(*command, cwd=tmp_path)
        assert full.returncode == 1 and "the disk is full" in full.stderr and "bug" not in full.stderr, full.stderr
        trials = sorted(stage.glob("trial_*"))
        good = {path: contents(path) for trial in trials for path in whole_checkpoints(trial)}
        assert good

        still = rllib(*command, cwd=tmp_path)
        assert still.returncode == 1 and "the disk is full" in still.stderr and "bug" not in still.stderr, still.stderr
        assert all(contents(path) == before for path, before in good.items())

        remount(place, "size=64m")
        done = succeeds(*command, cwd=tmp_path)
        assert "Continuing where the last call stopped." in done.stdout
        assert all(rows(trial) == list(range(1, 15)) for trial in trials)
        require_finished(place)
        outputs = json.loads((stage / "stage.json").read_text())["outputs"]
        assert [path.split("/")[0] for path in outputs] == [trial.name for trial in trials]
        assert all(stage / path in whole_checkpoints((stage / path).parent) for path in outputs)


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """A finished sweep; copied by the tests that damage it."""
    folder = tmp_path_factory.mktemp("finished")
    write(folder, 6, SEEDS["a sweep"])
    done = succeeds(*COMMAND, cwd=folder)
    assert done.stderr == "", done.stderr
    stage = folder / "results/tiny/cartpole"
    outputs = json.loads((stage / "stage.json").read_text())["outputs"]
    assert len(outputs) == 2 and all((stage / path).is_dir() for path in outputs)
    assert sorted(path.name for path in stage.glob("trial_*")) == ["trial_0_seed=0", "trial_1_seed=1"]
    return folder


@pytest.fixture
def cut_off(finished, tmp_path) -> Path:
    """The sweep as if it had been killed before it could say that it is done."""
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    marker = folder / "results/tiny/cartpole/stage.json"
    record = json.loads(marker.read_text())
    marker.write_text(json.dumps({**record, "status": "running", "outputs": [], "files": {}, "summary": {}}))
    return folder


def tear(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def say_running(stage: Path) -> None:
    """Makes the state that of a kill after the last checkpoints: trials, and the searcher, which limits them, run."""
    (state,), (searcher,) = stage.glob("experiment_state-*.json"), stage.glob("basic-variant-state-*.json")
    content = json.loads(state.read_text())
    trials = [json.loads(description) for description, _ in content["trial_data"]]
    told = [json.dumps({**trial, "status": "RUNNING"}) for trial in trials]
    content["trial_data"] = [[text, metadata] for text, (_, metadata) in zip(told, content["trial_data"], strict=True)]
    memory = pickle.loads(searcher.read_bytes())
    memory.update(_live_trials={trial["trial_id"] for trial in trials}, _finished=False, max_concurrent=len(trials))
    state.write_text(json.dumps(content))
    (stage / STATE_COPY).unlink()
    searcher.write_bytes(cloudpickle.dumps(memory))
    OwnStates(stage).sign([state, searcher])


def test_a_finished_run_on_a_read_only_disk_can_be_read(finished, tmp_path):
    shutil.copy(finished / "tiny.json", tmp_path)
    with disk(tmp_path / "disk", "64m") as place:
        shutil.copytree(finished / "results/tiny", place / "tiny")
        checkpoint = place / "tiny/cartpole/trial_0_seed=0/checkpoint_000002"
        shutil.copytree(shipped_policy("zoo:door"), checkpoint / "policy")  # RLlib's own cannot be played
        remount(place, "ro")
        assert not os.access(place, os.W_OK)
        command = [*COMMAND, "--storage-path", str(place)]
        assert "already there, skipped" in succeeds(*command, cwd=tmp_path).stdout
        evaluate = ["evaluate", str(checkpoint), "--episodes", "1"]
        succeeds(*evaluate, cwd=tmp_path)
        other = rllib(*command, "--stop", '{"training_iteration": 7}', cwd=tmp_path)
        assert other.returncode == 1 and "the disk can only be read" in other.stderr and "bug" not in other.stderr
        told = rllib(*evaluate, "--json", str(place / "a.json"), cwd=tmp_path)
        assert told.returncode == 1 and "bug" not in told.stderr, told.stderr


def test_killed_after_the_last_checkpoints_nothing_waits_for_trials_that_have_ended(cut_off):
    stage = cut_off / "results/tiny/cartpole"
    say_running(stage)
    done = succeeds(*COMMAND, cwd=cut_off, timeout=120)
    assert "Continuing" in done.stdout and "     1 " not in done.stdout
    trials = sorted(stage.glob("trial_*"))
    assert len(trials) == 2 and all(rows(trial) == [1, 2, 3, 4, 5, 6] for trial in trials)
    assert len(json.loads((stage / "stage.json").read_text())["outputs"]) == 2
    # Tune had put the signatures of the first call over those of this one.
    states = sorted(stage.glob("[!.]*state-*.json"))
    assert len(states) == 4 and all(OwnStates(stage).holds(path) for path in states), states


@pytest.mark.slow
def test_a_trial_killed_in_a_save_goes_on_to_its_end(tmp_path):
    write(tmp_path, 8, checkpoint_config={"checkpoint_frequency": 1})
    running = start_rllib(*COMMAND, cwd=tmp_path)
    for line in running.stdout:
        if line.split()[:1] == ["2"]:
            trial = actor(running, "PPO")
        if line.split()[:1] == ["3"]:  # its checkpoint is written from now on
            trial.kill()
            break
    said, _ = running.communicate(timeout=240)
    assert running.returncode == 1 and "bug" not in said, said
    (state,) = (tmp_path / "results/tiny/cartpole").glob("experiment_state-*.json")
    decided = json.loads(state.read_text())["runner_data"]["_cached_trial_decisions"]
    assert list(decided.values()) == [TrialScheduler.STOP], "the kill came after the save"

    done = succeeds(*COMMAND, cwd=tmp_path)
    assert "stopped early" not in done.stdout, done.stdout + done.stderr
    assert rows(tmp_path / "results/tiny/cartpole/trial_0") == list(range(1, 9))


def test_a_torn_state_costs_no_trial(cut_off):
    stage = cut_off / "results/tiny/cartpole"
    for torn in [*stage.glob("experiment_state-*.json"), *stage.glob("basic-variant-state-*.json")]:
        tear(torn)
    before = {trial: contents(trial) for trial in stage.glob("trial_*")}
    state = find_state(stage, OwnStates(stage).holds_content)
    repair_state(state, stage)
    trials = [json.loads(description) for description, _ in json.loads(state.read_text())["trial_data"]]
    assert [trial["status"] for trial in trials] == ["TERMINATED", "TERMINATED"]  # no trial is done again
    assert len(before) == 2 and all(contents(trial) == was for trial, was in before.items())


def test_a_checkpoint_that_came_after_the_state_is_gone_on_from_and_not_written_over(cut_off):
    stage = cut_off / "results/tiny/cartpole"
    (stage / "trial_1_seed=1/checkpoint_000002").rename(stage / "trial_1_seed=1/checkpoint_000005")
    state = find_state(stage, OwnStates(stage).holds_content)
    repair_state(state, stage)
    newest = {}
    for description, metadata in json.loads(state.read_text())["trial_data"]:
        trial = Trial.from_json_state(description)
        trial.restore_run_metadata(metadata)
        assert trial.status == "TERMINATED", "its checkpoint is of its end"
        kept = [one.checkpoint.path for one in trial.run_metadata.checkpoint_manager._checkpoint_results]
        assert len(kept) == 3 and all(Path(path).is_relative_to(stage) for path in kept), "the run was copied"
        newest[trial.storage.trial_dir_name] = (
            Path(trial.checkpoint.path).name,
            trial.storage.current_checkpoint_index,
        )
    assert newest == {"trial_0_seed=0": ("checkpoint_000002", 2), "trial_1_seed=1": ("checkpoint_000005", 5)}


@pytest.mark.parametrize("score", ["null", None, 0.5])
def test_a_score_that_is_no_number_ranks_as_none(score, tmp_path):
    """A NaN of float32 may be told as a text."""
    make_key()
    for number, told in enumerate((1.0, score)):
        folder = tmp_path / f"checkpoint_00000{number}"
        folder.mkdir()
        (folder / "weights.bin").write_bytes(b"x")
        seal_checkpoint(folder, "PPO", {"score": told})
    settings = CheckpointConfig(num_to_keep=1, checkpoint_score_attribute="score")
    trial = Mock(status="RUNNING")
    trial.run_metadata.checkpoint_manager = _CheckpointManager(settings)
    trial.storage = Mock(trial_fs_path=str(tmp_path), storage_filesystem=None, current_checkpoint_index=0)
    _repair_trial(trial, tmp_path)
    manager = trial.run_metadata.checkpoint_manager
    assert Path(manager.best_checkpoint_result.checkpoint.path).name == "checkpoint_000000"
    assert Path(manager.latest_checkpoint_result.checkpoint.path).name == "checkpoint_000001"


@pytest.mark.slow
def test_without_any_state_checkpoints_are_kept_and_named(cut_off):
    stage = cut_off / "results/tiny/cartpole"
    for state in [*stage.glob("*state*.json"), stage / STATE_COPY]:
        tear(state)
    before = {trial.name: contents(trial) for trial in stage.glob("trial_*")}
    done = succeeds(*COMMAND, cwd=cut_off)
    assert "cannot be read; they begin anew" in done.stdout
    assert {name: contents(stage / f"lost_{name}-1") for name in before} == before


def test_the_newest_whole_checkpoint_is_taken_and_a_stop_decided_in_a_save_is_forgotten(cut_off):
    """Tune notes STOP for a trial that fails during a save, and would obey after the next save of the run resumed."""
    stage = cut_off / "results/tiny/cartpole"
    (state,) = stage.glob("experiment_state-*.json")
    content = json.loads(state.read_text())
    trials = [json.loads(description)["trial_id"] for description, _ in content["trial_data"]]
    decided = dict.fromkeys(trials, TrialScheduler.STOP)
    assert {"_cached_trial_decisions", "_queued_trial_decisions"} <= set(content["runner_data"])
    content["runner_data"].update(_cached_trial_decisions=decided, _queued_trial_decisions=decided)
    state.write_text(json.dumps(content))
    (stage / STATE_COPY).unlink()
    OwnStates(stage).sign([state])
    # One trial goes on from iteration 4, as its newest checkpoint is torn, the other from 2, so that it saves twice.
    tear(stage / "trial_0_seed=0/checkpoint_000002/learner_group/learner/state.pkl")
    for late in ("checkpoint_000001", "checkpoint_000002"):
        shutil.rmtree(stage / "trial_1_seed=1" / late)
    done = succeeds(*COMMAND, cwd=cut_off)
    assert "Continuing" in done.stdout and "stopped early" not in done.stdout
    assert "trial_0_seed=0/checkpoint_000002 is not whole" in done.stdout
    assert sorted(shown(done.stdout)) == [3, 4, 5, 5, 6, 6]
    ended = sorted(stage.glob("trial_*"))
    assert len(ended) == 2 and all(rows(trial) == [1, 2, 3, 4, 5, 6] for trial in ended)


@pytest.mark.slow
def test_a_single_run_without_state_goes_on_from_its_checkpoint_with_its_curve(tmp_path):
    write(tmp_path, 4)
    assert rllib(*COMMAND, cwd=tmp_path).returncode == 0
    stage = tmp_path / "results/tiny/cartpole"
    marker = json.loads((stage / "stage.json").read_text())
    (stage / "stage.json").write_text(json.dumps({**marker, "status": "running", "outputs": []}))
    for state in [*stage.glob("*state*.json"), stage / STATE_COPY]:
        tear(state)
    tear(stage / "trial_0/checkpoint_000001/learner_group/learner/rl_module/default_policy/module_state.pkl")
    done = succeeds(*COMMAND, "--trust", cwd=tmp_path)
    assert "Continuing from results/tiny/cartpole/lost_trial_0-1/checkpoint_000000." in done.stdout
    assert rows(stage / "trial_0") == [1, 2, 3, 4]


def test_a_sealed_checkpoint_counts_only_with_all_of_its_files(tmp_path):
    make_key()
    for number in range(3):
        path = tmp_path / f"checkpoint_00000{number}"
        (path / "sub").mkdir(parents=True)
        (path / "sub/weights.bin").write_bytes(b"x" * 100)
        if number < 2:
            seal_checkpoint(path, "PPO", {"training_iteration": number})
    assert [path.name for path in whole_checkpoints(tmp_path)] == ["checkpoint_000000", "checkpoint_000001"]
    (tmp_path / "checkpoint_000001/sub/weights.bin").write_bytes(b"x" * 99)
    assert [path.name for path in whole_checkpoints(tmp_path)] == ["checkpoint_000000"]


def test_iterations_that_are_done_again_have_one_row(tmp_path):
    """Behind a row that a kill has cut off, and after a trial took over a checkpoint of an earlier iteration."""
    trial = Mock(config={}, local_path=str(tmp_path))
    trial.storage.trial_fs_path = str(tmp_path)
    (tmp_path / "result.json").write_text('{"training_iteration": 1, "of": {"them": 1}}\n{"training_iter')
    table = CurveTable()
    for log in (logs := [table, CurveRows(table)]):
        log.on_trial_start(0, [trial], trial)
    for number in (2, 3, 4, 3, 4, 5):
        for log in logs:
            log.on_trial_result(0, [trial], trial, {"training_iteration": number, "of": {"them": number}})
    assert rows(tmp_path) == [1, 2, 3, 4, 5] and table_rows(tmp_path) == ["1", "2", "3", "4", "5"]


def test_a_killed_run_goes_on_with_one_row_per_iteration_and_a_finished_one_is_skipped(tmp_path):
    write(tmp_path, 12)
    running = fork_rllib(*COMMAND, cwd=tmp_path)
    wait_for_iteration(running, 9)  # checkpoints are of even iterations, so this one is lost
    running.send_signal(signal.SIGKILL)
    running.wait()
    assert json.loads((tmp_path / "results/tiny/cartpole/stage.json").read_text())["status"] == "running"

    done = succeeds(*COMMAND, cwd=tmp_path)
    assert done.stderr == "", done.stderr
    assert "Continuing where the last call stopped." in done.stdout
    assert "results/tiny/cartpole/trial_0/checkpoint_" in done.stdout.partition("Everything lies here")[2]
    iterations = shown(done.stdout)
    assert 1 < iterations[0] <= 10 and iterations[-1] == 12
    assert rows(tmp_path / "results/tiny/cartpole/trial_0") == list(range(1, 13))
    require_finished(tmp_path / "results")
    assert "already there, skipped" in succeeds(*COMMAND, cwd=tmp_path).stdout


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_a_stopped_run_writes_a_checkpoint_and_says_how_to_go_on(tmp_path, number):
    write(tmp_path, 100_000, checkpoint_config={"checkpoint_frequency": 0})
    running = fork_rllib(*COMMAND, cwd=tmp_path)
    wait_for_iteration(running, 3)
    require_stopped(running, number)
    trial = tmp_path / "results/tiny/cartpole/trial_0"
    (saved,) = whole_checkpoints(trial)
    reached = sealed_metrics(saved)["training_iteration"]
    assert reached >= 3 and rows(trial)[:reached] == list(range(1, reached + 1))

    succeeds(*COMMAND, "--stop", json.dumps({"training_iteration": reached + 1}), cwd=tmp_path)
    assert rows(trial) == list(range(1, reached + 2))


def require_stopped(running: Running, number: int) -> None:
    """Stops a command with a signal; its last line says how to go on."""
    running.send_signal(number)
    said, status = running.communicate(timeout=120)
    assert status == 130 and "type the same command" in said.splitlines()[-1] and "Traceback" not in said, said


def test_sigterm_is_ctrl_c_outside_of_training_too(tmp_path):
    spec = {"run": "collect_labels", "env": "rllib_llm_comm/overcooked_text-v0", "config": {"target_labels": 10**6}}
    (tmp_path / "labels.json").write_text(json.dumps({"labels": spec}))
    running = fork_rllib("train", "file", "labels.json", cwd=tmp_path)
    assert any(line.startswith("[1/1]") for line in running.stdout)
    require_stopped(running, signal.SIGTERM)
