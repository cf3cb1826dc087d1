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


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("mode", ["primitive", "macro"])
def test_plain_and_zipped_files_are_read(tmp_path, episodes, mode, zipped):
    report = check_golden(write(tmp_path / "file", episodes[mode], zipped=zipped))
    assert report.ok and report.game == "overcooked_text"
    assert (report.episodes, report.steps) == (1, episodes[mode]["length"])


def changed(episode, change):
    copy = json.loads(json.dumps(episode))
    change(copy["steps"][4])
    return copy


@pytest.mark.parametrize(
    ("mode", "field", "change"),
    [
        ("primitive", "state.agents", lambda step: step["state"]["agents"][0].__setitem__(0, 9)),
        ("primitive", "state.foods", lambda step: step["state"]["foods"]["onion"].__setitem__(2, 1)),
        ("primitive", "state.belief", lambda step: step["state"]["belief"].__setitem__(0, "?")),
        ("primitive", "obs of agent 1", lambda step: step["obs"][1].__setitem__(3, 0.125)),
        ("primitive", "reward", lambda step: step.__setitem__("reward", [7.0, 7.0])),
        ("primitive", "done", lambda step: step.__setitem__("done", True)),
        ("primitive", "blocked", lambda step: step.__setitem__("blocked", [0, 1])),
        ("primitive", "swaps", lambda step: step.__setitem__("swaps", [[0, 1]])),
        ("macro", "primitive", lambda step: step.__setitem__("primitive", [9, 9])),
        ("macro", "info.mac_done", lambda step: step["info"].__setitem__("mac_done", [None, None])),
        ("macro", "state.macro", lambda step: step["state"]["macro"][0].__setitem__(2, 8)),
    ],
)
def test_each_difference_is_found(tmp_path, episodes, mode, field, change):
    report = check_golden(write(tmp_path / "f.jsonl", changed(episodes[mode], change), episodes["macro"]))
    assert not report.ok and report.episodes == 2
    assert [(m.step, m.field) for m in report.mismatches] == [(5, field)]
    assert f"episode {episodes[mode]['id']}, step 5, {field}" in str(report.mismatches[0])


def test_a_wrong_action_makes_many_differences(tmp_path, episodes):
    episode = changed(episodes["primitive"], lambda step: step.__setitem__("actions", [1, 1]))
    report = check_golden(write(tmp_path / "f.jsonl", episode))
    assert report.mismatch_count >= len(report.mismatches) > 5
    assert len(report.mismatches) <= 200


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no episode"),
        (b"not json\n", "Line 1 .* is not JSON"),
        (b"[1, 2]\n", "Line 1 .* is a list"),
        (b'{"game": "chess"}\n', "no known game; known are overcooked_text"),
        (b"\x1f\x8b broken", "cannot be read"),
        (b"\xff\xfe\xfa", "cannot be read"),
    ],
)
def test_bad_files_are_refused(tmp_path, content, message):
    path = tmp_path / "bad"
    path.write_bytes(content)
    with pytest.raises(UserError, match=message):
        check_golden(path)


def test_missing_files_and_unknown_contents_are_refused(tmp_path, episodes):
    with pytest.raises(UserError, match=r"cannot be read.*give the path"):
        check_golden(tmp_path / "none.jsonl")
    with pytest.raises(UserError, match="cannot be read"):
        check_golden(tmp_path)
    episode = json.loads(json.dumps(episodes["macro"]))
    with pytest.raises(UserError, match=r"e049.*`map` is 'Z' but must be one of 'A', 'B', 'C'"):
        check_golden(write(tmp_path / "f", {**episode, "map": "Z"}))
    del episode["steps"][0]["state"]
    with pytest.raises(UserError, match="not of the format 'overcooked_text'"):
        check_golden(write(tmp_path / "f", episode))


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.jsonl")
    with pytest.raises(UserError, match="no ordinary file"):
        check_golden(tmp_path / "pipe.jsonl")
