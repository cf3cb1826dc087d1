"""Golden files: differences are found and bad files refused."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.golden import check_golden, read_episodes

GOLDEN = Path(__file__).parents[1] / "data" / "overcooked_text_golden.jsonl.gz"


@pytest.fixture(scope="module")
def episodes():
    found = list(read_episodes(GOLDEN))
    return {mode: next(e for e in found if e["mode"] == mode) for mode in ("primitive", "macro")}


def write(path, *episodes, zipped=False):
    text = "".join(json.dumps(episode) + "\n" for episode in episodes)
    path.write_bytes(gzip.compress(text.encode()) if zipped else text.encode())
    return path


@pytest.mark.parametrize(("mode", "zipped"), [("primitive", False), ("macro", True)])
def test_plain_and_zipped_files_are_read(tmp_path, episodes, mode, zipped):
    report = check_golden(write(tmp_path / "file", episodes[mode], zipped=zipped))
    assert report.ok and report.game == "overcooked_text"
    assert (report.episodes, report.steps) == (1, episodes[mode]["length"])


def changed(episode, value, *place):
    """An episode whose fifth step has another value at a place."""
    copy = json.loads(json.dumps(episode))
    inner = copy["steps"][4]
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return copy


@pytest.mark.parametrize(
    ("mode", "field", "value", "place"),
    [
        ("primitive", "state.agents", 9, ("state", "agents", 0, 0)),
        ("primitive", "state.foods", 1, ("state", "foods", "onion", 2)),
        ("primitive", "state.belief", "?", ("state", "belief", 0)),
        ("primitive", "obs of agent 1", 0.125, ("obs", 1, 3)), ("primitive", "reward", [7.0, 7.0], ("reward",)),
        ("primitive", "done", True, ("done",)), ("primitive", "blocked", [0, 1], ("blocked",)),
        ("primitive", "swaps", [[0, 1]], ("swaps",)), ("macro", "primitive", [9, 9], ("primitive",)),
        ("macro", "info.mac_done", [None, None], ("info", "mac_done")),
        ("macro", "state.macro", 8, ("state", "macro", 0, 2)),
    ],
)  # fmt: skip
def test_each_difference_is_found(tmp_path, episodes, mode, field, value, place):
    report = check_golden(write(tmp_path / "f.jsonl", changed(episodes[mode], value, *place), episodes["macro"]))
    assert not report.ok and report.episodes == 2
    assert [(m.step, m.field) for m in report.mismatches] == [(5, field)]
    assert f"episode {episodes[mode]['id']}, step 5, {field}" in str(report.mismatches[0])


def test_a_wrong_action_makes_many_differences(tmp_path, episodes):
    report = check_golden(write(tmp_path / "f.jsonl", changed(episodes["primitive"], [1, 1], "actions")))
    assert report.mismatch_count >= len(report.mismatches) > 5
    assert len(report.mismatches) <= 200


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no episode"), (b"not json\n", "Line 1 .*JSON"), (b"[1, 2]\n", "Line 1 .*list"),
        (b'{"game": "chess"}\n', "known are overcooked_text"), (b"\x1f\x8b broken", "read"), (b"\xff\xfe\xfa", "read"),
    ],
)  # fmt: skip
def test_bad_files_are_refused(tmp_path, content, message):
    path = tmp_path / "bad"
    path.write_bytes(content)
    with pytest.raises(UserError, match=message):
        check_golden(path)


def test_missing_files_pipes_and_unknown_contents_are_refused(tmp_path, episodes):
    os.mkfifo(tmp_path / "pipe.jsonl")  # which is not waited for
    for place, cause in (("none.jsonl", "read"), (".", "read"), ("pipe.jsonl", "ordinary")):
        with pytest.raises(UserError, match=cause):
            check_golden(tmp_path / place)
    episode = json.loads(json.dumps(episodes["macro"]))
    with pytest.raises(UserError, match="e049.*`map` is 'Z'"):
        check_golden(write(tmp_path / "f", {**episode, "map": "Z"}))
    del episode["steps"][0]["state"]
    with pytest.raises(UserError, match="format 'overcooked_text'"):
        check_golden(write(tmp_path / "f", episode))
