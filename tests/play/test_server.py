"""The server of a table: who gets in, what a browser may ask, and how much of it."""

import contextlib
import http.client
import json
import os
import resource
import socket
import time
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as parquet
import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
websockets = pytest.importorskip("websockets")

from served import ask, served, sit, told  # noqa: E402
from test_table import SALADS, table_of  # noqa: E402

from rllib_llm_comm.core.errors import UserError  # noqa: E402
from rllib_llm_comm.core.session_files import DECISIONS, SESSION, read_session  # noqa: E402
from rllib_llm_comm.play.room import ServerLimits  # noqa: E402
from rllib_llm_comm.play.server import Access, listen  # noqa: E402
from rllib_llm_comm.play.session_recorder import SessionRecorder  # noqa: E402


@pytest.fixture
def door_game():
    with served(table_of("door", policy="random", told_to=["alice"])) as running:
        yield running


def get(running, path, host=None):
    """Status, headers and text of a page, asked for under any name."""
    address = running.door.address.removeprefix("http://")
    connection = http.client.HTTPConnection(address, timeout=60)
    connection.request("GET", path, headers={"Host": host or address})
    answer = connection.getresponse()
    found = answer.status, dict(answer.getheaders()), answer.read().decode()
    connection.close()
    return found


def test_the_page_and_its_wire_need_the_token_and_this_machine_as_their_name_and_origin(door_game):
    token = door_game.door.token
    status, headers, page = get(door_game, f"/?token={token}")
    assert status == 200 and "connect()" in page
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy
    assert headers["referrer-policy"] == "no-referrer"
    assert token not in page, "the token stays in the address"
    status, _, page = get(door_game, "/")
    assert status == 403 and "token" in page and get(door_game, f"/?token={token[:-1]}")[0] == 403
    assert get(door_game, f"/?token={token}", host="evil.example:80")[0] == 403
    assert get(door_game, f"/docs?token={token}")[0] == 404
    origins = ("http://evil.example", "null", None, "https://127.0.0.1")
    for how in ({"token": "guess"}, *({"origin": one} for one in origins)):
        with pytest.raises(websockets.exceptions.InvalidStatus), door_game.wire(**how):
            pass


def test_it_listens_on_this_machine_alone(door_game):
    port = door_game.place[1]
    own = {told[4][0] for told in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)}
    for address in own - {"127.0.0.1"}:
        with pytest.raises(OSError), socket.create_connection((address, port), timeout=2):
            pass
    with pytest.raises(UserError, match="nobody can listen"):
        listen("127.0.0.1", port)


def opens(door, host, origin):
    """Whether a request with the token gets in."""
    headers = {"host": host, "origin": origin}
    return door.opens(SimpleNamespace(query_params={"token": door.token}, headers=headers), with_origin=True)


def test_the_usual_port_is_left_away_and_an_address_of_a_network_asks_for_the_origin_of_its_own_page():
    door = Access("127.0.0.1", 80)
    assert door.url.startswith("http://127.0.0.1/?token=") and opens(door, "127.0.0.1", "http://127.0.0.1")
    door = Access("0.0.0.0", 80)  # noqa: S104
    assert opens(door, "lab.example:80", "http://lab.example:80")
    assert not opens(door, "lab.example:80", "http://evil.example:80")


NO_COMMANDS = [
    ("{", "no command"), ("[]", "`do` must be"), ('{"do": "fly"}', "`do` must be"), ('{"do": "sit"}', "no command"),
    ('{"do": "sit", "agent": "zoe"}', "no seat 'zoe'"), ('{"do": "say", "text": "hi"}', "sit down first"),
    ('{"do": "restart", "seed": -1}', "seed"), ('{"do": "restart", "seed": "x"}', "seed"),
    ('{"do": "speed", "value": 1e9}', "speed"), ('{"do": "speed", "value": NaN}', "speed"),
    ("[" * 3000, "no command"), ('{"do": "speed", "value": 1%s}' % ("0" * 400), "no command"),
]  # fmt: skip


