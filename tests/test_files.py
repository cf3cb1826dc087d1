"""Writers that fail or are killed leave nothing half there."""

from __future__ import annotations

import errno
import os
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import filelock
import pytest

from rllib_llm_comm.core.files import claim_file, disk_error, remove_scratch
from rllib_llm_comm.evaluation.replay import write_replay
from rllib_llm_comm.verco.teachers.label_store import COLUMNS, LabelStore


@contextmanager
def small_files(most: int) -> Iterator[None]:
    """Files of this process may have no more bytes, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_replay_page_that_has_no_room_leaves_nothing(tmp_path):
    with small_files(1000), pytest.raises(OSError, match="too large"):
        write_replay([], tmp_path / "page.html")
    assert not list(tmp_path.iterdir())


def test_labels_that_have_no_room_leave_no_part_of_a_file_and_are_written_later(tmp_path):
    settings = {"note": "x" * 20_000}
    store = LabelStore(tmp_path, settings, 1)
    assert store.add({**dict.fromkeys(COLUMNS, "x"), "episode": 0, "game_step": 1})
    with small_files(10_000), pytest.raises(OSError, match="too large"):
        store.flush({})
    assert not list(tmp_path.glob("*.tmp"))
    store.flush({})
    assert LabelStore(tmp_path, settings, 1).labels == 1


def test_what_a_killed_writer_left_is_deleted_and_nothing_else(tmp_path):
    kept = [tmp_path / name for name in ("stage.json", "labels/part-0.parquet", "trial_0/.lock", "trial_0/policy-1/a")]
    gone = [tmp_path / name for name in (".stage.json.0a.tmp", "labels/x.json.1b.tmp", "trial_0/c/.policy-9/weights")]
    for path in (*kept, *gone):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"1")
    remove_scratch(tmp_path)
    assert all(path.exists() for path in kept) and not any(path.exists() for path in gone)
    assert not (tmp_path / "trial_0/c/.policy-9").exists()


@pytest.mark.parametrize(
    ("number", "why", "remedy", "with_another"),
    [
        (errno.ENOSPC, "'a' .*full", "make room and type the same command", "full; make room, or {}."),
        (errno.EROFS, "only be read", "choose another place and type", "only be read; {}."),
        (errno.EISDIR, "Is a directory", "mend that and type", "Is a directory; {}."),
        (errno.EACCES, "'a'", "choose another place or mend its rights and type", "; {} or mend its rights."),
    ],
)
def test_a_disk_fault_is_one_sentence_with_one_remedy(number, why, remedy, with_another):
    fault, another = OSError(number, os.strerror(number), "a"), "give another place with `--out`"
    assert re.search(f"it stopped: .*{why}.*; {remedy}", str(disk_error(fault, "it stopped", "")))
    told = str(disk_error(fault, "it stopped", another))
    assert with_another.format(another) in told and told.count("another place") == 1


_HOLD = """
import sys, time
from pathlib import Path
from rllib_llm_comm.core.files import claim_file
with claim_file(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_claim_keeps_others_out_and_ends_with_its_process(tmp_path):
    path = tmp_path / "below" / ".lock"
    holder = subprocess.Popen([sys.executable, "-c", _HOLD, str(path)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        with pytest.raises(filelock.Timeout), claim_file(path, wait=False):
            pass
    finally:
        holder.kill()
        holder.communicate()
    # Two claims of one process keep each other out as well.
    with claim_file(path, wait=False), pytest.raises(filelock.Timeout), claim_file(path, wait=False):
        pass
    assert path.read_bytes() == b""
