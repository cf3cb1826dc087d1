"""`rllib planning`: every comparison plays, keeps its figures, and says in a sentence what does not fit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from chat_server import ChatServer
from planner_model import planner
from typer.testing import CliRunner

from rllib_llm_comm.cli.main import cli
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.overcooked_ai.layouts import get_layout
from rllib_llm_comm.envs.overcooked_ai.subgoal_env import subgoal_env
from rllib_llm_comm.envs.overcooked_ai.subgoals import all_subgoals
from rllib_llm_comm.evaluation.reward_code_scores import code_path
from tests.cli.command import rllib, succeeds
from tests.refusal import refused
from tools.record_cassettes import recorded
from tools.rules_chat import RulesChat

pytestmark = pytest.mark.usefixtures("chat_client_at_home")

MINIRTS = "rllib_llm_comm/minirts-v0"
OF_PROMPTS = ("objects", "examples", "irrelevant-examples")
SHORT = ["--layouts", "cramped_room", "--env-config", '{"horizon": 40}']


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")


def planning(*arguments: str) -> str:
    told = CliRunner().invoke(cli, ["planning", *arguments], catch_exceptions=False)
    assert told.exit_code == 0, told.output
    return told.output


def asks(server: ChatServer, **settings) -> list[str]:
    """Options under which a server plans."""
    return ["--planner", json.dumps({"name": "chat", "chat": server.settings(**settings)})]


DOWN = {"name": "chat", "chat": {"model": "m", "base_url": "http://127.0.0.1:9/v1", "max_retries": 0}}


def record(path) -> dict:
    return json.loads(path.read_text())


def test_the_real_command_plays_and_goes_on(tmp_path):
    command = ["planning", "reward", *SHORT, "--seeds", "1", "--json", "a/f.json", "--markdown", "f.md"]
    told = succeeds(*command, cwd=tmp_path)
    assert "cramped_room" in told.stdout and "Figures: a/f.json" in told.stdout
    figures = record(tmp_path / "a" / "f.json")
    cell = figures["cells"][0]
    assert figures["study"] == "reward" and figures["version"] and cell["labels"] == {"scenario": "cramped_room"}
    assert cell["made_with"]["env_config"]["horizon"] == 40 and cell["made_with"]["planner"] == "scripted"
    assert cell["episodes"]["seed"] == [0] and cell["summary"]["episodes"] == 1
    assert (tmp_path / "f.md").read_text().startswith("| scenario | score | 95 % interval |")
    # What is in the file is not played again; more seeds are added.
    cell["episodes"]["return"][0] = 77.0
    (tmp_path / "a" / "f.json").write_text(json.dumps(figures))
    planning("reward", *SHORT, "--episodes", "2", "--json", "a/f.json")
    more = record(tmp_path / "a" / "f.json")["cells"][0]["episodes"]
    assert more["return"][0] == 77.0 and more["seed"] == [0, 1]


def test_planners_are_compared(tmp_path):
    told = planning("planners", *SHORT, "--episodes", "1", "--json", "f.json", "--planner", "plan4mc")
    planners = [cell["labels"]["planner"] for cell in record(tmp_path / "f.json")["cells"]]
    assert planners == ["scripted", "plan4mc", "random"] and "which planner brings the most" in told


def test_games_without_skills_are_compared_without_plan4mc_in_scenarios_chosen_by_name(tmp_path):
    short = ["--env", MINIRTS, "--env-config", '{"max_tick": 100}', "--episodes", "1"]
    told = planning("planners", *short, "--layouts", "medium,strong", "--json", "f.json")
    labels = [cell["labels"] for cell in record(tmp_path / "f.json")["cells"]]
    assert {one["planner"] for one in labels} == {"scripted", "random"} and "plan4mc is left out" in told
    assert {one["scenario"] for one in labels} == {"medium", "strong"}


def test_random_commands_are_drawn(tmp_path, synced):
    planning("random-commands", *SHORT, "--episodes", "1", "--shares", "0,1", "--json", "f.json", "--figure", "f.png")
    none, all_ = record(tmp_path / "f.json")["cells"]
    assert none["episodes"]["metrics"]["subgoals_replaced"] == [0]
    assert all_["episodes"]["metrics"]["subgoals_replaced"][0] > 0 and all_["labels"]["random"] == 1.0
    assert (tmp_path / "f.png").read_bytes().startswith(b"\x89PNG")
    assert any(path.name.startswith(".f.png.") for path in synced)


def test_trials_are_played_in_rounds(tmp_path):
    told = planning("trials", *SHORT, "--episodes", "1", "--most", "1", "--share", "1", "--json", "f.json")
    cells = record(tmp_path / "f.json")["cells"]
    assert [cell["labels"]["trials"] for cell in cells] == [0, 1]
    assert all(cell["made_with"]["replan"] == "all" for cell in cells)
    assert cells[0]["made_with"]["planner"] == {"name": "disturbed", "planner": "scripted", "share": 1.0}
    assert "100% of the subgoals replaced by random ones" in told


def test_prompts_are_compared_by_a_model_and_from_its_recording(tmp_path):
    short = ["--layouts", "cramped_room", "--env-config", '{"horizon": 12}', "--episodes", "1"]
    with ChatServer(planner) as server:
        asked = asks(server, max_tokens=2000, cassette="tape.jsonl")
        for command in OF_PROMPTS:
            planning(command, *short, *asked, "--json", f"{command}.json")
        prompts = [body["messages"][-1]["content"] for body in server.requests]
    assert any("Things that matter:" in prompt for prompt in prompts)
    assert any("library" in prompt and "In another kitchen" not in prompt for prompt in prompts)
    tape = '{"name": "cassette", "cassette": "tape.jsonl"}'
    planning("irrelevant-examples", *short, "--planner", tape, "--json", "again.json")
    first, again = record(tmp_path / "irrelevant-examples.json"), record(tmp_path / "again.json")
    assert "of something else" in [label for cell in again["cells"] for label in cell["labels"].values()]
    values, same = ([cell["summary"]["value"] for cell in one["cells"]] for one in (first, again))
    assert values == same
    assert all(cell["summary"]["metrics"]["plan_requests"] == 0 for cell in again["cells"])
    assert again["cells"][0]["made_with"]["recording"]["model"] == "tiny"
    assert any(cell["summary"]["metrics"]["plan_requests"] > 0 for cell in first["cells"])


@pytest.mark.parametrize(
    ("command", "game"),
    [("examples", MINIRTS), ("irrelevant-examples", MINIRTS), ("examples", "rllib_llm_comm/frozen_lake-v0")],
)
def test_identical_prompts_are_not_compared(command, game):
    with ChatServer(planner) as server:
        with pytest.raises(UserError, match="identical prompts"):
            planning(command, "--env", game, "--episodes", "1", *asks(server))
        assert not server.requests


def test_other_prompts_are_compared_in_games_without_examples():
    with ChatServer(RulesChat().complete) as server:
        short = ["--env", MINIRTS, "--env-config", '{"max_tick": 100}', "--episodes", "1"]
        assert "score" in planning("objects", *short, *asks(server), "--layouts", "simple")


def test_reward_code_is_compared_with_the_tests(tmp_path):
    subgoal, right = "put the onion into the pot", (
        "def reward(state):\n"
        "    before, after = (state[when]['cooks'][state['agent']] for when in ('before', 'after'))\n"
        "    return 1 if (before['holds'], after['holds'], before['faces']) == ('onion', 'nothing', 'pot') else 0\n"
    )  # fmt: skip
    folder = tmp_path / "code"
    for place, text in ((folder / "cramped_room", subgoal), (folder, "go to floor 1,1")):
        place.mkdir(exist_ok=True, parents=True)
        (place / code_path(folder, "", text).name).write_text(right if text == subgoal else "import os")
    arguments = ["--code", "code", "--layouts", "cramped_room", "--steps", "40", "--json", "f.json"]
    planning("rewards", *arguments, "--markdown", "f.md")
    kitchen = record(tmp_path / "f.json")["kitchens"]["cramped_room"]
    assert kitchen["subgoals"] == len(all_subgoals(get_layout("cramped_room")))
    assert (kitchen["with_code"], kitchen["refused"], kitchen["exact"], kitchen["judgements"]) == (1, 1, 1, 80)
    assert "imports" in kitchen["by_subgoal"]["go to floor 1,1"]["refused"]
    assert "| cramped_room |" in (tmp_path / "f.md").read_text()
    # Code that has changed is measured anew, the rest is not.
    (folder / "cramped_room" / "put_the_onion_into_the_pot.py").write_text("def reward(state):\n    return 1\n")
    planning("rewards", *arguments)
    assert record(tmp_path / "f.json")["kitchens"]["cramped_room"]["exact"] == 0
    with pytest.raises(UserError, match="of other --steps"):
        planning("rewards", *arguments[:-4], "--steps", "41", "--json", "f.json")


def test_a_model_writes_the_missing_code_once(tmp_path):
    code = "```python\ndef reward(state):\n    return 0\n```"
    with ChatServer(code) as server:
        asked = [*asks(server, max_tokens=500), "--code", "code", "--steps", "10"]
        planning("rewards", *asked, "--layouts", "cramped_room", "--json", "f.json")
        number = len(server.requests)
        planning("rewards", *asked, "--layouts", "cramped_room", "--json", "f.json")
        assert len(server.requests) == number == len(all_subgoals(get_layout("cramped_room")))
    assert record(tmp_path / "f.json")["kitchens"]["cramped_room"]["with_code"] == number
    assert len(list((tmp_path / "code" / "cramped_room").iterdir())) == number


def test_without_code_recorded_rewards_are_replayed(tmp_path):
    told = planning("rewards", "--steps", "5", "--json", "f.json")
    assert "No --code is given: the recording 'claude_reward_code'" in told and "results/reward_code" in told
    kitchens = record(tmp_path / "f.json")["kitchens"]
    assert list(kitchens) == ["cramped_room"] and kitchens["cramped_room"]["with_code"] == 42
    assert len(list((tmp_path / "results" / "reward_code" / "cramped_room").iterdir())) == 42


def test_a_data_set_of_subgoals_goes_on_and_is_what_the_game_draws_from(tmp_path):
    how = ["--layouts", "cramped_room,random1", "--folder", "d", "--markdown", "f.md"]
    told = planning("subgoals", *how, "--states", "20")
    assert "coordination_ring" in told and "Data sets: d" in told
    path = tmp_path / "d" / "cramped_room.json"
    first = record(path)
    assert first["made_with"] == {"planner": "scripted", "seed": 0} and first["summary"]["states"] == 20
    planning("subgoals", *how, "--states", "30")
    assert record(path)["plans"][:20] == first["plans"] and record(path)["summary"]["states"] == 30
    assert (tmp_path / "f.md").read_text().startswith("| scenario | states | subgoals | of the library |")
    env = subgoal_env(subgoal_file=path, observe=["text"])
    observations, _ = env.reset(seed=0)
    assert observations["alice"]["subgoal"]
    with pytest.raises(UserError, match="another planner, game or --seed"):
        planning("subgoals", *how, "--seed", "1")


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        *(([command, *SHORT], ("--planner", "invalid", "'scripted', which asks no")) for command in OF_PROMPTS),
        (["rewards", "--code", ".", "--planner", "scripted"], ("--planner", "invalid", "change nothing")),
        (["rewards", "--code", "nowhere"], ("--code",)),
        (["rewards", "--planner", "{}"], ("--planner", "invalid", "`--code` is not given")),
        (["reward", "--planner", "{"], ("--planner", "invalid", "must be a JSON object")),
        (["reward", "--planner", '{"name": "disturbed", "planner": 5}'], ("planner.planner", "type")),
        (
            ["reward", "--planner", "scripted", "--planner", "random"],
            ("--planner", "invalid", "`rllib planning planners`"),
        ),
        (["reward", "--layouts", "my_kitchen"], ("layout", "unknown")),
        (["reward", "--executor", "nowhere"], ("", "invalid", "no checkpoint at 'nowhere'")),
        (["reward", "--trials", "2", "--replan", "any"], ("replan",)),
        (["reward", "--import", ("--import",)], ("--import",)),
        (["random-commands", "--shares", "0,2"], ("--shares",)),
    ],
)
def test_what_does_not_fit_is_told_in_a_sentence(arguments, wrong):
    with refused(*wrong):
        planning(*arguments)


def test_a_planner_that_cannot_play_is_refused_before_others_have_played(tmp_path):
    with refused("planner", match="not as a planner"):
        planning("planners", *SHORT, "--planner", "trained:zoo:emma_cramped_room", "--json", "f.json")
    assert not (tmp_path / "f.json").exists()


@pytest.mark.parametrize("replan", ["any", "all"])
def test_a_server_that_is_down_ends_the_command(replan, tmp_path):
    asked = ["--planner", json.dumps(DOWN), "--replan", replan, "--json", "f.json"]
    with pytest.raises(UserError, match=r"made no plan.*no connection.*`base_url`"):
        planning("reward", *SHORT, "--episodes", "1", *asked)
    assert not (tmp_path / "f.json").exists()


def test_a_request_that_failed_is_told_in_a_sentence(tmp_path):
    asked = ["--planner", json.dumps(DOWN), "--layouts", "cramped_room"]
    told = rllib("planning", "rewards", "--code", "code", *asked, "--steps", "5", cwd=tmp_path)
    assert told.returncode == 1 and "gave no answer after 1 request (no connection)." in told.stderr
    assert "bug" not in told.stderr and "ChatError" not in told.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["planning", "reward", "--json", "folder"], ["planning", "random-commands", "--figure", "folder"],
        ["planning", "reward", "--json", "file/f.json"], ["evaluate", "nowhere", "--json", "folder"],
        ["evaluate", "nowhere", "--log", "file/f.jsonl"], ["manual", "nowhere.tex", "--out", "folder"],
    ],
)  # fmt: skip
def test_files_that_cannot_be_written_are_told_before_anything_is_played(arguments, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    option, path = arguments[-2:]
    why = "is a folder" if path == "folder" else "cannot be written"
    with refused(option, match=why):
        CliRunner().invoke(cli, arguments, catch_exceptions=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


def test_recorded_games_of_a_large_model_are_played_without_network():
    recording = str(recorded("claude_forced_coordination"))
    how = ["--layouts", "forced_coordination", "--env-config", '{"horizon": 200}', "--replan", "all", "--episodes", "1"]
    chat = json.dumps({"name": "cassette", "cassette": recording})
    planning("irrelevant-examples", *how, "--planner", chat, "--json", "f.json")
    assert [cell["episodes"]["return"][0] for cell in record(Path("f.json"))["cells"]] == [140.0] * 3
    deps = json.dumps({"name": "deps", "chat": {"cassette": recording}})
    planning("reward", *how, "--planner", deps, "--json", "g.json")
    (cell,) = record(Path("g.json"))["cells"]
    assert cell["episodes"]["return"][0] == 120.0


def test_a_recorded_war_is_won_again():
    chat = json.dumps({"name": "cassette", "cassette": str(recorded("claude_minirts"))})
    how = ["--env", MINIRTS, "--layouts", "medium", "--replan", "all", "--episodes", "1"]
    planning("reward", *how, "--planner", chat, "--json", "f.json")
    (cell,) = record(Path("f.json"))["cells"]
    assert cell["episodes"]["return"][0] == 1.0 and cell["made_with"]["recording"]["model"] == "claude"
