"""`kill -9` of the command, full and read-only disks, in every stage of one small file (minutes: `pytest -m slow`)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from chat_process import ChatProcess

from tests.cli import small_pipeline
from tests.cli.chaos_table import stages_of
from tests.cli.command import rllib, start_rllib, succeeds
from tests.cli.faults import (
    disk,
    half_written,
    kill,
    remount,
    require_finished,
    shown,
    wait_for_iteration,
    wait_until,
)  # fmt: skip
from tests.cli.small_pipeline import NAME, TRAINED, undo
from tests.cli.test_study import SMOKE

pytestmark = pytest.mark.slow
HERE = "cli/test_chaos.py"
COMMAND = ["train", "file", f"{NAME}.json", "--ray-num-cpus", "4"]


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[ChatProcess]:
    process = ChatProcess(tmp_path_factory.mktemp("server"), delay=0.15)
    yield process
    process.kill()


@pytest.fixture(scope="module")
def finished(server, tmp_path_factory) -> Path:
    """A folder with the file and all of its stages; copied by the tests."""
    folder = tmp_path_factory.mktemp("finished")
    succeeds(*small_pipeline.write(folder, small_pipeline.pipeline(server.url)), cwd=folder, timeout=400)
    require_finished(folder / "results")
    return folder


@pytest.fixture
def before(finished, tmp_path) -> Path:
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    return folder


def status(stage: Path) -> str:
    return json.loads((stage / "stage.json").read_text())["status"]


def kill_in(running: subprocess.Popen[str], stage: str, folder: Path, server: ChatProcess, asked: int) -> None:
    """Kills the command in the middle of a stage."""
    if stage in TRAINED:
        wait_for_iteration(running, 3)  # checkpoints are of even iterations
    elif stage in ("labels", "chat_play"):
        wait_until(lambda: len(server.questions) >= asked + 4 or running.poll() is not None)
    else:
        wait_until(lambda: (folder / "stage.json").exists() or running.poll() is not None)
    kill(running)
    assert status(folder) == "running"


@pytest.mark.parametrize("stage", stages_of(f"{HERE}::test_a_killed_command"))
def test_a_killed_command(stage, before, server):
    undo(before, stage)
    asked = len(server.questions)
    kill_in(start_rllib(*COMMAND, cwd=before), stage, before / "results" / NAME / stage, server, asked)
    done = succeeds(*COMMAND, cwd=before)
    require_finished(before / "results")
    sent = server.questions[asked:]
    assert len(sent) - len(set(sent)) <= 1  # the request that was under way
    if stage in TRAINED:
        assert shown(done.stdout)[0] == 3, done.stdout


def test_a_killed_study(tmp_path):
    arguments = ["study", "file", str(SMOKE), "-n", "smoke", "--ray-num-cpus", "2"]
    results = tmp_path / "results/smoke"
    running = start_rllib(*arguments, cwd=tmp_path)
    wait_until(lambda: any(results.glob("B.constant/trial_*/checkpoint_*")) or running.poll() is not None)
    kill(running)
    assert status(results / "B.constant") == "running"
    succeeds(*arguments, cwd=tmp_path, timeout=280)
    require_finished(results)
    assert json.loads((results / "report/report.json").read_text())["missing"] == []


def fill(place: Path, left: int) -> Path:
    """Fills a disk but for some bytes with a file."""
    filler = place / "filler"
    free = os.statvfs(place).f_bavail * os.statvfs(place).f_frsize
    with filler.open("wb") as file:
        for _ in range((free - left) // 4096):
            file.write(bytes(4096))
    return filler


@pytest.mark.parametrize("stage", stages_of(f"{HERE}::test_a_full_disk"))
def test_a_full_disk(stage, before, server, tmp_path):
    with disk(tmp_path / "disk", "300m") as place:
        undo(before, stage)
        shutil.move(before / "results", place / "results")
        arguments = [*COMMAND, "--storage-path", str(place / "results")]
        # Room for the first file of a stage, not for what it gives; the figures of an evaluation fit in one page.
        filler = fill(place, 4096 if stage == "evaluation" else 24 * 1024)
        asked = len(server.questions)
        full = rllib(*arguments, cwd=before)
        assert full.returncode == 1 and "the disk is full" in full.stderr and "bug" not in full.stderr, full.stderr
        assert status(place / "results" / NAME / stage) == "running"
        assert not half_written(place / "results" / NAME / stage)
        filler.unlink()
        succeeds(*arguments, cwd=before)
        require_finished(place / "results")
        sent = server.questions[asked:]
        assert len(sent) - len(set(sent)) <= 1  # the answer that met the full disk


@pytest.mark.parametrize("stage", stages_of(f"{HERE}::test_a_read_only_disk"))
def test_a_read_only_disk(stage, before, server, tmp_path):
    """The command was killed in the stage; then its disk can only be read, and later be written again."""
    with disk(tmp_path / "disk", "300m") as place:
        undo(before, stage)
        shutil.move(before / "results", place / "results")
        arguments = [*COMMAND, "--storage-path", str(place / "results")]
        folder = place / "results" / NAME / stage
        kill_in(start_rllib(*arguments, cwd=before), stage, folder, server, len(server.questions))
        remount(place, "ro")
        asked = len(server.questions)
        told = rllib(*arguments, cwd=before)
        assert told.returncode == 1 and "the disk can only be read" in told.stderr and "bug" not in told.stderr
        assert len(server.questions) == asked
        remount(place, "rw")
        succeeds(*arguments, cwd=before)
        require_finished(place / "results")


WRITER = """
import sys
from pathlib import Path
from rllib_llm_comm.core.files import write_atomically
while True:
    write_atomically(Path(sys.argv[1]), bytes(2 ** 25))
"""


def test_scratch_files_of_a_killed_command_go(before, server):
    """The command is killed in a stage; a writer of the same kind as its own is killed in the middle of a file."""
    undo(before, "replay")
    folder = before / "results" / NAME / "replay"
    kill_in(start_rllib(*COMMAND, cwd=before), "replay", folder, server, len(server.questions))
    kill_in_writing(folder / "replay.html")
    assert half_written(folder)
    succeeds(*COMMAND, cwd=before)
    require_finished(before / "results")


def kill_in_writing(path: Path) -> None:
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)])
    try:
        wait_until(lambda: any(path.parent.glob(".*.tmp")))
    finally:
        writer.kill()
        writer.wait()
