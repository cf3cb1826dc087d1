"""A server that sends a byte now and then: no single read takes long, and yet the time-out holds."""

import contextlib
import socket
import threading
import time

import pytest

from rllib_llm_comm.chat.chat_model import ChatError
from rllib_llm_comm.chat.client import ChatClient
from rllib_llm_comm.chat.message_server import MessageServer
from rllib_llm_comm.core.errors import UserError

HEAD = b"HTTP/1.1 200 OK\r\n"


@contextlib.contextmanager
def trickling(begin, drop):
    """A server that sends `begin` and then `drop` every tenth of a second."""
    ended = threading.Event()
    listening = socket.create_server(("127.0.0.1", 0))

    def answer(connection):
        with contextlib.suppress(OSError), connection:
            connection.recv(65536)
            connection.sendall(begin)
            while not ended.wait(0.1):
                connection.sendall(drop)

    def accept():
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=answer, args=(listening.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
    finally:
        ended.set()
        listening.close()


@pytest.mark.parametrize(
    ("begin", "drop"),
    [
        (HEAD, b"X-More: b\r\n"),
        (HEAD + b"Content-Type: application/json\r\nContent-Length: 100000\r\n\r\n", b" "),
    ],
    ids=["headers", "body"],
)
def test_the_time_out_holds(begin, drop, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    with trickling(begin, drop) as url:
        client = ChatClient("m", url, timeout=1.0, max_retries=0)
        before = time.monotonic()
        with pytest.raises(ChatError, match="time-out"):
            client.complete("hi")
        assert time.monotonic() - before < 6.0


def test_a_message_server_that_trickles_counts_as_lost():
    begin = HEAD + b"Content-Type: application/json\r\nContent-Length: 100000\r\n\r\n"
    with trickling(begin, b" ") as url:
        begun = time.monotonic()
        with pytest.raises(UserError, match="`message_server` at"):
            MessageServer(url, timeout=0.5, max_retries=0).write(["abc"])
    assert time.monotonic() - begun < 5