def test_what_is_no_command_is_answered_with_a_sentence(door_game):
    with door_game.wire() as wire:
        for command, sentence in NO_COMMANDS:
            wire.send(command)
            assert sentence in told(wire, lambda message: "error" in message)["error"], command
        view = sit(wire, "bob")
        ask(wire, "choose", action=float("inf"), moment=view["moment"], episode=view["episode"])
        assert "no command" in told(wire, lambda message: "error" in message)["error"]
        ask(wire, "say", text="still here")
        assert told(wire, lambda message: message.get("said"))["you"] == "bob", "the server goes on"


def test_two_browsers_are_two_seats_and_hear_each_other(door_game):
    with door_game.wire() as one, door_game.wire() as two:
        sit(one, "alice", name="Ann")
        sit(two, "bob", name="Ben")
        ask(two, "sit", agent="alice", name="Ben")
        assert "taken by Ann" in told(two, lambda message: "error" in message)["error"]
        ask(one, "say", text="Take the RED door <b>now</b>!")
        heard = told(two, lambda message: message.get("heard"))
        assert heard["heard"] == {"alice": "take the red door <b>now</b>"}
        assert heard["you"] == "bob" and all(seat["person"] for seat in heard["seats"]), "each keeps its own seat"
        view = told(one, lambda message: message.get("said"))
        for wire, seen in ((one, view), (two, heard)):
            ask(wire, "choose", action=seen["options"][0]["action"], moment=seen["moment"], episode=seen["episode"])
        assert told(one, lambda message: message.get("moment") == 1)["log"][0]["agent"] == "alice"


