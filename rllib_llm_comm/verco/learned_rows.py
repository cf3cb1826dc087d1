"""Recorded rows to learn from, read from Parquet through Ray Data."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from ray.data import DataContext
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.offline.offline_data import OfflineData

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.verco.teachers.label_store import RowForm, is_collection, other_form, read_learned

logger = logging.getLogger(__name__)

_ENV = "env"
_READ_ROWS = 4096

Encode = Callable[[Mapping[str, Sequence[Any]]], dict[str, Any]]
"""From columns to the arrays that are learned from."""


@dataclass
class RowSet:
    """Distinct rows, split by prompt.

    Attributes:
        train: Arrays of the rows to learn from.
        held_out: The same of rows whose prompts are never learned from.
        held_out_answers: For each held-out prompt its answers. A prompt is a text, or a tuple of several.
        env: The `env` column of the first row: where the rows come from.
        authors: Known names in the column that says whose answers they are. Other texts there are passed over.
    """

    train: dict[str, Any]
    held_out: dict[str, Any]
    held_out_answers: dict[Any, list[Any]]
    env: Mapping[str, Any]
    authors: list[str]

    def held_out_prompts(self) -> np.ndarray:
        """Per held-out row the number of its prompt (N,)."""
        return np.repeat(np.arange(len(self.held_out_answers)), [len(own) for own in self.held_out_answers.values()])


def check_rows(path: Path, form: RowForm) -> None:
    """Reads rows once, before anything is started for them.

    Args:
        path: A Parquet file, or a folder with some.
        form: The kind of rows.

    Raises:
        UserError: If there are none, or a file is damaged, has other columns, or an empty cell.
    """
    files = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
    if not files:
        raise UserError(
            f"`input_` is {str(path)!r}, which holds no Parquet file; give {form.name} as "
            f"`{form.collector}` writes them."
        )
    rows = 0
    for file in files:
        try:
            rows += read_learned(file, form).num_rows
        except ValueError as error:
            if other := other_form(file, form):
                raise UserError(
                    f"`input_` is {str(path)!r}, which holds {other.name} of `{other.collector}`, but {form.name} are "
                    f"learned from here; give those that `{form.collector}` writes."
                ) from error
            raise UserError(f"`input_`: {str(file)!r} {error}; {_remedy(path, file, form)}.") from error
    if not rows:
        raise UserError(f"`input_` is {str(path)!r}, whose files hold no {form.name}; collect some first.")


def _remedy(given: Path, file: Path, form: RowForm) -> str:
    if given.is_dir() and is_collection(file.parent):
        return (
            f"remove the whole folder {str(file.parent)!r} and collect the {form.name} again (the same command does, "
            "where a stage of its file collects them)"
        )
    return f"give Parquet files as `{form.collector}` writes them ({form.columns_in_words})"


class LearnedRows(OfflineData):
    """Reads a folder of rows once and keeps their token ids in memory.

    Rows are a few thousand short texts; streaming them anew in every iteration, as RLlib does with episodes, would
    take longer than to learn them.
    """

    form: ClassVar[RowForm]

    def __init__(self, config: AlgorithmConfig) -> None:
        """Opens the rows.

        Args:
            config: With `input_`.
        """
        # Ray Data would start 32 processes, each with its imports, to read the ends of a few small files.
        os.environ.setdefault("RAY_DATA_PARQUET_FOOTER_NUM_ACTORS", "1")
        super().__init__(config)

    def load(self, encode: Encode, held_out_share: float, known: Iterable[str]) -> RowSet:
        """Reads, de-duplicates, splits and encodes the rows.

        Args:
            encode: Encodes rows.
            held_out_share: Share of the distinct observations that is held out, chosen by a hash of their words, so
                that it is the same in every run and for every part of a growing data set.
            known: Names of authors that may be shown.

        Raises:
            UserError: If columns are missing or nothing is left to learn from.
        """
        form = self.form
        missing = set(form.learned) - set(self.data.schema().names)
        if missing:
            raise UserError(
                f"`input_` {self.config.input_!r} has no column {', '.join(sorted(missing))}; give Parquet files as "
                f"`{form.collector}` writes them ({form.columns_in_words})."
            )
        rows: set[tuple[Any, ...]] = set()
        env: Mapping[str, Any] = {}
        authors: set[str] = set()
        for batch in self._batches():
            authors.update(map(str, batch.get(form.author, ())))
            if not env and _ENV in batch and len(batch[_ENV]):
                env = _read_json(batch[_ENV][0])
            kinds = [int if form.counted and name == form.answer else str for name in form.learned]
            read = [map(kind, batch[name]) for kind, name in zip(kinds, form.learned, strict=True)]
            rows.update(zip(*read, strict=True))
        ordered = sorted(rows)  # files are read side by side and come in any order, but a seed fixes what is learned
        train = [row for row in ordered if not is_held_out(row[0], held_out_share)]
        held_out = [row for row in ordered if is_held_out(row[0], held_out_share)]
        if not train:
            raise UserError(
                f"`input_` {self.config.input_!r} has no rows to learn from ({len(held_out)} are held out); "
                f"collect more {form.name} or lower `held_out_share`."
            )
        answers: dict[Any, list[Any]] = {}
        for *prompt, answer in held_out:
            answers.setdefault(tuple(prompt) if len(prompt) > 1 else prompt[0], []).append(answer)
        logger.info("%d distinct %s, of which %d are held out", len(rows), form.name, len(held_out))

        def arrays(part: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
            return encode(dict(zip(form.learned, zip(*part, strict=True), strict=True))) if part else {}

        return RowSet(arrays(train), arrays(held_out), answers, env, sorted(authors & {*known}))

    def _batches(self) -> Iterator[dict[str, np.ndarray]]:
        # Reading a few rows is not worth a dozen lines on the terminal.
        DataContext.get_current().enable_progress_bars = False
        chatter = logging.getLogger("ray.data")
        level = chatter.level
        chatter.setLevel(logging.WARNING)
        try:
            yield from self.data.iter_batches(batch_size=_READ_ROWS, batch_format="numpy", prefetch_batches=1)
        finally:
            chatter.setLevel(level)


def is_held_out(prompt: str, share: float) -> bool:
    """True if an observation in words belongs to the held-out share, by its hash."""
    digest = hashlib.blake2b(prompt.encode("utf-8"), digest_size=8).digest()
    return int.from_bytes(digest, "big") < share * 2**64


def _read_json(text: Any) -> Mapping[str, Any]:
    try:
        values = json.loads(text)
    except (TypeError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}
