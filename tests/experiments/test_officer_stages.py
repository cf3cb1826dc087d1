"""Stages of MiniRTS officers: one file from demonstrations to win rates, and what is refused before anything runs."""

from __future__ import annotations

import json

import pytest

from rllib_llm_comm.core.errors import UserError
from tests.experiments import staged

SHOWN = {"run": "demonstrate_officers", "config": {"games": 3, "max_tick": 400}}
CLONED = {
    "run": "clone_officer",
    "config": {"demonstrations": "${shown}", "epochs": 1, "network": {"filters": 4, "width": 8, "words": 4, "keys": 4}},
}
PLAYED = {
    "run": "play_officers",
    "config": {"executor": "trained:${cloned}", "commanders": ["oracle", "none"], "games": 1, "max_tick": 300},
}


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
    ("stage", "setting", "value", "sentence"),
    [
        ("shown", "game", 3, "`shown.config.game` is no known key; known are games, opponent"),
        ("cloned", "demonstrations", "nowhere", "`cloned.config.demonstrations` is 'nowhere' but no demonstrations"),
        ("cloned", "network", {"stride": 3}, "`cloned.config.network.stride` is 3 but must be one of 1, 2"),
        ("played", "commanders", ["oracle:0.5"], "only 'random' has a probability"),
        ("played", "executor", "switch:${cloned}", "two checkpoints of trained officers whose paths have no colon"),
        ("cloned", "start", "zoo:verco_salad", "'zoo:verco_salad' is a policy of Verco, but `start`"),
        ("played", "executor", "switch:${cloned}:nowhere", "There is no checkpoint at 'nowhere'"),
    ],
)
def test_mistakes_are_told_before_anything_runs(stage, setting, value, sentence, tmp_path):
    stages = {"shown": SHOWN, "cloned": CLONED, "played": PLAYED}
    stages[stage] = {**stages[stage], "config": {**stages[stage]["config"], setting: value}}
    with pytest.raises(UserError) as error:
        run(tmp_path, **stages)
    assert sentence in str(error.value)
    assert not (tmp_path / "officer" / "shown" / "demonstrations").exists()


RED = {"run": "RED", "stop": {"training_iteration": 1}, "config": {"demonstrations": "${shown}", "officer": "nowhere"}}
SHIPPED = {"filters": 32, "stride": 2, "width": 64, "words": 32, "keys": 16}


def refusal(folder, **config):
    """What is told of a stage of RED before anything runs."""
    with pytest.raises(UserError) as error:
        run(folder, shown=SHOWN, red={**RED, "config": {**RED["config"], **config}})
    assert not (folder / "officer" / "shown" / "demonstrations").exists()
    return str(error.value)


def test_red_starts_from_a_shipped_officer(tmp_path):
    """Shown by the check behind that of the path, which compares it with the network."""
    assert "`width` is 7 but the officer 'zoo:red_officer' has 64" in refusal(
        tmp_path, **{**SHIPPED, "width": 7, "officer": "zoo:red_officer"}
    )


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({}, "`red.config.officer` is 'nowhere' but nothing is there; give a path that exists, or the `${NAME}` of a"),
        ({"batch_mode": "truncate_episodes", "officer": None}, "`batch_mode` must be 'complete_episodes'"),
        ({"officer": "zoo:red_oficer"}, "In `red.config.officer`: there is no shipped policy 'zoo:red_oficer'; `rllib"),
        ({"officer": None, "env_config": {"action_level": "command"}}, "`env_config.action_level` is 'command' but"),
    ],
)
def test_officers_and_games_that_red_cannot_have_are_told_before_anything_runs(config, sentence, tmp_path):
    assert sentence in refusal(tmp_path, **config)
