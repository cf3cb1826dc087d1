"""Disk cache of a chat client: answers already paid for, and their cost.

Several processes may use one folder: files appear at once or not at all, and a claim (a lock that ends with its
process) keeps two of them from paying for the same answer or from spending the same money.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from rllib_llm_comm.chat.chat_model import ChatAnswer, cut_at
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.files import claim_file, read_text, write_atomically
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
