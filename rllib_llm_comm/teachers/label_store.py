"""Label rows on disk: de-duplicated Parquet parts with a state, so that a killed collection goes on."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rllib_llm_comm.errors import UserError
from rllib_llm_comm.files import write_atomically

COLUMNS = ("prompt", "message", "agent", "episode", "game_step", "teacher", "env")
_STATE = "collection.json"


class LabelStore:
    """A folder of `part-NNNNN.parquet` and `collection.json`.

    Attributes:
        labels: Number of rows, buffered ones included.
        prompts: Number of distinct prompts.
        complete: Whether all labels that were wanted are there.
        state: What the collector keeps between parts.
    """

    def __init__(self, folder: str | os.PathLike[str], settings: Mapping[str, Any], max_per_prompt: int) -> None:
        """Opens or makes the folder.

        Args:
            folder: Where the labels lie.
            settings: What determines the labels; a folder made with others is refused.
            max_per_prompt: Most different messages kept of one prompt.

        Raises:
            UserError: If the folder holds labels of other settings, or is unreadable.
        """
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._settings = json.loads(json.dumps(dict(settings), default=str))
        self._max = max_per_prompt
        self._rows: list[dict[str, Any]] = []
        self._lock = threading.RLock()
        self._seen: dict[str, set[str]] = defaultdict(set)
        self.labels, self.parts = 0, 0
        self.complete = False
        self.state: dict[str, Any] = {}
        if (self.folder / _STATE).is_file():
            self._resume()

    @property
    def buffered(self) -> int:
        """Number of rows that are not yet on disk."""
        return len(self._rows)

    @property
    def prompts(self) -> int:
        """Number of distinct prompts."""
        return len(self._seen)

    def _resume(self) -> None:
        import pyarrow.parquet as parquet

        path = self.folder / _STATE
        try:
            saved = json.loads(path.read_text(encoding="utf-8"))
            other = saved["settings"] != self._settings
            self.parts, self.complete, self.state = saved["parts"], saved["complete"], saved["state"]
        except (ValueError, KeyError) as error:
            raise UserError(f"`output` {str(self.folder)!r} has an unreadable {_STATE}; delete the folder.") from error
        if other:
            raise UserError(
                f"`output` {str(self.folder)!r} holds labels that were collected with other settings; "
                "give another folder or delete this one."
            )
        for part in self.folder.glob("part-*.parquet"):  # a part that the state does not know is half-made
            if int(part.stem.removeprefix("part-")) >= self.parts:
                part.unlink()
        for number in range(self.parts):
            table = parquet.read_table(self._part(number), columns=["prompt", "message"]).to_pydict()
            for prompt, message in zip(table["prompt"], table["message"], strict=True):
                self._seen[prompt].add(message)
                self.labels += 1

    def _part(self, number: int) -> Path:
        return self.folder / f"part-{number:05d}.parquet"

    def add(self, row: Mapping[str, Any]) -> bool:
        """Takes a row with all `COLUMNS`, unless its prompt has this message or enough others already."""
        with self._lock:
            known = self._seen[row["prompt"]]
            if row["message"] in known or len(known) >= self._max:
                return False
            known.add(row["message"])
            self._rows.append({name: row[name] for name in COLUMNS})
            self.labels += 1
            return True

    def flush(self, state: Mapping[str, Any], complete: bool = False) -> None:
        """Writes the buffered rows as a part and then the state; a kill in between loses only this part."""
        import pyarrow as pa
        import pyarrow.parquet as parquet

        with self._lock:
            if self._rows:
                part = pa.BufferOutputStream()
                parquet.write_table(pa.Table.from_pylist(self._rows), part)
                write_atomically(self._part(self.parts), part.getvalue().to_pybytes())
                self.parts += 1
                self._rows = []
            self.complete, self.state = complete, dict(state)
            document = {
                "settings": self._settings,
                "parts": self.parts,
                "labels": self.labels,
                "prompts": self.prompts,
                "complete": complete,
                "state": self.state,
            }
            write_atomically(self.folder / _STATE, json.dumps(document, indent=2) + "\n")

    @contextlib.contextmanager
    def saving(self, state: Mapping[str, Any], seconds: float) -> Iterator[None]:
        """Writes the buffered rows again and again inside a `with`, also while a teacher keeps everybody waiting.

        Args:
            state: What the collector needs to go on from where the `with` began.
            seconds: Pause between two looks.

        Raises:
            OSError: At the end, if rows could not be written.
        """
        over = threading.Event()
        failures: list[OSError] = []

        def save() -> None:
            while not over.wait(seconds):
                try:
                    if self.buffered:
                        self.flush(state)
                except OSError as error:
                    failures.append(error)
                    return

        saver = threading.Thread(target=save, name="labels", daemon=True)
        saver.start()
        try:
            yield
        finally:
            over.set()
            saver.join()
        if failures:
            raise failures[0]
