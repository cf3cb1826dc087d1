"""Chat servers that are killed; budgets and rates when the command is (minutes: `pytest -m slow`)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from chat_process import ChatProcess

from tests.cli.chaos_table import stages_of
from tests.cli.command import rllib, start_rllib, succeeds
from tests.cli.faults import kill, require_finished, wait_until
from tests.cli.small_pipeline import ENV, KITCHEN, LABELS, chat, write

pytestmark = pytest.mark.slow
HERE = "cli/test_chaos_servers.py"


@pytest.fixture
def server(tmp_path) -> Iterator[ChatProcess]:
    process = ChatProcess(tmp_path, delay=0.15)
    yield process
    process.kill()


def file_of(stage: str, url: str, **more: Any) -> dict[str, Any]:
    """A file with one stage that asks the server."""
    if stage == "labels":
        config = {**LABELS, "teacher": {"name": "chat", **chat(url, **more)}}
        return {stage: {"run": "collect_labels", "env": KITCHEN, "config": config}}
    config = {"env_config": ENV, "chat": chat(url, **more), "episodes": 2}
    return {stage: {"run": "chat_play", "env": KITCHEN, "config": config}}


def twice(server: ChatProcess) -> int:
    """How many questions were sent that had been sent before."""
    return len(server.questions) - len(set(server.questions))


@pytest.mark.parametrize("stage", stages_of(f"{HERE}::test_a_killed_chat_server"))
def test_a_killed_chat_server(stage, server, tmp_path):
    command = write(tmp_path, file_of(stage, server.url))
    running = start_rllib(*command, cwd=tmp_path)
    wait_until(lambda: len(server.questions) >= 4 or running.poll() is not None)
    server.kill()
    said, _ = running.communicate(timeout=120)
    assert running.returncode == 1 and "The chat model 'tiny' gave no answer to 3 questions" in said, said
    assert "Traceback" not in said and "bug" not in said
    assert json.loads((tmp_path / f"results/small/{stage}/stage.json").read_text())["status"] == "running"
    server.start()
    succeeds(*command, cwd=tmp_path)
    require_finished(tmp_path / "results")
    assert twice(server) <= 1  # the question that was under way


@pytest.mark.parametrize("stage", stages_of(f"{HERE}::test_a_chat_server_that_is_soon_back"))
def test_a_chat_server_that_is_soon_back(stage, server, tmp_path):
    command = write(tmp_path, file_of(stage, server.url, max_retries=6))
    running = start_rllib(*command, cwd=tmp_path)
    wait_until(lambda: len(server.questions) >= 4 or running.poll() is not None)
    server.kill()
    server.start()
    said, _ = running.communicate(timeout=120)
    assert running.returncode == 0, said
    require_finished(tmp_path / "results")
    assert twice(server) <= 1


PRICES = {"price_per_million_input": 1e4, "price_per_million_output": 1e4}
ANSWERED = 1.2  # what an answer of the tests' server costs


@pytest.mark.parametrize("stage", stages_of(f"{HERE}::test_the_budget_holds_over_kills"))
def test_the_budget_holds_over_kills(stage, server, tmp_path):
    budget = 60.0
    command = write(tmp_path, file_of(stage, server.url, budget=budget, **PRICES))
    for number in range(2):
        running = start_rllib(*command, cwd=tmp_path)
        wait_until(lambda: len(server.questions) >= 3 * (number + 1) or running.poll() is not None)  # noqa: B023
        kill(running)
    spent = sum(json.loads(path.read_text())["cost"] for path in books(tmp_path))
    assert spent >= ANSWERED * (len(server.questions) - 2)  # nothing that was answered is forgotten
    poor = rllib(*command, cwd=tmp_path)
    assert poor.returncode == 1 and f"`budget` is {budget:g} but" in poor.stderr, poor.stdout + poor.stderr
    assert ANSWERED * len(server.questions) <= budget
    command = write(tmp_path, file_of(stage, server.url, budget=10_000.0, **PRICES))
    succeeds(*command, cwd=tmp_path)
    require_finished(tmp_path / "results")
    assert twice(server) <= 2  # one per kill


def books(folder: Path) -> list[Path]:
    return list((folder / "results").rglob("spending/*.json"))


@pytest.mark.parametrize("stage", stages_of(f"{HERE}::test_the_rate_holds_within_each_call"))
def test_the_rate_holds_within_each_call(stage, server, tmp_path):
    command = write(tmp_path, file_of(stage, server.url, requests_per_minute=120))
    calls = []
    for _ in range(2):
        asked = len(server.questions)
        running = start_rllib(*command, cwd=tmp_path)
        wait_until(lambda: len(server.questions) >= asked + 5 or running.poll() is not None)  # noqa: B023
        kill(running)
        calls.append(server.times[asked:])
    for times in calls:
        assert len(times) >= 5 and all(later - earlier >= 0.4 for earlier, later in pairwise(times)), times
