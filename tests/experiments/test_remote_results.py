"""Results at `s3://`: sent while a run writes, found again on another machine, never lost or mixed in silence."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import pytest

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.experiments import remote_results
from rllib_llm_comm.experiments.experiment_file import ExperimentFile, TrainSettings, parse_experiments
from rllib_llm_comm.experiments.remote_results import results_folder, sent
from rllib_llm_comm.experiments.run_experiments import run_experiments
from rllib_llm_comm.policies.find_checkpoint import shipped_policy
from rllib_llm_comm.policies.load_policy import load_policy
from tests.cli.command import start_rllib, succeeds
from tests.cli.faults import wait_until
from tests.cli.test_resume import COMMAND, write
from tests.s3_server import ENVIRONMENT, s3_server

STAGE = {"look": {"run": "evaluate", "config": {"checkpoint": "zoo:verco_salad", "episodes": 1}}}


@pytest.fixture(scope="module")
def server():
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        with s3_server() as found:
            yield found


@pytest.fixture
def store(server, tmp_path, monkeypatch):
    """A server; and a cache of one's own, as on a machine that has not seen its results."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return server


def another_machine(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other_cache"))


def test_a_stage_writes_to_a_store_and_is_found_there_by_another_machine(store, tmp_path, monkeypatch, capsys):
    file = ExperimentFile("exp", parse_experiments(STAGE, "here"))
    run_experiments(file, TrainSettings(storage_path=store.uri("first")))
    assert store.names("first") == ["first/exp/look/evaluation.json", "first/exp/look/stage.json"]
    assert json.loads(store.get("first/exp/look/stage.json"))["status"] == "finished"
    assert "s3://results/first/exp/look" in capsys.readouterr().out

    another_machine(monkeypatch, tmp_path)
    run_experiments(file, TrainSettings(storage_path=store.uri("first")))
    assert "already there, skipped" in capsys.readouterr().out


@pytest.mark.parametrize("given", ["gs://bucket/x", "memory://x", "file://host/x", "s3://"])
def test_other_places_are_refused_before_anything_is_written(given, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    experiments = parse_experiments({"look": {**STAGE["look"], "storage_path": given}}, "here")
    with pytest.raises(UserError, match=r"storage_path` is '" + re.escape(given)):
        run_experiments(ExperimentFile("exp", experiments))
    assert not list(tmp_path.iterdir())


def test_a_file_uri_is_a_folder_of_this_machine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = ExperimentFile("exp", parse_experiments(STAGE, "here"))
    run_experiments(file, TrainSettings(storage_path=f"file://{tmp_path}/my%20results"))
    assert [path.name for path in tmp_path.iterdir()] == ["my results"]
    assert (tmp_path / "my results/exp/look/evaluation.json").is_file()


def test_files_are_sent_while_a_run_goes_on_and_what_is_taken_away_goes(store, monkeypatch):
    monkeypatch.setattr(remote_results, "SECONDS", 0.05)
    folder = results_folder(store.uri("beside"), "exp")
    with sent([folder]):
        (folder / "a").mkdir(parents=True)
        (folder / "a/old").write_text("1")
        (folder / "a/.half.tmp").write_text("-")
        (folder / "a/link").symlink_to("/etc/passwd")
        wait_until(lambda: store.names("beside") == ["beside/exp/a/old"])
        (folder / "a/old").unlink()
        (folder / "a/new").write_text("22")
        wait_until(lambda: store.names("beside") == ["beside/exp/a/new"])
        (folder / "a/last").write_text("333")
    assert store.names("beside") == ["beside/exp/a/last", "beside/exp/a/new"]


def test_what_could_not_be_sent_is_kept_and_sent_by_the_next_call(store, tmp_path):
    uri = store.uri("unsent").replace("://results", "://other")
    store.make_bucket("other")
    folder = results_folder(uri, "exp")
    with pytest.raises(UserError, match="the same command sends them"), sent([folder]):
        folder.mkdir(parents=True)
        (folder / "x").write_text("1")
        store.remove_bucket("other")
    store.make_bucket("other")
    with sent([folder]):
        assert (folder / "x").read_text() == "1"
    assert store.names(bucket="other") == ["unsent/exp/x"]


def test_results_of_two_machines_are_not_mixed(store, tmp_path, monkeypatch):
    folder = results_folder(store.uri("two"), "exp")
    with pytest.raises(KeyboardInterrupt), sent([folder]):
        (folder / "x").parent.mkdir(parents=True)
        (folder / "x").write_text("of this one")
        store.put("two/exp/x", b"of the other")
        monkeypatch.setattr(remote_results._Sender, "_finish", lambda self: None)  # as after kill -9
        raise KeyboardInterrupt
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(UserError, match="another machine"), sent([folder]):
        pass
    assert store.get("two/exp/x") == b"of the other" and (folder / "x").read_text() == "of this one"


def test_two_commands_do_not_write_to_the_same_place(store):
    folder = results_folder(store.uri("twice"), "exp")
    with sent([folder]), pytest.raises(UserError, match="Another `rllib train`"), sent([folder]):
        pass


def stopped_at(iteration, folder) -> str:
    """Trains until an iteration is shown and then stops the command; what it has said."""
    process = start_rllib(*COMMAND, cwd=folder)
    said = []
    for line in process.stdout:
        said.append(line)
        if re.match(rf"\s+{iteration}\s", line):
            process.send_signal(signal.SIGINT)
            break
    said.append(process.stdout.read())
    assert process.wait(120) == 130, "".join(said)
    return "".join(said)


@pytest.mark.slow
def test_a_training_goes_on_from_the_store_on_another_machine(store, tmp_path, monkeypatch):
    write(tmp_path, 400, checkpoint_config={"checkpoint_frequency": 1}, storage_path=store.uri("going_on"))

    def rows() -> list[dict]:
        return [json.loads(line) for line in store.get("going_on/tiny/cartpole/trial_0/result.json").splitlines()]

    stopped_at(5, tmp_path)
    before = rows()
    assert len(before) >= 5
    another_machine(monkeypatch, tmp_path)
    assert "Continuing where the last call stopped." in stopped_at(len(before) + 3, tmp_path)
    iterations = [row["training_iteration"] for row in rows()]
    assert iterations == list(range(1, len(iterations) + 1)) and len(iterations) > len(before)

    listed = succeeds("runs", store.uri("going_on"), cwd=tmp_path)
    assert "PPO" in listed.stdout and "stopped" in listed.stdout, listed.stderr
    assert not (Path(tmp_path) / "s3:").exists()


def test_a_policy_is_loaded_from_a_store(store):
    folder = shipped_policy("zoo:verco_salad")
    for path in folder.rglob("*"):
        if path.is_file():
            store.put(f"policy/{path.relative_to(folder)}", path.read_bytes())
    loaded = load_policy(store.uri("policy"))
    assert loaded.manifest == load_policy("zoo:verco_salad").manifest
