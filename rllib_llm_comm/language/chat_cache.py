"""What a chat client keeps on disk: answers already paid for, and what they cost."""

from __future__ import annotations

import hashlib
import json
import math
import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rllib_llm_comm.errors import UserError


def request_key(request: Mapping[str, Any]) -> str:
    """The sha256 of a request's canonical JSON: the same model, settings and words give the same key."""
    return hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Writes a JSON file at once or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp")  # other processes may write the same file
    try:
        scratch.write_text(json.dumps(document), encoding="utf-8")
        os.replace(scratch, path)
    finally:
        scratch.unlink(missing_ok=True)


class AnswerCache:
    """One JSON file per request in `folder/answers`; without a folder nothing is kept."""

    def __init__(self, folder: str | os.PathLike[str] | None) -> None:
        """Names the folder; it is made with the first answer."""
        self._folder = Path(folder) / "answers" if folder is not None else None

    def get(self, key: str) -> str | None:
        """The answer, or `None`; a damaged entry is as good as none."""
        if self._folder is None:
            return None
        try:
            found = json.loads((self._folder / f"{key}.json").read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return None
        answer = found.get("answer") if isinstance(found, dict) and found.get("key") == key else None
        return answer if isinstance(answer, str) else None

    def put(self, key: str, answer: str) -> None:
        """Keeps an answer."""
        if self._folder is not None:
            write_json(self._folder / f"{key}.json", {"key": key, "answer": answer})


class SpendingLedger:
    """Money spent, kept in `folder/spending`, one file per client: several clients never overwrite each other.

    Without a folder only this client's own spending is known.
    """

    def __init__(self, folder: str | os.PathLike[str] | None) -> None:
        """Begins an entry of its own beside those of earlier clients."""
        self._folder = Path(folder) / "spending" if folder is not None else None
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
                cost = float(json.loads(path.read_text(encoding="utf-8"))["cost"])
                if not math.isfinite(cost):
                    raise ValueError(cost)
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise UserError(
                    f"`cache_dir` holds the unreadable record of spent money {str(path)!r}; "
                    'correct it to {"cost": <money>} or delete it.'
                ) from error
            total += cost
        return total

    def add(self, cost: float) -> None:
        """Books money; a negative sum takes a reservation back."""
        if cost == 0:
            return
        self._own = max(0.0, self._own + cost)
        if self._folder is not None:
            write_json(self._folder / self._file, {"cost": self._own})
