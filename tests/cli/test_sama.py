"""SAMA's file through the real command: asked of a real local server, killed and continued, and offline.

All stages that play with a server's answers are run by `test_sama_ablations.py` and, slow, with other forms of answers
here.
"""

from __future__ import annotations

import json
import signal
import threading
from collections import Counter
from pathlib import Path

import pytest
import yaml
from chat_server import ChatServer

from rllib_llm_comm.chat.cassettes import Cassette
from rllib_llm_comm.sama.recordings import recording
from tests.cli.command import fork_rllib, succeeds
from tests.cli.small_pipeline import replaced

SAMA = Path(__file__).parents[2] / "tuned_examples" / "sama.yaml"
COMMAND = ["train", "file", "sama.yaml", "--ray-num-cpus", "2"]
PREPARE = ("manual", "translation", "subgoals", "rewards")
EVALUATIONS = ("random", "trials_0", "trials_1")


class Model:
    """Answers a server's questions from the recording; holds its breath at one of them until it may go on."""

    def __init__(self, stop_at: int = 0) -> None:
        self.tape, self.asked = Cassette(recording("sama")), Counter[str]()
        self.stop_at, self.reached, self.go_on = stop_at, threading.Event(), threading.Event()

    def __call__(self, prompt: str) -> str:
        self.asked[prompt] += 1
        if self.stop_at and sum(self.asked.values()) == self.stop_at:
            self.reached.set()
            self.go_on.wait(300)
        return self.tape.complete(prompt)


class OtherFamily(Model):
    """The same answers from a server of another family: thoughts apart or in the text, forms as arguments of a tool
    call, text in parts, and a form refused at first where the question's number divides by five."""

    refused = called = 0

    def __call__(self, prompt: str) -> bytes:
        first = prompt.partition("\n\nYou were asked this before")[0]
        again, answer = first != prompt, super().__call__(first)
        count = sum(self.asked.values())
        message = {"reasoning_content": "Let me think about {it}.", "role": "assistant", "content": None}
        if not again and count % 5 == 0 and answer.startswith("{"):
            self.refused += 1
            message["refusal"] = "I'm sorry, I cannot help with that."
        elif answer.startswith("{"):
            self.called += 1
            function = {"name": "answer", "arguments": answer}
            message["tool_calls"] = [{"id": "1", "type": "function", "function": function}]
        elif count % 2:
            message["content"] = f"<think>So it is.</think>\n{answer}"
        else:
            message["content"] = [{"type": "reasoning", "text": "hm"}, {"type": "text", "text": answer}]
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        usage = {"prompt_tokens": 100, "completion_tokens": 20}
        return json.dumps({"choices": [choice], "usage": usage}).encode()


def write(folder: Path, chat: dict | None = None, *, whole: bool = False) -> None:
    """The file of the package, small: few states, one short iteration, short games."""
    stages = yaml.safe_load(SAMA.read_text())
    if chat is not None:
        stages = replaced(stages, {"cassette": "sama"}, chat)
    stages["translation"]["config"] |= {"states": 10}
    stages["rewards"]["config"] |= {"steps": 120}
    follower = stages["follower"]
    follower["stop"] = {"training_iteration": 1}
    tiny = {"num_envs_per_env_runner": 2, "train_batch_size_per_learner": 64, "minibatch_size": 64, "num_epochs": 1}
    follower["config"] |= tiny
    for name in (*EVALUATIONS, "replay"):
        stages[name]["config"] |= {"episodes": 1, "patience": 8, "env_config": {"commit": False, "horizon": 24}}
    stages["replay"]["config"]["trials"] = 1
    del stages["trials_2"], stages["trials_3"]
    stages["report"]["config"]["of"] = [f"${{{name}}}" for name in (*PREPARE, "follower", *EVALUATIONS)]
    kept = stages if whole else {name: stages[name] for name in PREPARE}
    (folder / "sama.yaml").write_text(yaml.safe_dump(kept, sort_keys=False))


