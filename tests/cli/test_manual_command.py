"""`rllib manual`: makes a manual with a chat model, and from its recording."""

from __future__ import annotations

import json

import pytest
from chat_server import ChatServer
from manual_reader import MANUAL, PAPER, reader

from tests.cli.command import rllib, succeeds

pytestmark = pytest.mark.usefixtures("chat_client_at_home")


def test_the_command_records_and_plays_back(tmp_path):
    with ChatServer(reader) as server:
        priced = {"requests_per_minute": 1e6, "price_per_million_output": 1e3, "cache_dir": str(tmp_path / "cache")}
        told = rllib(
            "manual", str(PAPER), "--model", "tiny", "--base-url", server.url, "--cassette", "tape.jsonl",
            "--chat", json.dumps(priced), "--json", "figures.json", cwd=tmp_path,
        )  # fmt: skip
        assert told.returncode == 0, told.stderr
        asked = len(server.requests)
    assert "3 of 5 paragraphs are relevant; 5 facts, 1 repetitions left out" in told.stdout
    assert f"{asked} requests" in told.stdout and f"cost {asked * 0.02:.4g}" in told.stdout
    text = (tmp_path / "manual.md").read_text()
    assert text.endswith(f"-->\n\n{MANUAL}\n")
    assert "from soup_world.tex (sha256 " in text and "by tiny. Not checked" in text
    assert json.loads((tmp_path / "figures.json").read_text())["cost"]["requests"] == asked
    again = succeeds("manual", str(PAPER), "--cassette", "tape.jsonl", "--out", "again/manual.md", cwd=tmp_path)
    assert " 0 requests" in again.stdout
    assert (tmp_path / "again" / "manual.md").read_text().endswith(f"-->\n\n{MANUAL}\n")
    assert "by the recording tape.jsonl" in (tmp_path / "again" / "manual.md").read_text()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["none.tex", "--model", "m"], "'none.tex' is no file and none of"),
        ([str(PAPER)], "`model` is missing"),
        ([str(PAPER), "--chat", '{"x": 1}'], "`chat.x` is no known key"),
    ],
)
def test_the_commands_errors_are_one_sentence(tmp_path, options, why):
    told = rllib("manual", *options, cwd=tmp_path)
    assert told.returncode == 1 and why in told.stderr and "Traceback" not in told.stderr
    assert not (tmp_path / "manual.md").exists()
