"""The stages that prepare a game ask several questions at once, and leave the same results as one after the other."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from chat_server import ChatServer, Late

from rllib_llm_comm.chat.cassettes import Cassette
from rllib_llm_comm.sama.recordings import recording
from tests.experiments.staged import record, run

SAMA = Path(__file__).parents[2] / "tuned_examples" / "sama.yaml"
STAGES = ("manual", "translation", "subgoals", "rewards")


def prepare(folder, url, at_once):
    """What the stages leave, the facts of the manual apart."""
    chat = {"model": "tiny", "base_url": url, "requests_per_minute": 1e6, "max_concurrent": at_once}
    found = yaml.safe_load(SAMA.read_text())
    specs = {name: found[name] for name in STAGES}
    for spec in specs.values():
        spec["config"]["chat"] = chat
    specs["translation"]["config"]["states"] = 5
    specs["rewards"]["config"]["steps"] = 20
    run(specs, folder, "sama")
    left = {
        str(path.relative_to(folder)): path.read_text()
        for path in sorted((folder / "sama").rglob("*"))
        if path.is_file() and path.suffix in (".json", ".md", ".py") and path.name not in ("stage.json", "manual.json")
    }
    facts = json.loads((folder / "sama/manual/manual.json").read_text())["facts"]
    texts = {name: re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL) for name, text in left.items()}
    return {name: text.replace(str(folder), "FOLDER") for name, text in texts.items()}, facts


@pytest.mark.usefixtures("chat_client_at_home")
def test_stages_ask_several_questions_at_once_leave_the_same_and_play_from_what_was_recorded(tmp_path):
    made, most, asked, tape = [], [], [], Cassette(recording("sama"))
    for at_once in (1, 4):
        model = Late(lambda prompt: str(tape.complete(prompt)), together=at_once, patience=0.5)
        with ChatServer(model) as server:
            made.append(prepare(tmp_path / str(at_once), server.url, at_once))
            asked.append(sorted(body["messages"][-1]["content"] for body in server.requests))
        most.append(model.most)
    assert most[0] == 1 and most[1] == 4
    assert asked[0] == asked[1]  # not a question more
    assert made[0] == made[1] and len(made[0][0]) > 10
    # What was answered is recorded, and plays in the server's place.
    manual = {"manual": yaml.safe_load(SAMA.read_text())["manual"]}
    manual["manual"]["config"]["chat"] = {"cassette": str(tmp_path / "1/sama/manual/answers.jsonl")}
    run(manual, tmp_path / "played", "sama")
    told = record(tmp_path / "played", "manual", "sama")["summary"]
    assert told["requests"] == 0 and told["kept_answers"] > 0 and set(told["answers"]) == {"tiny"}
    again = (tmp_path / "played/sama/manual/manual.md").read_text()
    assert re.sub(r"<!--.*?-->", "", again, flags=re.DOTALL) == made[0][0]["sama/manual/manual.md"]
