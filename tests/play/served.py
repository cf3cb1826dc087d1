"""A table on a real server, in a thread."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

from websockets.sync.client import ClientConnection, connect

from rllib_llm_comm.play.room import Room, ServerLimits
from rllib_llm_comm.play.server import Access, listen, make_app, make_server
from rllib_llm_comm.play.table import Table


class Served:
    """A running server: its table, its room, its address and token, and its place as sockets want it."""

    def __init__(self, table: Table, room: Room, door: Access) -> None:
        self.table, self.room, self.door = table, room, door
        self.place = ("127.0.0.1", int(door.address.rsplit(":", 1)[1]))

    def wire(self, token: str = "", origin: str | None = "") -> ClientConnection:
        """A connection as of the page, unless another token or origin is given."""
        url = f"{self.door.address.replace('http', 'ws')}/wire?token={token or self.door.token}"
        origin = self.door.address if origin == "" else origin
        return connect(url, origin=origin, max_size=None, open_timeout=60)


@contextlib.contextmanager
def served(table: Table, limits: ServerLimits | None = None, **options: Any) -> Iterator[Served]:
    """Serves a table until the end of the `with`."""
    listening = listen("127.0.0.1", 0)
    with listening:
        room = Room(table, limits, **options)
        door = Access("127.0.0.1", listening.getsockname()[1])
        server = make_server(make_app(room, door), room.limits)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        last = time.monotonic() + 60
        while not server.started and time.monotonic() < last:
            time.sleep(0.01)
        try:
            yield Served(table, room, door)
        finally:
            server.should_exit = True
            thread.join(30)
        assert not thread.is_alive()


def told(wire: ClientConnection, until: Any, seconds: float = 60.0) -> dict[str, Any]:
    """The first message of the server for which a function is true."""
    last = time.monotonic() + seconds
    while time.monotonic() < last:
        message = json.loads(wire.recv(timeout=seconds))
        if until(message):
            return message
    raise AssertionError("the server did not say it")


def ask(wire: ClientConnection, do: str, **arguments: Any) -> None:
    """Sends a command."""
    wire.send(json.dumps({"do": do, **arguments}))


def sit(wire: ClientConnection, agent: str, **arguments: Any) -> dict[str, Any]:
    """Takes a seat; what the server tells who sits there."""
    ask(wire, "sit", agent=agent, **arguments)
    return told(wire, lambda message: message.get("you") == agent)