def test_a_browser_that_takes_nothing_neither_stops_the_game_nor_keeps_its_seat():
    table = table_of(seed=3, **SALADS)
    # Views have to fill the way to the deaf browser soon, faster than a page may ask for them.
    limits = ServerLimits(send_seconds=2.0, commands_per_second=1e6, most_episodes=10**6)
    with served(table, limits) as running, socket.socket() as deaf:
        address = running.door.address.removeprefix("http://")
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connect(running.place)
        deaf.sendall(
            f"GET /wire?token={running.door.token} HTTP/1.1\r\nHost: {address}\r\nOrigin: {running.door.address}\r\n"
            "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
            "Sec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        with running.wire() as wire:
            begun, answers = time.monotonic(), []
            view = told(wire, lambda message: True)
            while len(running.room.guests) > 1 or not answers:
                assert time.monotonic() - begun < 60, "the deaf browser is still a guest"
                now = view["episode"], view["moment"]
                ask(wire, "restart" if view["over"] else "step")
                view = told(wire, lambda message, now=now: (message["episode"], message["moment"]) > now)
                answers.append(time.monotonic())
            # It is sent away after it has taken nothing for so long; a server that waits for it is silent then.
            waited_for = answers[-1] - limits.send_seconds
            assert sum(waited_for < answer for answer in answers) > 3, "nobody waits for it"


def test_rewards_that_are_no_numbers_are_told_as_text_and_faults_in_words_and_the_server_goes_on(monkeypatch):
    table = table_of("door", policy="random")
    table.episode.returns["alice"] = np.float32("nan")
    with served(table) as running, running.wire() as wire:
        assert json.loads(wire.recv(timeout=60), parse_constant=pytest.fail)["returns"]["alice"] == "nan"
        for name, command in (("reset", "restart"), ("step", "step")):
            with monkeypatch.context() as broken:
                broken.setattr(table.env, name, lambda *_, **__: 1 // 0)
                ask(wire, command)
                assert "console" in str(told(wire, lambda m: m.get("error") or m.get("notice")))
        with monkeypatch.context() as broken:
            broken.setattr(running.room._views, "view", lambda seat: 1 // 0)
            ask(wire, "pause", on=True)
            assert "console" in told(wire, lambda message: "error" in message)["error"]
        ask(wire, "restart", seed=9)
        assert told(wire, lambda message: message.get("seed") == 9)["seats"], "the server goes on"


def test_a_key_for_a_moment_that_is_over_does_nothing_and_a_browser_that_goes_gives_its_seat_back(door_game):
    with door_game.wire() as one, door_game.wire() as two:
        view = sit(one, "alice")
        ask(one, "choose", action=0, moment=view["moment"] + 1, episode=view["episode"])
        ask(one, "pause", on=False)
        assert told(one, lambda message: True)["chosen"] is None
        told(two, lambda message: message["seats"][0]["person"])
        one.close()
        left = told(two, lambda message: not message["seats"][0]["person"])
        assert left["paused"], "nobody is there, so the game rests"


def closed(wire):
    """Reads until the server closes the connection, which is an error of `websockets` with the server's reason."""
    while True:
        wire.recv(timeout=60)


def test_too_many_browsers_and_too_long_commands():
    limits = ServerLimits(most_connections=1, most_bytes=500)
    with served(table_of("door", policy="random"), limits) as running, running.wire() as one:
        with running.wire() as two, pytest.raises(websockets.exceptions.ConnectionClosed, match="too many browsers"):
            closed(two)
        one.send("x" * 5000)
        with pytest.raises(websockets.exceptions.ConnectionClosed):
            closed(one)


@pytest.mark.parametrize(
    ("limits", "commands", "reason"),
    [
        (ServerLimits(commands_per_second=0.5), 30, "too many commands"),  # which a slow machine exceeds, too
        (ServerLimits(idle_minutes=0.5 / 60), 0, "nothing happened"),
    ],
)
def test_a_browser_that_asks_too_often_or_does_nothing_for_long_is_sent_away(limits, commands, reason):
    sent_away = pytest.raises(websockets.exceptions.ConnectionClosed, match=reason)
    with served(table_of("door", policy="random"), limits) as running, running.wire() as wire, sent_away:
        for _ in range(commands):
            ask(wire, "pause", on=True)
        closed(wire)


def test_watching_step_by_step_at_a_speed_and_from_a_seed_for_so_many_episodes():
    with served(table_of(seed=3, **SALADS), ServerLimits(most_episodes=2)) as running, running.wire() as wire:
        first = told(wire, lambda message: True)
        assert first["paused"] and first["moment"] == 0 and first["seed"] == 3 and first["picture"]
        ask(wire, "step")
        assert told(wire, lambda message: message.get("moment") == 1)["paused"]
        ask(wire, "speed", value=50)
        ask(wire, "pause", on=False)
        end = told(wire, lambda message: message.get("over"))
        assert end["outcome"] == "served"
        ask(wire, "restart", seed=3)
        again = told(wire, lambda message: message.get("episode") == 2 and message.get("over"))
        assert again["returns"] == end["returns"], "a seed fixes the game"
        ask(wire, "restart", seed=1)
        assert "anew" in told(wire, lambda message: "error" in message)["error"], "the server has to be started anew"


def test_without_spectators_a_browser_sees_the_game_from_its_seat_alone():
    table = table_of(**SALADS)
    order = table.env.unwrapped.kitchen.recipe
    with served(table, spectators=False) as running, running.wire() as wire:
        first = told(wire, lambda message: True)
        assert first["hidden"] and first["seats"] and order not in json.dumps(first)
        ask(wire, "step")
        later = told(wire, lambda message: message["moment"] == 1)
        assert not later["log"] and not later["why"] and not later["picture"] and "texts" not in later
        seated = sit(wire, "alice")
        assert seated["told"] == order and seated["picture"] and seated["log"] and not seated["hidden"]
        ask(wire, "stand")
        assert order not in json.dumps(told(wire, lambda message: message["you"] is None))


def test_nobody_can_ask_why_where_that_is_not_allowed():
    table = table_of(**SALADS)
    with served(table, why=False) as running, running.wire() as wire:
        ask(wire, "step")
        assert told(wire, lambda message: message.get("moment") == 1)["why"] == {}
        assert table.why and np.isfinite(table.why["alice"]["probabilities"]).all()
        assert json.dumps(table.why)


STEERING = [
    ("pause", {"on": True}), ("step", {}), ("restart", {"seed": 9}), ("speed", {"value": 50}), ("clock", {"on": True}),
]  # fmt: skip


@pytest.mark.parametrize("study", [{}, {"consent": "We store it."}, {"recorded": True}])
def test_who_holds_no_seat_does_not_steer_a_game_of_people(study):
    table = table_of("overcooked_ai", policy="stay", horizon=50)
    with served(table, **study) as running, running.wire() as player, running.wire() as other:
        assert told(other, lambda message: True)["steers"] is (not study)
        assert sit(player, "alice", agree=True)["steers"]
        before = told(other, lambda message: message.get("seats") and message["seats"][0]["person"])
        assert not before["steers"]
        for do, arguments in STEERING:
            ask(other, do, **arguments)
            assert "cannot `" + do in told(other, lambda message: "error" in message)["error"]
        clock = running.room.clock
        assert (clock.speed, clock.runs, clock.paused, table.moments, table.episodes) == (2.0, False, False, 0, 1)
        ask(player, "speed", value=50)
        told(other, lambda message: message.get("speed") == 50)


def test_who_started_the_server_steers_without_a_seat_for_which_everybody_has_to_agree():
    table = table_of("overcooked_ai", policy="stay", horizon=50)
    with served(table, consent="Yes?") as there, there.wire() as player, there.wire(there.door.host_token) as host:
        assert told(player, lambda message: True)["consent"] == "Yes?"
        sit(player, "alice", agree=True)
        for do, arguments in STEERING:
            ask(host, do, **arguments)
        assert told(host, lambda message: message.get("clock"))["steers"]
        assert there.room.clock.speed == 50 and table.seed == 9
        ask(host, "sit", agent="bob")
        assert "agree" in told(host, lambda message: "error" in message)["error"], "a seat is for who agrees"


def test_the_clock_does_not_wait_and_moments_that_it_forced_are_no_choices_of_a_person(tmp_path):
    table = table_of("overcooked_ai", policy="stay", horizon=3)
    log = SessionRecorder(tmp_path / "made" / "p01", table)
    with served(table, recorded=True) as running, running.wire() as wire:
        view = sit(wire, "alice", name="P01")
        ask(wire, "choose", action=view["options"][0]["action"], moment=0, episode=1)
        told(wire, lambda message: message.get("moment") == 1)
        time.sleep(0.3)
        assert table.moments == 1, "without a clock the game waits"
        ask(wire, "speed", value=50)
        ask(wire, "clock", on=True)
        told(wire, lambda message: message.get("over"))
    log.close()
    episode = read_session(log.folder).episodes[0]
    assert [moment.people["alice"].forced for moment in episode.moments] == [False, True, True]
    rows = [row for row in parquet.read_table(log.folder / DECISIONS).to_pylist() if row["agent"] == "alice"]
    assert [(row["by_person"], row["forced"]) for row in rows] == [(True, False), (False, True), (False, True)]
    modes = {path.name: path.stat().st_mode & 0o777 for path in (log.folder, *log.folder.iterdir())}
    assert modes == {"p01": 0o700, SESSION: 0o600, DECISIONS: 0o600}


def test_the_address_for_a_browsers_command_line_works_once(door_game):
    once = door_game.door.once_url
    assert door_game.door.token not in once and door_game.door.host_token not in once
    path = once.removeprefix(door_game.door.address)
    assert get(door_game, path + "x")[0] == 403 and get(door_game, path, host="evil.example:80")[0] == 403
    status, headers, page = get(door_game, path)
    assert status == 303 and headers["location"] == door_game.door.url and headers["referrer-policy"] == "no-referrer"
    assert get(door_game, path)[0] == 403, "who comes second learns nothing"
    late = Access("127.0.0.1", 80)
    late._until = 0.0
    assert not late.spend(late._once) and not late.spend("")


def closes(connection, seconds=20.0):
    """True if the other side closes within a time."""
    connection.settimeout(seconds)
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False


def test_connections_without_the_token_are_few_and_short():
    limits = ServerLimits(most_strangers=3, most_connections=2, stranger_seconds=1.0)
    with served(table_of("door", policy="random"), limits) as running:
        with running.wire() as wire:
            strangers = [socket.create_connection(running.place) for _ in range(8)]
            strangers[0].sendall(b"GET / HTTP/1.1\r\nHost:")  # begun, and never ended
            begun = time.monotonic()
            assert all(closes(one) for one in strangers) and time.monotonic() - begun < 15
            time.sleep(1.2)
            ask(wire, "pause", on=True)
            assert told(wire, lambda message: message.get("paused"))["seats"], "who is at the table stays"
        assert get(running, f"/?token={running.door.token}")[0] == 200
        assert get(running, "/")[1]["connection"] == "close"


UPGRADE = (
    "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    "Sec-WebSocket-Version: 13\r\n"
)
NO_BROWSER = {
    "a body": f"GET /wire HTTP/1.1\r\nHost: x\r\n{UPGRADE}Content-Length: 9\r\n\r\n",
    "pieces": f"GET /wire HTTP/1.1\r\nHost: x\r\n{UPGRADE}Transfer-Encoding: chunked\r\n\r\n",
    "many headers": f"GET /wire HTTP/1.1\r\nHost: x\r\n{UPGRADE}" + "X: 1\r\n" * 300 + "\r\n",
    "a long header": f"GET /wire HTTP/1.1\r\nHost: x\r\n{UPGRADE}X: {'x' * 20000}\r\n\r\n",
    "no HTTP": "\x16\x03\x01\x00\x00",
    "another protocol": "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
}


def test_a_wire_that_is_asked_for_as_no_browser_does_is_closed_and_not_told(capfd):
    with served(table_of("door", policy="random"), ServerLimits(stranger_seconds=1.0)) as running:
        asking = {name: socket.create_connection(running.place) for name in NO_BROWSER}
        for name, one in asking.items():
            one.sendall(NO_BROWSER[name].encode())
        for one in asking.values():
            one.settimeout(20)
            with contextlib.suppress(ConnectionResetError):
                while one.recv(4096):
                    pass
    assert capfd.readouterr().err == ""


def test_connections_without_the_token_make_room_for_one_that_has_it():
    with served(table_of("door", policy="random"), ServerLimits(most_strangers=3, stranger_seconds=60.0)) as running:
        strangers = [socket.create_connection(running.place) for _ in range(40)]
        assert all(closes(one) for one in strangers[:37])
        for _ in range(5):
            assert get(running, f"/?token={running.door.token}")[0] == 200
        with running.wire() as wire:
            strangers += [socket.create_connection(running.place) for _ in range(40)]
            ask(wire, "pause", on=True)
            assert told(wire, lambda message: message.get("paused"))["seats"], "who is at the table stays"
        for one in strangers:
            one.close()


def test_a_server_without_room_for_connections_says_so_once_and_goes_on(caplog):
    with (
        served(table_of("door", policy="random"), ServerLimits(stranger_seconds=60)) as running,
        running.wire() as wire,
    ):
        told(wire, lambda message: True)
        waiting = [socket.socket() for _ in range(8)]
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        used = max(int(name) for name in os.listdir("/proc/self/fd")) + 1
        resource.setrlimit(resource.RLIMIT_NOFILE, (used, before[1]))
        try:
            spare = []
            with pytest.raises(OSError, match="open files"):
                while True:
                    spare.append(os.open("/", os.O_RDONLY))
            for one in waiting:
                one.connect(running.place)
            time.sleep(2.5)  # two tries
            ask(wire, "pause", on=True)
            assert told(wire, lambda message: message.get("paused"))["seats"]
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
            for one in spare:
                os.close(one)
            for one in waiting:
                one.close()
        words = [record.message for record in caplog.records]
        assert sum("No further browser" in one for one in words) == 1
        assert not any("out of system resource" in one for one in words)
        time.sleep(1.2)
        assert get(running, f"/?token={running.door.token}")[0] == 200
