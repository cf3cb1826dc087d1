"""The stages in which a language model prepares a game: offline from the recording, checked before anything runs."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest
import yaml

from rllib_llm_comm.chat.cassettes import Cassette, MissingAnswerError
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.experiments.stage_links import check_kinds
from rllib_llm_comm.sama.recordings import recording
from tests.experiments import staged
from tests.experiments.staged import check, stages_of
from tests.refusal import refused

SAMA = Path(__file__).parents[2] / "tuned_examples" / "sama.yaml"
PREPARE = ("manual", "translation", "subgoals", "rewards")


def stages(*names: str) -> dict:
    found = yaml.safe_load(SAMA.read_text())
    return {name: found[name] for name in names or PREPARE}


run = functools.partial(staged.run, name="sama")
record = functools.partial(staged.record, name="sama")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory, module_without_network) -> Path:
    folder = tmp_path_factory.mktemp("prepared")
    specs = stages()
    specs["translation"]["config"]["states"] = 20
    specs["report"] = {"run": "sama_report", "config": {"of": [f"${{{name}}}" for name in PREPARE]}}
    run(specs, folder)
    return folder


@pytest.fixture(scope="module")
def module_without_network():
    import socket

    def refuse(*args, **kwargs):
        raise AssertionError("the network was used")

    patch = pytest.MonkeyPatch()
    patch.setattr(socket.socket, "connect", refuse)
    yield
    patch.undo()


def test_all_language_stages_run_from_the_recording(prepared):
    for stage in PREPARE:
        told = record(prepared, stage)
        assert told["status"] == "finished" and told["summary"]["requests"] == 0
        assert told["summary"]["kept_answers"] > 0
    subgoals = json.loads((prepared / "sama/subgoals/subgoals.json").read_text())
    assert subgoals["made_with"]["states_by"] == "model" and subgoals["summary"]["answered_by"] == {"cassette": 80}
    agreement = json.loads((prepared / "sama/rewards/rewards/agreement.json").read_text())
    kept = {row["subgoal"] for row in agreement["by_subgoal"] if row["kept"]}
    left = json.loads((prepared / "sama/rewards/rewards/subgoals.json").read_text())
    assert {entry["subgoal"] for entry in left["subgoals"]} == kept
    assert len(list((prepared / "sama/rewards/rewards").glob("*.py"))) == len(kept) >= 8
    assert all(row["share"] >= 0.8 for row in agreement["by_subgoal"] if row["kept"])


def test_the_report_says_whose_answers_these_are(prepared):
    page = (prepared / "sama/report/report.html").read_text()
    assert "written by hand" in page and "by claude" in page and "not through its API" in page
    for name in PREPARE:
        assert f"<td>{name}</td>" in page
    assert "Not checked by a person" in page and "def translate(state)" in page
    authors = {stage: record(prepared, stage)["summary"]["answers"] for stage in PREPARE}
    assert set(authors["manual"]) == set(authors["rewards"]) == {"claude"}
    assert set(authors["translation"]) == {"claude", "written by hand"}
    assert set(authors["subgoals"]) == {"written by hand"}


def test_a_missing_answer_stops_the_stage_with_one_sentence(prepared, tmp_path):
    specs = stages()
    specs["subgoals"]["config"]["states"] = 7
    with pytest.raises(MissingAnswerError, match="has no answer to the question") as caught:
        run({name: specs[name] for name in PREPARE[:3]}, tmp_path)
    assert str(caught.value).count("\n") == 0
    assert not (tmp_path / "sama/subgoals/subgoals.json").exists()
    assert record(tmp_path, "subgoals")["status"] == "running"


def test_a_manual_of_the_package_is_known_by_its_name(tmp_path):
    specs = stages("translation")
    specs["translation"]["config"]["manual"] = "onion_soup"
    check(specs, tmp_path)


@pytest.mark.parametrize(
    ("stage", "changes", "told"),
    [
        ("manual", {"paper": "none.tex"}, ("", "invalid", "'none.tex' is no file")),
        ("manual", {"chat": {"cassette": "sma"}}, ("manual.config.chat.cassette", "invalid", "mean 'sama'")),
        ("translation", {"code": ["/nowhere.py"]}, ("", "invalid", "'/nowhere.py' cannot be read")),
        ("translation", {"manual": "none_such"}, ("translation.config.manual",)),
        (
            "subgoals",
            {"planner": {"name": "scripted"}},
            ("subgoals.config.planner.name", "invalid", "must ask a chat model"),
        ),
        (
            "subgoals",
            {"planner": {"name": "sama", "chat": {"model": "x"}}},
            ("subgoals.config.planner.chat", "invalid", "given for the whole stage"),
        ),
        ("subgoals", {"planner": {"name": "sama", "menu": "x"}}, ("subgoals.config.planner.menu", "choice")),
        ("rewards", {"subgoals": "/nowhere.json"}, ("rewards.config.subgoals",)),
        ("rewards", {"fallback": "rules"}, ("rewards.config.fallback", "unknown")),
    ],
)
def test_wrong_settings_are_told_before_anything_runs(tmp_path, stage, changes, told):
    specs = stages()
    specs[stage]["config"] = {**specs[stage]["config"], **changes}
    with refused(*told):
        check(specs, tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("rewards.config.subgoals", "${manual}"),
        ("rewards.config.manual", "${translation}"),
        ("subgoals.config.planner.translation", "${manual}"),
        ("follower.config.subgoal_rewards.path", "${manual}"),
        ("follower.config.env_config.subgoal_file", "${manual}/subgoals.json"),
        ("follower.config.env_config.subgoal_file", "${rewards}"),
        ("trials_0.config.planner.manual", "${follower}"),
    ],
)
def test_the_result_of_another_kind_of_stage_is_told_before_anybody_is_asked(tmp_path, place, value):
    specs = stages(*PREPARE, "follower", "trials_0")
    *outer, last = place.split(".")
    functools.reduce(dict.__getitem__, outer, specs)[last] = value
    with refused(place, match="from a stage of"):
        check(specs, tmp_path)


def test_results_may_be_named_in_all_places_that_can_take_them(tmp_path):
    specs = stages(*PREPARE, "follower")
    game, drawn = specs["follower"]["config"]["env_config"], {"name": "random", "subgoals": "${rewards}/subgoals.json"}
    game["subgoal_file"] = {"grid_search": ["${subgoals}", "${rewards}/subgoals.json"]}
    specs["random"] = {"run": "evaluate", "config": {"checkpoint": "${follower}", "planner": drawn}}
    specs["rewards"]["config"]["manual"] = "${manual}"
    check_kinds(stages_of(specs, tmp_path))


def test_a_report_of_no_stage_is_refused(tmp_path):
    with refused("report.config.of"):
        check({"report": {"run": "sama_report", "config": {"of": [str(tmp_path)]}}}, tmp_path)


def test_the_recording_includes_others_and_knows_the_author_of_each_answer(tmp_path):
    tape = Cassette(recording("sama"))
    assert set(tape._authors.values()) == {"claude", "written by hand"}
    assert tape.header["with"] == ["manual_onion_soup.jsonl", "claude_actions.jsonl", "claude_reward_code.jsonl.xz"]
    for other in ("../up.jsonl", "/etc/passwd", "missing.jsonl"):
        path = tmp_path / "tape.jsonl"
        path.write_text(json.dumps({"cassette": 1, "with": [other]}) + "\n")
        with pytest.raises(UserError, match=r"is no cassette|does not exist"):
            Cassette(path)
