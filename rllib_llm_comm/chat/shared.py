"""What clients share, also those of other processes: answers already paid for, their cost, and one rate.

Files appear at once or not at all, and a claim (a lock that ends with its process) keeps two clients from paying for
the same answer or from spending the same money.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import math
import os
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from rllib_llm_comm.chat.chat_model import ChatAnswer, cut_at
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.files import claim_file, read_text, state_folder, write_atomically
from rllib_llm_comm.core.places import local_path


def request_key(request: Mapping[str, Any]) -> str:
    """The sha256 of a request's canonical JSON: the same model, settings and words give the same key."""
    return hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Writes a JSON file at once or not at all."""
    write_atomically(path, json.dumps(document))


def append_line(path: Path, document: Mapping[str, Any], *, only_first: bool = False) -> None:
    """Appends a line of JSON to a file to which other processes append, too.

    Args:
        path: The file; made if there is none.
        document: The line.
        only_first: Whether to write it only into an empty file.
    """
    with claim_file(path.with_name(f".{path.name}.lock")), path.open("a+b") as file:
        begun = _mend_end(file)
        if not (only_first and begun):
            file.write(json.dumps(document).encode() + b"\n")


def _mend_end(file: IO[bytes]) -> bool:
    """Takes away a last line that a killed process left without its end; returns whether anything is there.

    Whoever appends holds the lock and ends its line, so a line without an end is nobody's any more.
    """
    size = file.seek(0, os.SEEK_END)
    if size == 0:
        return False
    file.seek(size - 1)
    if file.read(1) == b"\n":
        return True
    file.seek(0)
    head, end, last = file.read().rpartition(b"\n")
    if is_document(last):  # written by hand
        file.write(b"\n")
        return True
    file.truncate(len(head + end))
    return bool(head)


def is_document(line: bytes) -> bool:
    """True if a line is whole JSON.

    Args:
        line: The line.
    """
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


class AnswerCache:
    """One JSON file per request in `folder/answers`; without a folder nothing is kept."""

    def __init__(self, folder: str | os.PathLike[str] | None) -> None:
        """Names the folder; it is made with the first answer."""
        self._folder = local_path(folder, "cache_dir") / "answers" if folder is not None else None

    def get(self, key: str) -> ChatAnswer | None:
        """The answer, or `None`; a damaged entry is as good as none."""
        if self._folder is None:
            return None
        try:
            found = json.loads(read_text(self._folder / f"{key}.json"))
        except (OSError, ValueError, RecursionError):
            return None
        answer = found.get("answer") if isinstance(found, dict) and found.get("key") == key else None
        return ChatAnswer(answer, int(found.get("cut_at", 0))) if isinstance(answer, str) else None

    def put(self, key: str, answer: str) -> None:
        """Keeps an answer, and whether it was cut off."""
        if self._folder is not None:
            cut = {"cut_at": cut_at(answer)} if cut_at(answer) else {}
            write_json(self._folder / f"{key}.json", {"key": key, "answer": answer, **cut})

    @contextlib.contextmanager
    def claim(self, key: str) -> Iterator[None]:
        """Holds a question while it is asked: who asks the same elsewhere waits, and then finds the answer.

        Args:
            key: The question's.
        """
        if self._folder is None:
            yield
            return
        # 256 files for all questions: a lock for each would leave as many empty files as there are answers.
        with claim_file(self._folder.with_name("locks") / f"{key[:2]}.lock"):
            yield


class SpendingLedger:
    """Money spent, kept in `folder/spending`, one file per client: several clients never overwrite each other.

    Without a folder only this client's own spending is known.
    """

    def __init__(self, folder: str | os.PathLike[str] | None) -> None:
        """Begins an entry of its own beside those of earlier clients."""
        self._folder = local_path(folder, "cache_dir") / "spending" if folder is not None else None
        self._file = f"{uuid.uuid4().hex}.json"
        self._own = 0.0

    @property
    def spent(self) -> float:
        """Money spent by all clients of the folder.

        Raises:
            UserError: If an entry is unreadable: then nobody knows what was spent.
        """
        total = self._own
        if self._folder is None or not self._folder.is_dir():
            return total
        for path in self._folder.glob("*.json"):
            if path.name == self._file:
                continue
            try:
                cost = float(json.loads(read_text(path))["cost"])
                if not math.isfinite(cost):
                    raise ValueError(cost)
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise UserError(
                    f"`cache_dir` holds the unreadable record of spent money {str(path)!r}; "
                    'correct it to {"cost": <money>} or delete it.'
                ) from error
            total += cost
        return total

    @contextlib.contextmanager
    def claim(self) -> Iterator[None]:
        """Holds the books of the folder between looking and booking."""
        if self._folder is None:
            yield
            return
        with claim_file(self._folder.with_name("locks") / "spending.lock"):
            yield

    def add(self, cost: float) -> None:
        """Books money; a negative sum takes a reservation back."""
        if cost == 0:
            return
        self._own = max(0.0, self._own + cost)
        if self._folder is not None:
            write_json(self._folder / self._file, {"cost": self._own})


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
