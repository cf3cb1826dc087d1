"""The tests' chat server as a process of its own, which can be killed and started again at the same address."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import zlib
from pathlib import Path

from chat_server import ChatServer

# Serves as labels of two cooks and, by its last line, as the choice of a candidate: always the first would be to wait.
ANSWER = "alice: please bring the tomato\nbob: i chop the tomato now\n{choice}"


class ChatProcess:
    """A chat server that answers every question with `ANSWER`.

    Attributes:
        url: The address up to `/v1`; the same after a new start.
    """

    def __init__(self, folder: Path, delay: float = 0.02) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}/v1"
        self._log, self._delay = folder / "requests.jsonl", delay
        self._log.touch()
        self.start()

    def start(self) -> None:
        """Starts it and waits until it listens."""
        command = [sys.executable, str(Path(__file__)), str(self._port), str(self._log), str(self._delay)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None and self._process.stdout.readline() == "ready\n"

    def kill(self) -> None:
        """Ends it as `kill -9` does."""
        self._process.kill()
        self._process.wait()

    @property
    def questions(self) -> list[str]:
        """The words of all requests that have come in, those before a kill included."""
        lines = self._log.read_text().splitlines(keepends=True)
        return [json.loads(line)["question"] for line in lines if line.endswith("\n")]

    @property
    def times(self) -> list[float]:
        """When they came in, in seconds of the clock that never goes back."""
        return [
            json.loads(line)["at"] for line in self._log.read_text().splitlines(keepends=True) if line.endswith("\n")
        ]


def main(port: str, log: str, delay: str) -> None:
    with Path(log).open("a", buffering=1) as noted:

        def answer(question: str) -> str:
            noted.write(json.dumps({"question": question, "at": time.monotonic()}) + "\n")
            time.sleep(float(delay))
            return ANSWER.format(choice=1 + zlib.crc32(question.encode()) % 5)

        with ChatServer(answer, port=int(port)):
            print("ready", flush=True)
            time.sleep(3600)


if __name__ == "__main__":
    main(*sys.argv[1:])
