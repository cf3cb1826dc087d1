"""Writes what is seen, said and done at a table."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import IO, Any

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.files import disk_fault, write_atomically
from rllib_llm_comm.core.session_files import COLUMNS, DECISIONS, FORMAT, MOST_BYTES, SESSION, rows_of
from rllib_llm_comm.envs.interface import GameInfo
from rllib_llm_comm.play.table import Table, TableMoment


def require_new(folder: Path) -> None:
    """Refuses a place in which something is.

    Raises:
        UserError: If it is no folder, or is not empty.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        kind = "not empty" if folder.is_dir() else "no folder"
        raise UserError(f"`record` is {str(folder)!r}, which is {kind}; give a new folder for each session.")


class SessionRecorder:
    """Records a table's moments as they are played (`rllib_llm_comm.core.session_files`).

    Each line is on disk before the next moment. The Parquet file is written anew when an episode has ended. After a
    fault of the disk nothing more is recorded, so that no moment is missing between others.

    Args:
        folder: A new or empty folder.
        table: The table.
        consent: The text to which people agree; empty for none.
        stand_ins: What stands in for what the papers use (`evaluation.stand_ins`).

    Raises:
        UserError: If the folder cannot be made or is not empty.
    """

    def __init__(self, folder: Path, table: Table, consent: str = "", stand_ins: Sequence[str] = ()) -> None:
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            require_new(folder)
            folder.chmod(0o700)  # what people wrote is for this user alone, also in a folder that was there
            handle = os.open(folder / SESSION, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            self._file: IO[bytes] = os.fdopen(handle, "wb", buffering=0)
        except OSError as error:
            raise UserError(f"`record` {str(folder)!r} cannot be written ({error}); give another folder.") from error
        self._rows: list[dict[str, Any]] = []
        self._episode: dict[str, Any] = {}
        self._written = 0
        self._ended = ""
        game = table.env.unwrapped
        manifest = table.policy.manifest
        env = getattr(game, "env_id", None) or (manifest.env if manifest else "")
        self._write(
            {
                "kind": "session",
                "format": FORMAT,
                "env": env,
                "env_config": GameInfo(game).settings or (dict(manifest.env_config) if manifest else {}),
                "agents": table.agents,
                "holders": {agent: one.settings.name for agent, one in table.policy.seats.items()},
                "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
                "consent": consent,
                "stand_ins": list(stand_ins),
            }
        )
        table.watchers.append(self.note)

    def note(self, table: Table, moment: TableMoment) -> None:
        """Takes a moment; `Table.watchers` calls it.

        Raises:
            UserError: If it cannot be written, or the record is full.
        """
        if self._episode.get("episode") != table.episodes:
            self._episode = {"episode": table.episodes, "seed": table.seed, "moments": []}
            self._write({"kind": "episode", "episode": table.episodes, "seed": table.seed})
        told = {
            "episode": table.episodes,
            "game_step": moment.frame["game_step"],
            "agents": moment.frame["agents"],
            "people": {
                a: {"name": name, "spoke": a in moment.spoke, "forced": a in moment.forced}
                for a, name in moment.people.items()
            },
            "actions": {a: card["action"] for a, card in moment.frame["agents"].items() if not card["busy"]},
        }
        self._write({"kind": "moment", **told})
        self._episode["moments"].append(told)
        if table.over:
            episode = table.episode
            self._write(
                {
                    "kind": "end", "episode": table.episodes, "returns": episode.returns, "success": episode.success,
                    "metrics": episode.metrics,
                }
            )  # fmt: skip
            self._keep_rows(moment.rewards)

    def close(self) -> None:
        """Ends the record."""
        self._file.close()

    def _keep_rows(self, last: Mapping[str, float]) -> None:
        """Adds the episode's rows to the Parquet file; the last moment has no next one that tells its rewards."""
        import pyarrow as pa
        import pyarrow.parquet as parquet

        rows = rows_of(self._episode)
        for row in rows:
            if row["moment"] == len(self._episode["moments"]) - 1:
                row["reward"] = float(last.get(row["agent"], 0.0))
        self._rows += rows
        content = pa.BufferOutputStream()
        table = pa.Table.from_pylist([{name: row[name] for name in COLUMNS} for row in self._rows])
        parquet.write_table(table, content)
        try:
            write_atomically(self.folder / DECISIONS, content.getvalue().to_pybytes())
            (self.folder / DECISIONS).chmod(0o600)
        except OSError as error:
            raise self._end(disk_fault(error) or str(error)) from error

    def _write(self, told: Mapping[str, Any]) -> None:
        if self._ended:
            raise UserError(self._ended)
        line = (json.dumps(told, default=str) + "\n").encode()
        if self._written + len(line) > MOST_BYTES:
            raise self._end(f"{str(self.folder)!r} has {self._written} of at most {MOST_BYTES} bytes")
        try:
            left = memoryview(line)
            while left:
                left = left[self._file.write(left) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            with contextlib.suppress(OSError):
                self._file.truncate(self._written)  # the part of a line
            raise self._end(disk_fault(error) or str(error)) from error
        self._written += len(line)

    def _end(self, reason: str) -> UserError:
        """Ends the record before its time; the fault to raise, now and at every later moment."""
        self._ended = f"the session cannot be recorded any more: {reason}; start a new session to record what follows."
        return UserError(self._ended)
