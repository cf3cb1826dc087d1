"""Stages of MiniRTS officers: one file from demonstrations to win rates, and what is refused before anything runs."""

from __future__ import annotations

import json

import pytest

from tests.experiments import staged
from tests.refusal import refused

SHOWN = {"run": "demonstrate_officers", "config": {"games": 3, "max_tick": 400}}
NETWORK = {"filters": 4, "width": 8, "words": 4, "keys": 4}
CLONED = {"run": "clone_officer", "config": {"demonstrations": "${shown}", "epochs": 1, "network": NETWORK}}
GAMES = {"executor": "trained:${cloned}", "commanders": ["oracle", "none"], "games": 1, "max_tick": 300}
PLAYED = {"run": "play_officers", "config": GAMES}


RED = {"run": "RED", "stop": {"training_iteration": 1}, "config": {"demonstrations": "${shown}"}}
SHIPPED = {"filters": 32, "stride": 2, "width": 64, "words": 32, "keys": 16}


def run(folder, **stages):
    return staged.run(stages, folder, "officer")


def test_one_file_goes_from_demonstrations_to_win_rates(tmp_path):
    switch = {**PLAYED, "config": {**PLAYED["config"], "executor": "switch:${cloned}:${cloned}"}}
    run(tmp_path, shown=SHOWN, cloned=CLONED, played=PLAYED, switched=switch)
    told = {name: json.loads((tmp_path / "officer" / name / "stage.json").read_text()) for name in ("shown", "cloned")}
    assert told["shown"]["summary"]["games"] == 3 and told["shown"]["summary"]["decisions"] == 48
    assert told["cloned"]["outputs"] == ["policy"]
    found = json.loads((tmp_path / "officer" / "played" / "officer.json").read_text())
    assert found["settings"]["executor"].endswith("cloned/policy")
    assert {name: one["games"] for name, one in found["summary"].items()} == {"oracle": 1, "none": 1}
    policy = tmp_path / "officer" / "cloned" / "policy"
    found = json.loads((tmp_path / "officer" / "switched" / "officer.json").read_text())
    assert found["settings"]["executor"] == f"switch:{policy}:{policy}"


@pytest.mark.parametrize(
    ("stage", "changes", "told"),
    [
        ("shown", {"game": 3}, ("shown.config.game", "unknown")),
        ("cloned", {"demonstrations": "nowhere"}, ("cloned.config.demonstrations",)),
        ("cloned", {"network": {"stride": 3}}, ("cloned.config.network.stride", "choice")),
        ("cloned", {"start": "zoo:verco_salad"}, ("cloned.config",)),
        (
            "played",
            {"commanders": ["oracle:0.5"]},
            ("played.config.commanders", "invalid", "only 'random' has a probability"),
        ),
        ("played", {"executor": "switch:${cloned}"}, ("executor", "invalid", "two checkpoints")),
        ("played", {"executor": "switch:${cloned}:nowhere"}, ("played.config",)),
        (
            "red",
            {"officer": "nowhere"},
            ("red.config.officer", "invalid", "`red.config.officer` is 'nowhere' but nothing is there"),
        ),
        (
            "red",
            {"officer": "zoo:red_oficer"},
            ("red.config.officer", "invalid", "In `red.config.officer`: .*'zoo:red_oficer'"),
        ),
        # The check behind that of the path compares a shipped officer with the network.
        ("red", {**SHIPPED, "width": 7, "officer": "zoo:red_officer"}, ("red.config.width",)),
        (
            "red",
            {"batch_mode": "truncate_episodes"},
            ("red.config.batch_mode", "invalid", "`batch_mode` must be 'complete_episodes'"),
        ),
        ("red", {"env_config": {"action_level": "command"}}, ("red.config.env_config.action_level",)),
    ],
)
def test_mistakes_are_told_before_anything_runs(stage, changes, told, tmp_path):
    stages = {"shown": SHOWN, "red": RED} if stage == "red" else {"shown": SHOWN, "cloned": CLONED, "played": PLAYED}
    stages[stage] = {**stages[stage], "config": {**stages[stage]["config"], **changes}}
    with refused(*told):
        run(tmp_path, **stages)
    assert not (tmp_path / "officer" / "shown" / "demonstrations").exists()
