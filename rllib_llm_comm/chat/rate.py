"""One rate for all clients of a chat model on a machine: threads, EnvRunners and trials stand in one line."""

from __future__ import annotations

import hashlib
import json
import logging
import threading
import time
from pathlib import Path

from rllib_llm_comm.core.files import claim_file, read_text, state_folder

logger = logging.getLogger(__name__)

_BEYOND = 60_000
"""Requests per minute of clients that keep no common line: nobody bills so many, and the line would hold them up."""


class SharedRate:
    """Spreads the starts of requests evenly over all clients with the same server, model and key on this machine.

    The start of the latest request stands in a file below `$XDG_STATE_HOME/rllib_llm_comm/rates`. Nothing is booked
    ahead, so a killed process holds nobody up. Where the file cannot be written each client keeps a rate of its own.

    Args:
        per_minute: Requests per minute; the slowest of clients with different ones is not held up by the others.
        account: Everything that tells whose limit it is: server, model, and name of the key's variable.
    """

    def __init__(self, per_minute: float, account: tuple[str | None, ...]) -> None:
        self._apart = 60.0 / per_minute
        name = hashlib.sha256(json.dumps(account).encode()).hexdigest()[:16]
        self._file: Path | None = None if per_minute > _BEYOND else state_folder() / "rates" / name
        self._lock, self._last = threading.Lock(), 0.0

    def wait(self) -> None:
        """Waits for the turn of a request; who comes later waits longer."""
        with self._lock:
            while (pause := self._begun()) > 0:
                time.sleep(pause)

    def _begun(self) -> float:
        """Begins a request, if it is its turn, and gives 0; else the seconds until then."""
        if self._file is not None:
            try:
                with claim_file(self._file.with_suffix(".lock")):
                    return self._next(self._file)
            except OSError as error:
                logger.warning("Requests of other processes are not counted in one rate (%s).", error)
                self._file = None
        return self._next(None)

    def _next(self, file: Path | None) -> float:
        now = time.time()
        last = self._last if file is None else _read(file)
        if last > now:  # the clock was set back; nobody is held up for longer than one request
            self._note(file, now)
            return self._apart
        pause = last + self._apart - now
        if pause <= 0:
            self._note(file, now)
        return max(0.0, pause)

    def _note(self, file: Path | None, start: float) -> None:
        self._last = start
        if file is not None:
            file.write_text(repr(start), encoding="utf-8")


def _read(file: Path) -> float:
    """The start of the latest request, in seconds since 1970; 0 if there was none or nobody can tell."""
    try:
        return float(read_text(file))
    except (OSError, ValueError):
        return 0.0
