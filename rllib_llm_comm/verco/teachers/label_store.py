"""Label rows on disk: de-duplicated Parquet parts with a state, so that a killed collection goes on."""

from __future__ import annotations

import contextlib
import json
import os
import re
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, NonNegativeInt

from rllib_llm_comm.core.errors import UserError, one_line
from rllib_llm_comm.core.files import read_regular, write_atomically
from rllib_llm_comm.core.places import local_path

if TYPE_CHECKING:
    import pyarrow


@dataclass(frozen=True)
class RowForm:
    """The columns of labels of one kind.

    Attributes:
        name: What they are called in messages.
        collector: Name of the function and stage that collect them.
        prompt: Columns of texts that together make a prompt.
        answer: Column of what is learned behind it: a text, or a whole number if `counted`.
        author: Column that says who gave the answer.
        counted: True if the answer is a whole number.
    """

    name: str
    collector: str
    prompt: tuple[str, ...]
    answer: str
    author: str
    counted: bool = False

    @property
    def learned(self) -> tuple[str, ...]:
        """Columns that are learned from."""
        return (*self.prompt, self.answer)

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns."""
        return (*self.learned, "agent", "episode", "game_step", self.author, "env")

    @property
    def columns_in_words(self) -> str:
        """What a file must have."""
        if not self.counted:
            return f"texts in the columns {' and '.join(self.learned)}"
        return f"texts in the columns {', '.join(self.prompt)} and whole numbers in {self.answer}"


LABELS = RowForm("labels", "collect_labels", ("prompt",), "message", "teacher")
# `heard` is a JSON object of speaker to message, `candidates` a JSON list of the allowed phrases, `chosen` an index.
DEMONSTRATIONS = RowForm(
    "demonstrations", "collect_demonstrations", ("text", "subgoal", "heard", "candidates"), "chosen", "player", True
)
COLUMNS = LABELS.columns
# Readers of Parquet folders, such as `pandas.read_parquet(folder)`, leave out what begins with an underscore: a chat
# model's answers, and the state of the collection.
ANSWERS = "_chat_cache"
_STATE = "_collection.json"
_MOST_BYTES = 2**24  # of the state
_PART = re.compile(r"part-(\d{5,})\.parquet")


class _State(BaseModel):
    """Content of `_collection.json` that a collection needs to go on."""

    model_config = ConfigDict(strict=True)

    settings: dict[str, Any]
    parts: NonNegativeInt
    complete: bool
    state: dict[str, NonNegativeInt]


def read_learned(path: Path, form: RowForm) -> pyarrow.Table:
    """The columns that are learned from of a Parquet file with labels.

    Raises:
        ValueError: If the file is no such one; the text goes on after its name ("is damaged ...", "has ...").
    """
    import pyarrow as pa
    import pyarrow.parquet as parquet

    try:
        schema = parquet.read_schema(path)
        missing = set(form.learned) - set(schema.names)
        if missing:
            raise ValueError(f"has no column {', '.join(sorted(missing))}")
        table = parquet.read_table(path, columns=list(form.learned))
    except FileNotFoundError:
        raise ValueError("is missing") from None
    except (OSError, pa.ArrowException) as error:
        reason = one_line(str(error), 120)
        raise ValueError(f"is damaged or no Parquet file ({reason})") from error
    for name in form.learned:
        column = table.column(name)
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if form.counted and name == form.answer:
            if not pa.types.is_integer(kind):
                raise ValueError(f"has a column {name} of {kind} instead of whole numbers")
        elif not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            raise ValueError(f"has a column {name} of {kind} instead of texts")
        if column.null_count:
            raise ValueError(f"has a column {name} with {column.null_count} empty cells (nulls)")
    return table


def other_form(path: Path, form: RowForm) -> RowForm | None:
    """The kind of labels that a Parquet file holds if it is another one; `None` if it is this one, or none."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    try:
        names = set(parquet.read_schema(path).names)
    except (OSError, pa.ArrowException):
        return None
    fitting = [one for one in (form, LABELS, DEMONSTRATIONS) if names.issuperset(one.learned)]
    return fitting[0] if fitting and fitting[0] is not form else None


def is_collection(folder: Path) -> bool:
    """True if a folder was written by a `LabelStore`."""
    return (folder / _STATE).exists()


