"""What a run's folder holds may come from anybody: it is looked at before it is parsed, and has bounds."""

from __future__ import annotations

import base64
import gzip
import json
import os
import subprocess
import sys

import pytest

from rllib_llm_comm.experiments.tune_state import STATE_COPY, find_state
from rllib_llm_comm.policies.signatures import SIGNATURE, OwnStates, make_key

STATE, SEARCHER = "experiment_state-1.json", "basic-variant-state-1.json"


@pytest.fixture
def stage(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    make_key()
    (tmp_path / "stage").mkdir()
    return tmp_path / "stage"


def pack(stage, **files):
    packed = {name: base64.b64encode(content).decode() for name, content in files.items()}
    (stage / STATE_COPY).write_bytes(gzip.compress(json.dumps(packed).encode()))


def state(note):
    return json.dumps({"trial_data": [note], "runner_data": {}}).encode()


def test_an_empty_code_signs_no_link(stage, tmp_path):
    (tmp_path / "elsewhere").write_bytes(state("bad"))
    (stage / STATE).symlink_to(tmp_path / "elsewhere")
    (stage / SIGNATURE).write_text('{"begun": null, "codes": [""]}')
    assert not OwnStates(stage).holds(stage / STATE)


def test_a_copy_brings_back_only_signed_states(stage):
    for name, content in ((STATE, state("own")), (SEARCHER, b".")):
        (stage / name).write_bytes(content)
        OwnStates(stage).sign([stage / name])
        (stage / name).unlink()
    (stage / "stage.json").write_text("{}")
    signed = (stage / SIGNATURE).read_bytes()
    foreign = {"stage.json": b"[]", SIGNATURE: b"[]", "callback-states-1.pkl": b"."}
    pack(stage, **{STATE: state("own"), SEARCHER: b"."}, **foreign)
    found = find_state(stage, OwnStates(stage).holds_content)
    assert found == stage / STATE and json.loads(found.read_text())["trial_data"] == ["own"]
    assert (stage / "stage.json").read_text() == "{}" and (stage / SIGNATURE).read_bytes() == signed
    assert not (stage / "callback-states-1.pkl").exists()
    found.unlink()
    pack(stage, **{STATE: state("changed"), SEARCHER: b"."})
    assert find_state(stage, OwnStates(stage).holds_content) is None and not found.exists()


FOREIGN = """
import gzip, json, os, resource, sys
from pathlib import Path
from rllib_llm_comm.policies.signatures import SIGNATURE, OwnStates, is_whole, sealed_metrics, signed_algorithm
from rllib_llm_comm.policies.stage_record import MARKER, read_record
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.evaluation.study_results import read_rows
from rllib_llm_comm.experiments.runs import last_row
from rllib_llm_comm.experiments.tune_state import find_state

def quiet(read):
    try:
        return read()
    except (OSError, UserError, ValueError):
        return None

with open("/proc/self/statm") as file:
    here = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (here + 2**30, here + 2**30))
for stage in map(Path, sys.argv[1:]):
    assert read_record(stage) is None
    assert not OwnStates(stage).has_begun("run")
    assert sealed_metrics(stage) is None and signed_algorithm(stage) is None and not is_whole(stage)
    assert find_state(stage, lambda name, content: True) is None
    assert not quiet(lambda: last_row(stage)) and not quiet(lambda: read_rows(stage / "result.json"))
    (stage / "result.json").unlink(missing_ok=True)
    assert not quiet(lambda: last_row(stage))
    print("done")
"""
NAMES = [SIGNATURE, "stage.json", STATE, STATE_COPY, "result.json", "progress.csv"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_a_run_of_any_size_or_kind_takes_little_memory(tmp_path):
    kinds = {
        "pipe": os.mkfifo,
        "device": lambda path: path.symlink_to("/dev/zero"),
        "sparse": lambda path: (path.touch(), os.truncate(path, 4 * 2**30)),
    }
    folders = [tmp_path / kind for kind in (*kinds, "bomb")]
    for folder in folders:
        folder.mkdir()
    for kind, make in kinds.items():
        for name in NAMES:
            make(tmp_path / kind / name)
    with gzip.open(tmp_path / "bomb" / STATE_COPY, "wb", compresslevel=1) as file:
        for _ in range(2**6):
            file.write(bytes(2**24))
    # Another process, killed: one that waits for a pipe hears no signal of Python's.
    command = [sys.executable, "-c", FOREIGN, *map(str, folders)]
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=100)
    assert done.stdout.split() == ["done"] * len(folders), done.stdout + done.stderr
