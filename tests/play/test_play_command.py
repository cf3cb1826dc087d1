"""`rllib play` as a user types it: a shipped agent, a person's round, a record, and its end by ctrl-C."""

import re
import signal
import sys
import time

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("websockets")

from served import ask, sit, told  # noqa: E402
from websockets.exceptions import ConnectionClosed  # noqa: E402
from websockets.sync.client import connect  # noqa: E402

from rllib_llm_comm.cli.main import app  # noqa: E402
from rllib_llm_comm.core.session_files import DECISIONS, read_session  # noqa: E402
from rllib_llm_comm.play import host  # noqa: E402
from tests import forked  # noqa: E402
from tests.cli.command import environment  # noqa: E402


def play_door(folder, *options, **more):
    """`rllib play zoo:door`, recorded, in a process of its own."""
    command = ["play", "zoo:door", "--record", "session", *options]
    return forked.start(forked.CLI, *command, cwd=folder, env={**environment(), **more})


def start(folder):
    """As `play_door`, recorded after consent."""
    (folder / "consent.txt").write_text("We store what you do.")
    return play_door(folder, "--no-browser", "--seed", "5", "--consent", "consent.txt")


def open_page(process):
    """The page's connection, at the address that the command prints."""
    line = next(line for line in process.stdout if "token=" in line)
    address, token = re.search(r"(http://127\.0\.0\.1:\d+)/\?token=([\w-]+)", line).groups()
    return connect(f"{address.replace('http', 'ws')}/wire?token={token}", origin=address, open_timeout=60)


def test_the_token_is_on_no_command_line(tmp_path):
    """A program in place of a browser writes down what it was called with, and opens it as a browser does."""
    program, called = tmp_path / "browser", tmp_path / "called"
    program.write_text(
        f"#!{sys.executable}\nimport pathlib, sys, urllib.request\n"
        "page = urllib.request.urlopen(sys.argv[1])\n"
        f"pathlib.Path({str(called)!r}).write_text(sys.argv[1] + ' ' + page.url + ' ' + page.read().decode())\n"
    )
    program.chmod(0o755)
    process = play_door(tmp_path, BROWSER=f"{program} %s &")
    try:
        lines = [next(line for line in process.stdout if "token=" in line) for _ in range(2)]
        while not called.exists() or not called.read_text():
            assert process.poll() is None
            time.sleep(0.1)
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)
    opened, url, page = called.read_text().split(" ", 2)
    token, host = (re.search(r"token=([\w-]+)", line).group(1) for line in lines)
    assert token != host and token not in opened and host not in opened and "token" not in opened
    assert url.endswith(f"/?token={token}") and "connect()" in page


@pytest.mark.slow
def test_a_killed_page_keeps_what_was_done(tmp_path):
    process = start(tmp_path)
    try:
        with open_page(process) as wire:
            view = sit(wire, "bob", name="P01", agree=True)
            action = view["options"][0]["action"]
            ask(wire, "choose", action=action, moment=view["moment"], episode=view["episode"])
            told(wire, lambda message: message.get("moment") == view["moment"] + 1)
            process.send_signal(signal.SIGKILL)
            process.wait(60)
            with pytest.raises(ConnectionClosed):
                told(wire, lambda message: False)
    finally:
        process.process.kill()
        process.communicate()
    (moment,) = read_session(tmp_path / "session").episodes[0].moments
    assert moment.people["bob"].name == "P01" and moment.actions["bob"] == action
    left = {path.name for path in (tmp_path / "session").iterdir()}
    again = start(tmp_path)  # into the same folder: nothing is written over
    out, code = again.communicate(timeout=120)
    assert code == 1 and "is not empty" in out
    assert {path.name for path in (tmp_path / "session").iterdir()} == left


def test_a_stranger_plays_a_round_with_a_shipped_agent(tmp_path):
    process = start(tmp_path)
    try:
        with open_page(process) as wire:
            named = [next(process.stdout).strip() for _ in range(2)]
            view = sit(wire, "bob", name="P01", agree=True)
            assert view["recorded"] and view["heard"]["alice"], "Alice, a shipped agent, tells the door"
            word = next(word for word in view["heard"]["alice"].split() if f"{word} door" in str(view["options"]))
            for wanted in (f"{word} door", "open the door"):
                (option,) = [one for one in view["options"] if wanted in one["phrase"]]
                ask(wire, "choose", action=option["action"], moment=view["moment"], episode=view["episode"])
                moment = view["moment"] + 1
                view = told(wire, lambda message, moment=moment: message.get("moment") == moment)
            assert view["over"] and view["outcome"] == "solved", "who does as Alice says opens the right door"
    finally:
        process.send_signal(signal.SIGINT)
        out, code = process.communicate(timeout=120)
    assert code in (0, 130) and "to continue" not in out and "Traceback" not in out, out
    session = read_session(tmp_path / "session")
    assert [phrase.split(":")[0] for phrase in session.stand_ins] == ["base model embedded", "teacher scripted"]
    assert named == [f"Stands in: {phrase}" for phrase in session.stand_ins]
    assert session.consent == "We store what you do." and session.episodes[0].success
    assert {seat.name for moment in session.episodes[0].moments for seat in moment.people.values()} == {"P01"}
    assert (tmp_path / "session" / DECISIONS).is_file()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["zoo:door", "--partner", "alice=random", "--partner", "alice=stay"], "given twice"),
        (["zoo:door", "--partner", "random", "--partner", "stay", "--partner", "stay"], "given 3 times"),
        (["zoo:door", "--partner", "carol=scripted"], "no seat is 'carol'"),
        (["zoo:door", "--consent", "nothing.txt"], "`--consent` is 'nothing.txt'"),
        (["zoo:doors", "--record", "."], "not empty"),  # before it is looked for
        (["zoo:door", "--record", "something"], "no folder"), (["zoo:door", "--trials", "2"], "`trials`"),
        (["zoo:door", "--watch", "--no-spectators"], "nobody"), (["zoo:door", "--host", ""], "`--host`"),
        (["zoo:door", "--host", "300.1.2.3"], "nobody can listen"),
    ],
)  # fmt: skip
def test_mistakes_are_told_before_anything_is_served(arguments, sentence, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "something").write_text("")
    monkeypatch.setattr(host, "make_server", lambda *_: pytest.fail("the page was served"))
    monkeypatch.setattr(sys, "argv", ["rllib", "play", *arguments, "--no-browser"])
    with pytest.raises(SystemExit, match="1"):
        app()
    assert sentence in " ".join(capsys.readouterr().err.split())


def test_partners_take_their_seats():
    table = host.set_table("zoo:door", partners=["random"])
    assert [one.settings.name for one in table.policy.seats.values()] == ["zoo:door", "random"]
    table = host.set_table("zoo:soup_cramped_room", partners=["alice=scripted"])
    assert [one.settings.name for one in table.policy.seats.values()] == ["scripted", "zoo:soup_cramped_room"]
    assert table.game.observations["alice"]["text"], "people read, agents that see planes do not"
    for _ in range(5):
        assert table.advance()
