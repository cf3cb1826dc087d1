"""SAMA's ablations: refused with a recording, and all of them through the real command with a real local server."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from chat_server import ChatServer

from rllib_llm_comm.chat.cassettes import Cassette
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.experiments.experiment_file import parse_experiments
from rllib_llm_comm.experiments.pipeline import check_stages
from rllib_llm_comm.experiments.stages import make_stages
from rllib_llm_comm.sama.planners import make_planner
from rllib_llm_comm.sama.recordings import recording
from tests.cli.command import succeeds
from tests.cli.small_pipeline import replaced
from tests.refusal import refused

FILE = Path(__file__).parents[2] / "tuned_examples" / "sama_ablations.yaml"
COMMAND = ["train", "file", "sama_ablations.yaml", "--ray-num-cpus", "2"]
MODEL = {"model": "gpt-4o", "max_concurrent": 4}
PLAIN = {
    "name": "sama", "chat": {"cassette": "sama"}, "examples": 0, "history": False, "memory": "round",
    "manual": "results/manual.md", "translation": "results/translation.json",
}  # fmt: skip
# Parts of a question that only one row has, or that all but one have.
LIST = "Take subgoals from this list"
ONLY = {
    "game_words": "steps are left", "menu_possible": LIST, "menu_library": LIST, "irrelevant_examples": "library",
}  # fmt: skip
ALL_BUT = {"no_objects": "Things that matter", "no_examples": "An example.", "no_history": "What was done before:"}


def file(chat: dict) -> dict:
    """The file, with another chat model."""
    return replaced(yaml.safe_load(FILE.read_text()), MODEL, chat)


def test_with_a_recording_the_file_is_refused_before_anything_runs(tmp_path):
    stages = make_stages(parse_experiments(file({"cassette": "sama"}), "f"), lambda name, _: tmp_path / name)
    with pytest.raises(UserError, match="demand a model") as caught:
        check_stages(stages, {})
    assert "\n" not in str(caught.value) and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("change", "told"),
    [
        *(({"menu": "possible", "chat": {"cassette": name}}, f"`menu` is 'possible' .*'{name}.jsonl.xz'")
          for name in ("sama", "sama_frozen_lake", "sama_minirts")),
        ({"memory": "episode"}, "`memory` is 'episode'"),
        ({"examples": 1, "memory": "episode", "ahead": 4}, "`ahead` is 4"),  # the rest was recorded, too
        ({"ahead": 3}, "`ahead` 0 or 8 alone"),
        ({"examples": 1, "memory": "round"}, "`examples` is 1 .*`examples` 0 alone where `memory` is 'round'"),
        ({"translation": ""}, "'sama.jsonl.xz' .* a translation alone"),
    ],
)  # fmt: skip
def test_a_switch_that_a_recording_cannot_answer_demands_a_model(change, told):
    # The files are not there yet when a file of stages is checked, so the switches are looked at before them.
    with pytest.raises(UserError, match=f"{told}.*demand a model"):
        make_planner({**PLAIN, **change})


def test_a_recording_of_several_settings_answers_to_each():
    for also in ({}, {"ahead": 8}, {"examples": 1, "memory": "episode", "ahead": 8}):
        with pytest.raises(UserError, match="cannot be read"):  # the settings are looked at before the files
            make_planner({**PLAIN, **also})


@pytest.mark.parametrize("odd", [5, [], [3], "sama"])
def test_a_recording_that_tells_odd_settings_is_refused(odd, tmp_path):
    tape = tmp_path / "odd.jsonl"
    tape.write_text(json.dumps({"cassette": 1, "answers_to": odd}) + "\n")
    with refused("answers_to"):
        make_planner({"name": "sama", "chat": {"cassette": str(tape)}})


def test_a_model_behind_a_recording_may_be_asked_in_any_way(tmp_path):
    chat = {"model": "tiny", "base_url": "http://127.0.0.1:1/v1", "cassette": str(tmp_path / "own.jsonl")}
    assert make_planner({"name": "sama", "menu": "library", "chat": chat}).name == "sama"


class Model:
    """Answers from the recording where it can; else all shall wait, as anybody can."""

    def __init__(self) -> None:
        self.tape = Cassette(recording("sama"))

    def __call__(self, prompt: str) -> str:
        known = self.tape.recall(prompt)
        if known is not None:
            return known
        if "Propose the next goal of the team" in prompt:
            way = {"subgoal": "wait", "reason": "there is nothing better"}
            return json.dumps({"goal": "stay safe", "subgoals": [way, way]})
        if "Which phase made the mistake" in prompt:
            return json.dumps({"thoughts": "", "phase": "decomposition", "why": "nobody moved"})
        if "Which things of the game must the players use" in prompt:
            return json.dumps({"objects": ["onion", "pot", "dish"]})
        raise AssertionError(prompt)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_all_rows_with_a_local_server(tmp_path):
    with ChatServer(Model()) as server:
        chat = server.settings(max_retries=0)
        stages = file({**chat, "max_concurrent": 4})
        _make_small(stages)
        (tmp_path / "sama_ablations.yaml").write_text(yaml.safe_dump(stages, sort_keys=False))
        succeeds(*COMMAND, cwd=tmp_path, timeout=1500)
    place = tmp_path / "results/sama_ablations"
    page = (place / "report/report.html").read_text()
    rows = [name for name, stage in stages.items() if stage["run"] == "evaluate"]
    asked = {name: _questions(place / name / "answers.jsonl") for name in rows}
    for name in rows:
        told = json.loads((place / name / "stage.json").read_text())["summary"]
        assert told["answers_from"] == "tiny" and told["episodes"] == 2 and f"{name}: tiny" in page
    for row, part in ONLY.items():
        assert any(part in question for question in asked[row]), row
        assert not any(part in question for question in asked["full"]), row
    for row, part in ALL_BUT.items():
        assert not any(part in question for question in asked[row]), row
        assert any(part in question for question in asked["full"]), row
    states = {name: json.loads((place / name / "stage.json").read_text())["summary"] for name in stages}
    assert states["subgoals"]["distinct"] < states["subgoals_all"]["distinct"] == 40
    assert re.search(r'"new_subgoals": ?\{', "".join(one.read_text() for one in place.rglob("result.json")))


def _make_small(stages: dict) -> None:
    stages["translation"]["config"] |= {"states": 10}
    for stage in stages.values():
        if stage["run"] == "write_rewards":
            stage["config"] |= {"steps": 60}
        elif stage["run"] == "EMMA":
            stage["stop"] = {"training_iteration": 2}
            stage["config"] |= {"num_envs_per_env_runner": 2, "train_batch_size_per_learner": 64, "num_epochs": 1}
            stage["config"] |= {"minibatch_size": 64}
            if "new_subgoals" in stage["config"]:
                stage["config"]["new_subgoals"] |= {"every": 1, "states": 2, "steps": 60}
        elif stage["run"] == "evaluate":
            short = {"episodes": 2, "patience": 4, "env_config": {"commit": False, "horizon": 12}}
            stage["config"] |= {**short, "trials": min(1, stage["config"]["trials"])}


def _questions(path: Path) -> list[str]:
    return [json.loads(line)["prompt"] for line in path.read_text().splitlines()[1:]]