class LabelStore:
    """A folder of `part-NNNNN.parquet` and `_collection.json`, which readers of Parquet data sets open as it is.

    Attributes:
        form: The kind of labels.
        labels: Number of rows, buffered ones included.
        prompts: Number of distinct prompts.
        complete: Whether all labels that were wanted are there.
        state: The collector's own state between parts.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        settings: Mapping[str, Any],
        max_per_prompt: int,
        form: RowForm = LABELS,
    ) -> None:
        """Opens or makes the folder.

        Args:
            folder: The folder of the labels.
            settings: Those that determine the labels; a folder made with others is refused.
            max_per_prompt: Most different answers kept of one prompt.
            form: The kind of labels.

        Raises:
            UserError: If the folder cannot be made, holds labels of other settings, or holds what no collection left.
        """
        self.folder = local_path(folder, "output")
        self._make_folder()
        self._settings = json.loads(json.dumps(dict(settings), default=str))
        self.form, self._max = form, max_per_prompt
        self._rows: list[dict[str, Any]] = []
        self._lock = threading.RLock()
        self._seen: dict[tuple[str, ...], set[Any]] = defaultdict(set)
        self.labels, self.parts = 0, 0
        self.complete = False
        self.state: dict[str, Any] = {}
        self._resume()

    @property
    def buffered(self) -> int:
        """Number of rows that are not yet on disk."""
        return len(self._rows)

    @property
    def prompts(self) -> int:
        """Number of distinct prompts."""
        return len(self._seen)

    def _make_folder(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            reason = "a file is there" if isinstance(error, FileExistsError) else error.strerror
            raise UserError(f"`output` {str(self.folder)!r} cannot be made ({reason}); give another folder.") from error

    def _resume(self) -> None:
        """Takes over what an earlier call left; all is checked before anything is deleted."""
        parts = self._found_parts()
        saved = self._read_state()
        if saved is None:
            if any(number > 0 for number in parts):  # a kill before the first state leaves only the first part
                raise self._damaged(_STATE, "is missing beside the parts of a collection")
        else:
            if saved.settings != self._settings:
                raise UserError(
                    f"`output` {str(self.folder)!r} holds {self.form.name} that were collected with other settings; "
                    "give another folder or delete this one."
                )
            self.parts, self.complete, self.state = saved.parts, saved.complete, dict(saved.state)
        for number in range(self.parts):
            path = self._part(number)
            try:
                table = read_learned(path, self.form).to_pydict()
            except ValueError as error:
                raise self._damaged(path.name, str(error)) from error
            for *prompt, answer in zip(*(table[name] for name in self.form.learned), strict=True):
                self._seen[tuple(prompt)].add(answer)
                self.labels += 1
        half_made = [path for number, path in parts.items() if number >= self.parts]  # the state does not know them
        scratches = [path for name in ("part-", _STATE) for path in self.folder.glob(f".{name}*.tmp")]
        for path in (*half_made, *scratches):
            path.unlink()

    def _found_parts(self) -> dict[int, Path]:
        """Number -> file of the parts in the folder."""
        found = {}
        for path in sorted(self.folder.glob("*.parquet")):
            name = _PART.fullmatch(path.name)
            if name is None or path != self._part(int(name.group(1))) or not path.is_file():
                raise UserError(
                    f"`output` {str(self.folder)!r} holds {path.name!r}, which no collection wrote; move it away or "
                    "give another folder."
                )
            found[int(name.group(1))] = path
        return found

    def _read_state(self) -> _State | None:
        path = self.folder / _STATE
        try:
            return _State.model_validate_json(read_regular(path, _MOST_BYTES))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._damaged(path.name, f"cannot be read ({error.strerror})") from error
        except ValueError as error:
            raise self._damaged(path.name, "is damaged") from error

    def _damaged(self, name: str, fault: str) -> UserError:
        return UserError(
            f"`output` {str(self.folder)!r}: {name!r} {fault}; remove everything in this folder but {ANSWERS!r} (a "
            f"chat model's answers, if it is there) and collect the {self.form.name} again, or give another folder."
        )

    def _part(self, number: int) -> Path:
        return self.folder / f"part-{number:05d}.parquet"

    def add(self, row: Mapping[str, Any]) -> bool:
        """Takes a row with all columns of the form, unless its prompt has this answer or enough others already."""
        answer = row[self.form.answer]
        with self._lock:
            known = self._seen[tuple(row[name] for name in self.form.prompt)]
            if answer in known or len(known) >= self._max:
                return False
            known.add(answer)
            self._rows.append({name: row[name] for name in self.form.columns})
            self.labels += 1
            return True

    def flush(self, state: Mapping[str, Any], complete: bool = False) -> None:
        """Writes the buffered rows as a part and then the state; a kill in between loses only this part."""
        import pyarrow as pa
        import pyarrow.parquet as parquet

        with self._lock:
            if self._rows:
                content = pa.BufferOutputStream()
                parquet.write_table(pa.Table.from_pylist(self._rows), content)
                write_atomically(self._part(self.parts), content.getvalue().to_pybytes())
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
            state: The collector's state at the beginning of the `with`.
            seconds: Pause between two looks.

        Raises:
            OSError: At the end, if rows could not be written.
        """
        over = threading.Event()
        failures: list[OSError] = []

        def save() -> None:
            """Writes what is buffered every few seconds, until labelling is over or a write fails."""
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
