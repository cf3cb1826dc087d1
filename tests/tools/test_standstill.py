"""Games in which nothing changes are told from games in which something does."""

import json
import sys

import pytest

from tests.idle_cook import idle_cook
from tools import standstill


def told(monkeypatch, *arguments):
    """Runs the command."""
    monkeypatch.setattr(sys, "argv", ["standstill", *map(str, arguments)])
    standstill.main()


def test_cooks_who_stay_stand_still_until_they_act_at_random(tmp_path, monkeypatch):
    idle, target = idle_cook(tmp_path / "policy", 150), tmp_path / "rows.json"
    told(monkeypatch, idle, "--games", 2, "--json", target, "--random", 0, 1)
    still, moving = json.loads(target.read_text())
    assert (still["random_share"], still["points"], still["states"]) == (0.0, 0.0, 1.0)
    assert moving["random_share"] == 1.0 and 50 < moving["states"] <= standstill.LOOK


def test_what_cannot_be_played_is_told_and_leaves_no_file(tmp_path, monkeypatch, capsys):
    target = tmp_path / "rows.json"
    for checkpoint, sentence in (
        (tmp_path / "nowhere", "There is no checkpoint at"),
        (idle_cook(tmp_path / "policy", 20), "has 20 steps but must have 140 or more"),
    ):
        with pytest.raises(SystemExit):
            told(monkeypatch, checkpoint, "--games", 1, "--json", target)
        assert sentence in capsys.readouterr().err and not target.exists()