def chat(server: ChatServer) -> dict:
    # A request that a busy machine lets wait is no lost one, which would be asked again.
    patient = {"requests_per_minute": 1e6, "timeout": 300, "max_retries": 0}
    return {"model": "tiny", "base_url": server.url, **patient}


def results(folder: Path, stage: str) -> dict:
    return json.loads((folder / "results/sama" / stage / "stage.json").read_text())


def test_a_killed_run_asks_nothing_twice_and_records_its_answers(tmp_path):
    model = Model(stop_at=60)  # in the midst of the data set
    with ChatServer(model) as server:
        write(tmp_path, chat(server))
        running = fork_rllib(*COMMAND, cwd=tmp_path)
        assert model.reached.wait(300), running.communicate()[0]
        assert results(tmp_path, "subgoals")["status"] == "running"
        running.send_signal(signal.SIGKILL)
        running.communicate()
        model.go_on.set()
        done = succeeds(*COMMAND, cwd=tmp_path)
    assert "manual (make_manual): already there, skipped" in done.stdout
    twice = {prompt: count for prompt, count in model.asked.items() if count > 1}
    assert list(twice.values()) in ([], [2]), twice  # the question that was under way
    assert results(tmp_path, "subgoals")["summary"]["answers_from"] == "tiny"
    for name in PREPARE:
        assert (tmp_path / "results/sama" / name / "answers.jsonl").is_file()


@pytest.mark.slow
def test_another_family_of_answers_goes_from_preparation_to_report(tmp_path):
    model = OtherFamily()
    with ChatServer(model) as server:
        write(tmp_path, chat(server), whole=True)
        stages = yaml.safe_load((tmp_path / "sama.yaml").read_text())
        del stages["follower"]  # the shipped follower obeys; to learn to is no question of answers
        for name in (*EVALUATIONS, "replay"):
            stages[name]["config"]["checkpoint"] = "zoo:emma_cramped_room"
        stages["report"]["config"]["of"] = [f"${{{name}}}" for name in (*PREPARE, *EVALUATIONS, "replay")]
        (tmp_path / "sama.yaml").write_text(yaml.safe_dump(stages, sort_keys=False))
        succeeds(*COMMAND, cwd=tmp_path, timeout=600)
    assert model.refused > 5 and model.called > 50
    told = results(tmp_path, "trials_1")["summary"]["metrics"]
    assert told["plans_by_model"] > 0 and told["reflections_by_model"] > 0 and told["plans_failed"] == 0
    assert results(tmp_path, "subgoals")["summary"]["failed"] == 0
    assert "trials_1: tiny" in (tmp_path / "results/sama/report/report.html").read_text()


def write_lake(folder: Path) -> None:
    """The package's file on the frozen lake, small."""
    stages = yaml.safe_load(SAMA.with_name("sama_frozen_lake.yaml").read_text())
    stages["follower"]["stop"] = {"training_iteration": 1}
    stages["follower"]["config"] |= {"num_envs_per_env_runner": 4, "train_batch_size_per_learner": 256}
    for name in EVALUATIONS:
        stages[name]["config"]["episodes"] = 2
    (folder / "sama.yaml").write_text(yaml.safe_dump(stages, sort_keys=False))


@pytest.mark.slow
@pytest.mark.parametrize("game", ["sama", "sama_frozen_lake"])
def test_all_stages_offline_name_the_author_of_the_plans_on_every_page(game, tmp_path):
    write(tmp_path, whole=True) if game == "sama" else write_lake(tmp_path)
    succeeds(*COMMAND, cwd=tmp_path, timeout=600)
    for page in ("report/report.html", "replay/replay.html"):
        assert "written by hand" in (tmp_path / "results/sama" / page).read_text(), page
    told = results(tmp_path, "trials_1")["summary"]
    assert told["answers_from"].startswith(f"recording {game}.jsonl.xz (written by hand")
    assert told["metrics"]["plans_by_cassette"] > 0 and not told["metrics"].get("plans_by_rules")
    assert "answers_from" not in results(tmp_path, "random")["summary"]
