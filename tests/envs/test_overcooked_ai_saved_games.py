"""Games that the original Overcooked-AI saved, read and replayed through ours."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rllib_llm_comm.cli.main import cli
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.golden import check_golden
from rllib_llm_comm.envs.overcooked_ai.golden import read_games
from rllib_llm_comm.envs.overcooked_ai.original import OriginalRules, read_action, read_recipes, read_state

SAVED = Path(__file__).parents[1] / "data" / "overcooked_ai_saved.json.gz"


@pytest.fixture
def saved():
    return json.loads(gzip.decompress(SAVED.read_bytes()))


def write(tmp_path, games, **style):
    path = tmp_path / "games.json"
    path.write_text(json.dumps(games, **style))
    return path


def test_saved_games_are_ours(saved, tmp_path):
    assert any(any(rewards) for rewards in saved["ep_rewards"])
    for path in (SAVED, write(tmp_path, saved, indent=1)):
        report = check_golden(path)
        assert (report.game, report.episodes, report.steps) == ("overcooked_ai_games", 2, 160)
        assert report.ok, report.mismatches[:3]


def test_the_command_tells_each_difference_in_a_sentence(saved, tmp_path):
    saved["ep_rewards"][1][7] = 99
    saved["ep_states"][0][5]["players"][0]["orientation"] = [0, 1]
    saved["ep_actions"][0][4][0] = [0, -1]
    result = CliRunner().invoke(cli, ["check", "golden", str(write(tmp_path, saved))])
    said = " ".join(result.output.split())
    assert result.exit_code == 1
    assert "episode cramped_room_tomato/2, step 8, reward: expected 99.0, got " in said
    assert "episode cramped_room_tomato/1, step 5, state: expected {" in said
    # It goes on from the recorded state, so nothing else is told of the first game but that one step and the next.
    assert said.count("cramped_room_tomato/1") <= 2


def test_times_that_a_file_leaves_out_are_missed(saved, tmp_path):
    """`mdp_params` tell no points and times; under another name they are the usual ones, and the states tell that."""
    for params in saved["mdp_params"]:
        params["layout_name"] = "unheard_of"
    path = write(tmp_path, saved)
    fields = {mismatch.field.split(" of ")[0] for mismatch in check_golden(path).mismatches}
    assert "cook time" in fields
    assert check_golden(path, layout="cramped_room_tomato").ok
    with pytest.raises(UserError, match="no kitchen of the original; give the kitchen as `layout`"):
        list(read_games({**saved, "mdp_params": [{"layout_name": "unheard_of"}] * 2}))


def test_dynamics_are_told(saved, tmp_path):
    with pytest.raises(UserError, match="set `dynamics='new'`"):
        check_golden(write(tmp_path, saved), dynamics="old")
    with pytest.raises(UserError, match="whose episodes tell it themselves"):
        check_golden(SAVED.with_name("overcooked_ai_golden.jsonl.gz"), dynamics="old")


@pytest.mark.parametrize("change", [{"ep_states": [[{}]]}, {"ep_actions": [[["up", "down"]]]}, {"ep_states": 3}])
def test_damaged_games_get_one_sentence(saved, tmp_path, change):
    with pytest.raises(UserError, match="overcooked_ai_games"):
        check_golden(write(tmp_path, saved | change))


def test_soups_of_the_first_version_are_read():
    soup = {"name": "soup", "position": [2, 0], "state": ["tomato", 3, 20]}
    cook = {"position": [1, 1], "orientation": [0, 1], "held_object": {**soup, "state": ["onion", 2, 0]}}
    recipes = read_recipes(OriginalRules(onion_time=4, tomato_time=2))
    state = read_state({"players": [cook], "objects": [soup]}, recipes)
    assert state["players"] == [[1, 1, 1, ["soup", 2, 0, -1]]] and state["objects"] == [[2, 0, "soup", 0, 3, 6]]


def test_actions_of_the_original():
    given = [[0, -1], [0, 1], [1, 0], [-1, 0], [0, 0], "INTERACT"]
    assert [read_action(action) for action in given] == list(range(6)) == [read_action(n) for n in range(6)]
    with pytest.raises(ValueError, match="no action"):
        read_action([1, 1])
