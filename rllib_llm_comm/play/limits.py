"""Bounds of what browsers may ask of a server."""

from __future__ import annotations

import time
from dataclasses import dataclass

SPEEDS = (0.1, 50.0)
MOST_SEED = 2**31 - 1


@dataclass(frozen=True)
class Limits:
    """Bounds of one server.

    Attributes:
        most_connections: Browsers at a time.
        most_bytes: Longest message of a browser, in bytes.
        commands_per_second: Commands of one browser, on average; twice as many may come at once.
        idle_minutes: Minutes without a command after which a seat is given back and the browser sent away.
        most_episodes: Episodes until the server has to be started anew.
        send_seconds: Longest time that a browser may take for one message before its seat is given back.
        most_strangers: Connections at a time that have not yet shown the token; the oldest makes room for a new one.
        stranger_seconds: Longest time of such a connection.
    """

    most_connections: int = 16
    most_bytes: int = 4096
    commands_per_second: float = 30.0
    idle_minutes: float = 60.0
    most_episodes: int = 1000
    send_seconds: float = 20.0
    most_strangers: int = 64
    stranger_seconds: float = 10.0


class Pace:
    """Counts the commands of one browser.

    Args:
        per_second: Commands per second, on average.
    """

    def __init__(self, per_second: float) -> None:
        self._rate, self._most = per_second, 2 * per_second
        self._left, self._then = self._most, time.monotonic()

    def allows(self) -> bool:
        """Takes one command; false if it comes too soon."""
        now = time.monotonic()
        self._left = min(self._most, self._left + (now - self._then) * self._rate)
        self._then = now
        if self._left < 1:
            return False
        self._left -= 1
        return True
