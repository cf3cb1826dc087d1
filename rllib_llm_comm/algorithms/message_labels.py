"""Label messages from Parquet through Ray Data."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from ray.data import DataContext
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.offline.offline_data import OfflineData
from ray.rllib.offline.offline_prelearner import OfflinePreLearner
from ray.rllib.utils.annotations import override

from rllib_llm_comm.agents.label_loss import encode_examples
from rllib_llm_comm.errors import UserError
from rllib_llm_comm.language.base_model import BaseModel
from rllib_llm_comm.language.message_words import limit_words
from rllib_llm_comm.language.prompts import PromptTemplates
from rllib_llm_comm.teachers.base import TEACHERS
from rllib_llm_comm.teachers.label_store import is_collection, read_texts

logger = logging.getLogger(__name__)

PROMPT = "prompt"
MESSAGE = "message"
ENV = "env"
TEACHER = "teacher"
_READ_ROWS = 4096


@dataclass
class LabelSet:
    """Distinct label rows, split by prompt.

    Attributes:
        train: `message_ids` and `message_labels` of the rows to learn from.
        held_out: The same of rows whose prompts are never learned from.
        held_out_answers: For each held-out prompt (an agent's observation in words) the teacher's messages.
        env: The `env` column of the first row: where the labels come from.
        teachers: Names of teachers in the `teacher` column: whose labels they are. Other texts there are passed over.
    """

    train: dict[str, np.ndarray]
    held_out: dict[str, np.ndarray]
    held_out_answers: dict[str, list[str]] = field(default_factory=dict)
    env: Mapping[str, Any] = field(default_factory=dict)
    teachers: list[str] = field(default_factory=list)


class MessagePreLearner(OfflinePreLearner):
    """Turns rows of `prompt` and `message` into token ids and labels.

    RLlib's own would build a whole module in every worker; this one needs the tokenizer only.

    Args:
        base: The base model whose tokenizer is used.
        max_tokens: Longest allowed row.
        max_words: Messages are cut to so many words.
        templates: The prompts behind which messages stand.
    """

    def __init__(self, *, base: BaseModel, max_tokens: int, max_words: int, templates: PromptTemplates) -> None:
        self._base = base
        self._max_tokens = max_tokens
        self._max_words = max_words
        self._templates = templates

    @override(OfflinePreLearner)
    def __call__(self, batch: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """The arrays of `encode_examples`."""
        return encode_examples(
            self._base,
            [self._templates.message(str(text)) for text in batch[PROMPT]],
            [limit_words(str(message), self._max_words) for message in batch[MESSAGE]],
            self._max_tokens,
        )


def check_labels(path: Path) -> None:
    """Reads labels once, before anything is started for them.

    Args:
        path: A Parquet file, or a folder with some.

    Raises:
        UserError: If there are none, or a file is damaged, has other columns, or no text in a row.
    """
    files = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
    if not files:
        raise UserError(
            f"`input_` is {str(path)!r}, which holds no Parquet file; give labels as `collect_labels` writes them."
        )
    rows = 0
    for file in files:
        try:
            rows += read_texts(file).num_rows
        except ValueError as error:
            raise UserError(f"`input_`: {str(file)!r} {error}; {_remedy(path, file)}.") from error
    if not rows:
        raise UserError(f"`input_` is {str(path)!r}, whose files hold no label; collect some first.")


def _remedy(given: Path, file: Path) -> str:
    if given.is_dir() and is_collection(file.parent):
        return (
            f"remove the whole folder {str(file.parent)!r} and collect the labels again (the same command does, where "
            "a stage of its file collects them)"
        )
    return "give Parquet files as `collect_labels` writes them (texts in the columns prompt and message)"


class MessageLabels(OfflineData):
    """Reads the label folder once and keeps its token ids in memory.

    Labels are a few thousand short texts; streaming them anew in every iteration, as RLlib does with
    episodes, would take longer than to learn them.
    """

    def __init__(self, config: AlgorithmConfig) -> None:
        """Opens the labels.

        Args:
            config: With `input_`.
        """
        # Ray Data would start 32 processes, each with its imports, to read the ends of a few small files.
        os.environ.setdefault("RAY_DATA_PARQUET_FOOTER_NUM_ACTORS", "1")
        super().__init__(config)

    def load(self, prelearner: MessagePreLearner, held_out_share: float) -> LabelSet:
        """Reads, de-duplicates, splits and encodes the labels.

        Args:
            prelearner: Encodes rows.
            held_out_share: Share of the distinct prompts that is held out, chosen by a hash of the prompt, so
                that it is the same in every run and for every part of a growing data set.

        Raises:
            UserError: If columns are missing or nothing is left to learn from.
        """
        missing = {PROMPT, MESSAGE} - set(self.data.schema().names)
        if missing:
            raise UserError(
                f"`input_` {self.config.input_!r} has no column {', '.join(sorted(missing))}; give Parquet "
                "files as `collect_labels` writes them (columns prompt and message)."
            )
        pairs: set[tuple[str, str]] = set()
        env: Mapping[str, Any] = {}
        teachers: set[str] = set()
        for batch in self._batches():
            teachers.update(map(str, batch.get(TEACHER, ())))
            if not env and ENV in batch and len(batch[ENV]):
                env = _read_json(batch[ENV][0])
            pairs.update(zip(map(str, batch[PROMPT]), map(str, batch[MESSAGE]), strict=True))
        ordered = sorted(pairs)  # files are read side by side and come in any order, but a seed fixes what is learned
        train = [pair for pair in ordered if not is_held_out(pair[0], held_out_share)]
        held_out = [pair for pair in ordered if is_held_out(pair[0], held_out_share)]
        if not train:
            raise UserError(
                f"`input_` {self.config.input_!r} has no rows to learn from ({len(held_out)} are held out); "
                "collect more labels or lower `held_out_share`."
            )
        answers: dict[str, list[str]] = {}
        for prompt, message in held_out:
            answers.setdefault(prompt, []).append(message)
        logger.info("%d distinct labels, of which %d are held out", len(pairs), len(held_out))
        known = sorted(teachers & {*TEACHERS})
        return LabelSet(_encode(prelearner, train), _encode(prelearner, held_out), answers, env, known)

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
    """True if a prompt belongs to the held-out share, by its hash."""
    digest = hashlib.blake2b(prompt.encode("utf-8"), digest_size=8).digest()
    return int.from_bytes(digest, "big") < share * 2**64


def _encode(prelearner: MessagePreLearner, pairs: Iterable[tuple[str, str]]) -> dict[str, np.ndarray]:
    rows = list(pairs)
    return prelearner({PROMPT: [prompt for prompt, _ in rows], MESSAGE: [message for _, message in rows]})


def _read_json(text: Any) -> Mapping[str, Any]:
    try:
        values = json.loads(text)
    except (TypeError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}
