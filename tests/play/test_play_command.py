"""`rllib play` as a user types it: a shipped agent, a person's round, a record, and its end by ctrl-C."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("websockets")

from served import ask, told  # noqa: E402
from websockets.sync.client import connect  # noqa: E402

from rllib_llm_comm.cli.main import app  # noqa: E402
from rllib_llm_comm.play import host  # noqa: E402
from rllib_llm_comm.sessions import DECISIONS, read_session  # noqa: E402


def test_a_stranger_plays_a_round_with_a_shipped_agent(tmp_path):
    consent = tmp_path / "consent.txt"
    consent.write_text("We store what you do.")
    process = subprocess.Popen(
        [
            sys.executable, "-m", "rllib_llm_comm.cli.main", "play", "zoo:door", "--no-browser", "--seed", "5",
            "--record", "session", "--consent", "consent.txt",
        ],
        cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "COLUMNS": "200"},
    )  # fmt: skip
    try:
        line = next(line for line in process.stdout if "token=" in line)
        address, token = re.search(r"(http://127\.0\.0\.1:\d+)/\?token=([\w-]+)", line).groups()
        with connect(f"{address.replace('http', 'ws')}/wire?token={token}", origin=address, open_timeout=60) as wire:
            ask(wire, "sit", agent="bob", name="P01", agree=True)
            view = told(wire, lambda message: message.get("you") == "bob")
            assert view["recorded"] and view["heard"]["alice"], "Alice, a shipped agent, tells the door"
            word = next(word for word in view["heard"]["alice"].split() if f"{word} door" in str(view["options"]))
            for _ in range(2):
                (option,) = [one for one in view["options"] if word in one["phrase"]] or view["options"][:1]
                ask(wire, "choose", action=option["action"], moment=view["moment"], episode=view["episode"])
                moment = view["moment"] + 1
                view = told(wire, lambda message, moment=moment: message.get("moment") == moment)
            assert view["over"] and view["outcome"] in ("solved", "not solved")
    finally:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    assert process.returncode in (0, 130), err
    session = read_session(tmp_path / "session")
    assert session.consent == "We store what you do." and session.episodes[0].success == (view["outcome"] == "solved")
    assert {seat.name for moment in session.episodes[0].moments for seat in moment.people.values()} == {"P01"}
    assert (tmp_path / "session" / DECISIONS).is_file() and "Traceback" not in err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["zoo:doors"], "there is no shipped policy 'zoo:doors'"),
        (["zoo:door", "--partner", "alice=random", "--partner", "alice=stay"], "two partners were given for one seat"),
        (["zoo:door", "--partner", "random", "--partner", "stay", "--partner", "stay"], "3 partners were given"),
        (["zoo:door", "--consent", "nothing.txt"], "--consent 'nothing.txt' cannot be read"),
        (["zoo:door", "--record", "."], "which is not empty"),
        (["zoo:doors", "--record", "."], "which is not empty"),
        (["zoo:door", "--record", "something"], "which is no folder"),
        (["zoo:door", "--partner", "carol=scripted"], "there is no seat 'carol'; the seats are alice, bob"),
        (["zoo:door", "--host", "300.1.2.3"], "nobody can listen"),
        (["zoo:door", "--trials", "2"], "`trials` is 2 but nobody puts a game with people back"),
    ],
)
def test_mistakes_are_told_before_anything_is_served(arguments, sentence, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "something").write_text("")
    monkeypatch.setattr(host, "make_server", lambda *_: pytest.fail("the page was served"))
    monkeypatch.setattr(sys, "argv", ["rllib", "play", *arguments, "--no-browser"])
    with pytest.raises(SystemExit, match="1"):
        app()
    assert sentence in " ".join(capsys.readouterr().err.split())


def test_partners_take_their_seats():
    from rllib_llm_comm.play.seating import set_table

    table = set_table("zoo:door", partners=["random"])
    assert [one.settings.name for one in table.policy.seats.values()] == ["zoo:door", "random"]
    table = set_table("zoo:soup_cramped_room", partners=["alice=scripted"])
    assert [one.settings.name for one in table.policy.seats.values()] == ["scripted", "zoo:soup_cramped_room"]
    assert table.game.observations["alice"]["text"], "people read, agents that see planes do not"
    for _ in range(5):
        assert table.advance()
