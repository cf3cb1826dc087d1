"""The share of a pass goes through a file."""

from __future__ import annotations

from rllib_llm_comm.rl.epoch_progress import read_progress, with_progress


def test_the_share_is_told_of_the_pass_that_runs(tmp_path):
    assert read_progress(tmp_path, 2) == 0.0
    seen = []
    for part in with_progress("abc", 3, str(tmp_path), iteration=2, interval=0.0):
        seen.append((part, read_progress(tmp_path, 2)))
    assert seen == [("a", 0.0), ("b", 0.25), ("c", 0.5)]
    assert read_progress(tmp_path, 2) == 0.75  # held-out labels are still to be judged
    assert read_progress(tmp_path, 3) == 0.0  # the next pass has told nothing yet
    assert [path.name for path in tmp_path.iterdir()] == ["pass_share.json"]


def test_nothing_is_told_more_often_than_asked_for_nor_stops_a_training(tmp_path):
    assert list(with_progress("abc", 3, str(tmp_path), iteration=0, interval=60.0)) == ["a", "b", "c"]
    assert list(tmp_path.iterdir()) == []
    assert list(with_progress("abc", 3, str(tmp_path / "gone"), iteration=0, interval=0.0)) == ["a", "b", "c"]
    (tmp_path / "pass_share.json").write_text("[0,")
    assert read_progress(tmp_path, 0) == 0.0
