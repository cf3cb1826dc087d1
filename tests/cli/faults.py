"""What tests of faults share: disks of their own, processes below a command, what a run may leave behind."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from rllib_llm_comm.experiments.tune_state import whole_checkpoints


def rows(trial: Path) -> list[int]:
    return [json.loads(line)["training_iteration"] for line in (trial / "result.json").read_text().splitlines()]


def table_rows(trial: Path) -> list[str]:
    lines = (trial / "progress.csv").read_text().splitlines()
    place = lines[0].split(",").index("training_iteration")
    return [line.split(",")[place] for line in lines[1:] if "," in line]


def shown(said: str) -> list[int]:
    """The iterations in the table that a training prints."""
    return [int(line.split()[0]) for line in said.splitlines() if line[:7].strip().isdigit()]


def wait_for_iteration(running: Any, number: int) -> None:
    """Reads what a training says until it shows an iteration, or ends."""
    for line in running.stdout:
        if line.split()[:1] == [str(number)]:
            return


@contextmanager
def disk(place: Path, size: str) -> Iterator[Path]:
    """A disk of its own; as only root may have one, other accounts skip the test."""
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)], capture_output=True)
    if done.returncode:
        pytest.skip(f"no file system can be mounted here: {done.stderr.decode().strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def remount(place: Path, option: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{option}", str(place)], check=True)


def below(command: subprocess.Popen[str]) -> list[psutil.Process]:
    """All processes that a command has started, and those that they have; nothing else on the machine is looked at."""
    try:
        return psutil.Process(command.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def actor(command: subprocess.Popen[str], name: str, seconds: float = 60) -> psutil.Process:
    """A process of Ray's below a command whose title has a name, as soon as there is one."""
    end = time.monotonic() + seconds
    titles: list[str] = []
    while time.monotonic() < end:
        titles = []
        for process in below(command):
            try:
                title = " ".join(process.cmdline()[:1])
            except psutil.Error:
                continue
            if title.startswith("ray::") and name in title:
                return process
            titles.append(title)
        time.sleep(0.1)
    raise AssertionError(f"no process {name!r} among {titles}")


def kill(command: subprocess.Popen[str]) -> None:
    """Kills a command as `kill -9` does and waits until all that it had started is gone, too.

    Raises:
        AssertionError: If a process is still there after two minutes.
    """
    started = below(command)
    command.kill()
    command.communicate()
    require_gone(started)


def require_gone(processes: list[psutil.Process]) -> None:
    """Waits until processes have ended; Ray's agents notice only after a while that nobody is there any more.

    Raises:
        AssertionError: If one is still there after two minutes.
    """
    wait_until(lambda: all(map(_has_ended, processes)), what=lambda: [p for p in processes if not _has_ended(p)])


def _has_ended(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def half_written(results: Path) -> list[Path]:
    """What no finished run may leave: scratch files, folders that were not put in place, torn checkpoints."""
    scratch = [
        path for path in results.rglob("*") if path.suffix == ".tmp" or path.name.startswith((".policy-", ".adapter-"))
    ]
    trials = {path.parent for path in results.rglob("checkpoint_*") if path.is_dir()}
    torn = [path for trial in trials for path in set(trial.glob("checkpoint_*")) - set(whole_checkpoints(trial))]
    return [*scratch, *torn, *results.rglob("incomplete_*")]


def require_finished(results: Path) -> None:
    """Every stage below a folder has ended, every curve has each iteration once, in order, nothing is half there."""
    stages = sorted(results.rglob("stage.json"))
    assert stages
    for stage in stages:
        assert json.loads(stage.read_text())["status"] == "finished", stage
        for trial in stage.parent.glob("trial_*"):
            assert rows(trial) == list(range(1, len(rows(trial)) + 1)), trial
            assert table_rows(trial) == [str(number) for number in rows(trial)], trial
    assert not half_written(results), half_written(results)


def wait_until(true: Callable[[], object], seconds: float = 120, what: Callable[[], object] = str) -> None:
    """Looks again and again; `what` tells what it waits for.

    Raises:
        AssertionError: If it does not become true in time.
    """
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, what() or "it did not come so far"
        time.sleep(0.02)
