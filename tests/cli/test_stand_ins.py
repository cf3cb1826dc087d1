"""What stands in for what the papers use is named at a run's start, in its summary and in its files."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
import yaml
from typer.testing import CliRunner

from rllib_llm_comm.cli.main import cli
from rllib_llm_comm.evaluation.play_settings import EvaluationSettings
from rllib_llm_comm.evaluation.stand_ins import stand_ins
from rllib_llm_comm.language.base_model import PACKAGED
from rllib_llm_comm.policies.policy_manifest import PolicyManifest
from rllib_llm_comm.policies.recorded_settings import withhold
from rllib_llm_comm.sama.planners import PLANNERS, planner_stands_in
from rllib_llm_comm.verco.teachers.base import TEACHERS
from tests.cli.command import succeeds

SMOKE = Path(__file__).parents[1] / "data" / "verco_smoke.yaml"
ROOM, SHORT = ["--layouts", "cramped_room"], ["--env-config", '{"horizon": 20}']
EXECUTOR, PLANNER = "executor scripted: ", "planner scripted: "
READER, COOK, CLONE = "base model embedded: ", "teacher scripted: ", "actions cloned from the scripted player"


def told(output: str) -> list[str]:
    """What an output names, in its order."""
    return [line.removeprefix("Stands in: ") for line in output.splitlines() if line.startswith("Stands in: ")]


def begins(phrases, *starts):
    """True if phrases begin so, one for each, whatever their order."""
    return len(phrases) == len(starts) and all(any(one.startswith(start) for one in phrases) for start in starts)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


def run(*arguments):
    done = CliRunner().invoke(cli, list(map(str, arguments)), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.timeout(300)
def test_a_trained_pipeline_names_what_stands_in_and_loads_the_model_of_its_file(tmp_path):
    """The main job in its smallest form, in half precision."""
    stages = yaml.safe_load(SMOKE.read_text())
    stages["message_sft"]["config"]["judge_interval"] = 1
    model = {"base_model": "embedded", "dtype": "bfloat16", "device": "cpu"}
    (tmp_path / SMOKE.name).write_text(yaml.safe_dump({"model": model, **stages}, sort_keys=False))
    done = succeeds("train", "file", SMOKE.name, "--ray-num-cpus", "4", cwd=tmp_path)
    begin, _, end = done.stdout.partition("Everything lies here")
    assert begins(told(begin), READER, COOK, CLONE)
    assert begin.index("Stands in: ") < begin.index("[1/7]")
    panel = re.sub(r"[\s│]", "", end)  # a narrow one breaks lines
    assert all("standsin" + re.sub(r"\s", "", phrase) in panel for phrase in told(begin)), end
    results = tmp_path / "results" / SMOKE.stem
    told_of = {path.parent.name: json.loads(path.read_text())["stand_ins"] for path in results.glob("*/stage.json")}
    assert len(told_of) == 7 and begins(told_of["labels"], COOK, READER)
    assert all(begins(told_of[stage], READER) for stage in ("message_sft", "action_sft", "verco"))
    played = json.loads((results / "evaluation" / "evaluation.json").read_text())
    assert begins(played["stand_ins"], READER, COOK, CLONE)  # the checkpoint remembers who taught its messages
    page = (results / "replay" / "replay.html").read_text()
    assert "Stands in: base model embedded" in page and "Stands in: teacher scripted" in page

    assert "bfloat16" in (results / "labels/labels/_collection.json").read_text()
    judged = json.loads((results / "message_sft/trial_0/result.json").read_text().splitlines()[-1])
    assert judged["config"]["dtype"] == "bfloat16" and 0 <= judged["message_sft"]["exact_match"] <= 1
    assert played["episodes"] == 1 and played["took"]["tokens"] > 0
    for checkpoint in (results / "message_sft", results / "verco", tmp_path / played["checkpoint"]):
        policy = EvaluationSettings(episodes=1).load(checkpoint)  # as the evaluation loads it
        assert policy.network.lm.base.model.dtype == torch.bfloat16, checkpoint
        assert policy.manifest.model_config["dtype"] == "bfloat16", checkpoint


@pytest.mark.parametrize(
    ("words", "file", "starts"),
    [
        (["evaluate", "zoo:told_salad", "--episodes", 1, "--json", "f.json"], "f.json", [READER, COOK]),
        (["replay", "zoo:door", "--out", "f.html", "--no-counterfactuals"], "f.html", [READER, COOK]),
        (["crossplay", "zoo:door", "--episodes", 1, "--json", "f.json", "--html", "f.html"], "f.html", [READER, COOK]),
        (["evaluate", "zoo:soup_cramped_room", "--episodes", 1, *SHORT, "--json", "f.json"], "f.json", []),
        (["planning", "reward", *ROOM, *SHORT, "--episodes", 1, "--markdown", "f.md"], "f.md", [EXECUTOR, PLANNER]),
        (["planning", "subgoals", *ROOM, "--states", 2, "--folder", "s"], "s", [PLANNER]),
    ],
)
def test_commands_name_it_at_their_start_and_end_and_in_their_files(words, file, starts, here):
    out = told(run(*words))
    assert begins(list(dict.fromkeys(out)), *starts)
    if file.endswith("json"):
        phrases = json.loads((here / file).read_text())["stand_ins"]
        assert begins(phrases, *starts) and out == [*phrases, *phrases]
    elif file != "s":
        text = (here / file).read_text()
        assert "Stands in: " in text and all(start in text for start in starts)


def test_a_recording_of_rewards_and_a_planner_in_an_evaluation(here):
    out = run("planning", "rewards")
    assert begins(dict.fromkeys(told(out)), "planner cassette: recording claude_reward_code.jsonl.xz (claude, ")
    planned = ["--env-config", '{"horizon": 20, "subgoals": "planner"}', "--planner", "scripted", "--json", "e.json"]
    run("evaluate", "zoo:emma_cramped_room", "--episodes", 1, *planned)
    assert begins(json.loads((here / "e.json").read_text())["stand_ins"], PLANNER)


def test_each_thing_says_it_itself():
    for name in PACKAGED:
        assert begins(stand_ins({"base_model": name}), f"base model {name}: ")
    assert [name for name, kind in TEACHERS.items() if kind.stands_in] == ["scripted"]
    by_rules = [name for name in PLANNERS if planner_stands_in(name)]
    assert by_rules == ["scripted", "plan4mc", "disturbed", "guessing"]
    own = {"base_model": "smollm2", "teacher": {"name": "chat"}, "planner": "random", "messages": "none"}
    assert stand_ins(own) == []


def test_it_is_found_wherever_settings_name_it(tmp_path):
    searched = {"config": {"base_model": {"grid_search": ["smollm2", "embedded"]}}}
    assert begins(stand_ins(searched), READER)
    tape = {"cassette": "sama"}
    asked = {"planner": {"name": "sama", "chat": tape}, "subgoal_rewards": {"name": "chat", "chat": tape}}
    phrases = stand_ins(asked, {"chat": tape})
    assert begins(phrases, "planner sama: recording sama.jsonl.xz (", "chat model: recording sama.jsonl.xz (")
    assert stand_ins({"chat": {"model": "gpt", "cassette": "grows.jsonl"}}) == []
    assert begins(stand_ins({"pool": [{"policy": "zoo:door", "speech": "none"}]}), READER, COOK)
    # What is not there, or is nothing of the kind, is told where it is used.
    (tmp_path / "no.jsonl").write_text("[1]\n")
    wrong = ["nope", 5, None, ["x"], {"name": []}, {"cassette": str(tmp_path / "no.jsonl")}]
    keys = ("base_model", "teacher", "planner", "chat", "policy")
    assert stand_ins(*({key: one} for one in wrong for key in keys)) == []


def test_what_a_manifest_names_is_not_looked_up(tmp_path, monkeypatch):
    """It may come from anybody: neither the hub is asked nor a path read for it."""
    opened = []
    monkeypatch.setattr("rllib_llm_comm.chat.cassettes.Path.open", lambda *given: opened.append(given))
    manifest = PolicyManifest(
        "Verco", {"base_model": "embedded"}, {},
        teacher={"name": "chat", "chat": {"cassette": "sama"}},
        planning={"planner": {"name": "cassette", "cassette": "/etc/hostname"}},
        env_config={"policy": "zoo:door", "checkpoint": "hf:somebody/policy"},
        provenance={"message_checkpoint": "hf:somebody/policy", "taught_by": ["scripted", "nobody", 5, {"name": []}]},
    )  # fmt: skip
    assert begins(stand_ins(withhold(manifest)), READER, COOK)
    assert stand_ins({"checkpoint": "hf:somebody/policy"}) == [] and opened == []
