"""Cassettes: sessions with a chat model, recorded in a file and played back without network.

A cassette is a JSON Lines file. Its first line tells what it is and how it was made; each further one is a question
(`system`, `prompt`) with its `answer` and the `model` that gave it, and `cut_at`, tokens, if it was cut off. The last
line of a question counts. The first line may name further recordings in the same folder (`with`), which belong to it.
A last line without its end, as a killed process leaves it, counts for nothing. The first line may also name parts of
questions that decide nothing about its answers (`without`, names of `PARTS`): a question that is not recorded is then
looked up without them. A file that ends in `.xz` or `.gz` is packed; it can only be played back.
"""

from __future__ import annotations

import gzip
import json
import logging
import lzma
import os
import re
import zlib
from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timezone
from functools import lru_cache
from pathlib import Path
from typing import Any

from rllib_llm_comm.chat.chat_model import (
    ChatAnswer,
    ChatCounters,
    ChatModel,
    QuestionLocks,
    cut_at,
    cut_too_early,
    others_go_on,
)
from rllib_llm_comm.chat.client import ChatClient, append_line, is_document
from rllib_llm_comm.chat.local_chat import make_local_chat
from rllib_llm_comm.chat.settings import AskingChat
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.files import write_atomically
from rllib_llm_comm.core.places import local_path

logger = logging.getLogger(__name__)

FORMAT = 1
PARTS = {
    "examples": re.compile(r"\nAn example\.\n(?:[^\n]+\n)+"),
    "earlier": re.compile(r"\nThis was tried earlier in this game and failed;[^\n]*\n(?:- goal: [^\n]*\n)+"),
}
"""Parts of questions that an author may have no use for: worked examples, and failures from earlier situations. Whoever
writes answers by hand, for a situation, is such an author."""
PACKED: Mapping[str, Any] = {".xz": lzma, ".gz": gzip}
"""Ending of a packed recording -> the module that opens it."""
_UNREADABLE = OSError, EOFError, lzma.LZMAError, zlib.error, ValueError, TypeError, RecursionError
_SHOWN = 80
_FORM = re.compile(r"\n\nAnswer with one JSON object and nothing else\.[^\n]*\n\{.*\Z", re.DOTALL)
_LONGEST_HEADER = 2**16

Question = tuple[str, str]


class MissingAnswerError(UserError):
    """A cassette has no answer to a question, and there is no client to ask."""


class Cassette(ChatModel):
    """Plays back what a chat model answered; with a client, asks it what is not recorded and records that.

    The same question always gets the same answer, as from a client with a cache. Several processes may record on one
    cassette: each line is written at once.

    Attributes:
        path: The file.
        counters: Counts of the questions to this cassette; answers played back count as `cached`.
        client: The client for questions that are not recorded, or `None`; it decides all else that a chat model tells.
        header: The first line: `model`, `made` (the day) and `note` tell whose answers these are.
        played: Counts of the answers played back, by the `model` of their lines.
        last: The `model` of the answer given last.
    """

    def __init__(self, path: str | os.PathLike[str], client: ChatModel | None = None, note: str = "") -> None:
        """Reads a cassette, or begins one.

        Args:
            path: The file; without a client it must exist.
            client: The client for questions that are not recorded; `None` never asks anybody.
            note: Note on the making of a new cassette, for whoever reads it later.

        Raises:
            UserError: If the file is missing or is no cassette, or is packed and there is a client.
        """
        if client is not None and str(path).endswith(tuple(PACKED)):
            raise UserError(f"The cassette {str(path)!r} is packed and cannot grow; unpack it to record.")
        self.path, self.client = local_path(path, "cassette"), client
        self.counters = ChatCounters() if client is None else client.counters
        self._follow_client()
        self.header: dict[str, Any] = {}
        self.played: Counter[str] = Counter()
        self.last = ""
        self._answers: dict[Question, ChatAnswer] = {}
        self._authors: dict[Question, str] = {}
        self._questions = QuestionLocks()
        if self.path.exists() and (client is None or not self._torn_at_once()):
            self._read()
        elif client is None:
            raise UserError(
                f"The cassette {str(self.path)!r} does not exist; give a chat `model` to record it or correct it."
            )
        else:
            self._begin(note)

    def __len__(self) -> int:
        """Number of recorded questions."""
        return len(self._answers)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_questions"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._questions = QuestionLocks()
        self._follow_client()

    def _follow_client(self) -> None:
        client = self.client
        if client is not None:
            self.model, self.max_tokens = client.model, client.max_tokens
            self.max_concurrent, self.ask_ahead = client.max_concurrent, client.ask_ahead

    def __bool__(self) -> bool:
        """True for a new one, too: a chat model without answers so far is one."""
        return True

    def complete(self, prompt: str, system: str = "") -> str:
        """The recorded answer, or that of the client.

        Raises:
            MissingAnswerError: If it is not recorded and there is no client.
            ChatError: From the client.
        """
        answer = self.recall(prompt, system)
        if answer is not None:
            return answer
        if self.client is not None:
            return self._asked(self.client, prompt, system)
        raise MissingAnswerError(
            f"The cassette {str(self.path)!r} has no answer to the question {_shown(prompt)!r}; either it was recorded "
            "with other settings (such as kitchen, horizon, seed, examples, patience or reflections; the `note` in its "
            "first line tells which), so give those, or the questions have changed since it was recorded, so record it "
            "anew by giving a chat `model`."
        )

    def _asked(self, client: ChatModel, prompt: str, system: str) -> str:
        with others_go_on(), self._questions.hold((system, prompt)):
            answer = self.recall(prompt, system)  # another thread may just have asked it
            if answer is None:
                answer = client.complete(prompt, system)
                self._record(prompt, system, answer)
        return answer

    def recall(self, prompt: str, system: str = "") -> str | None:
        """The recorded answer, or `None`; also for one that was cut off where the client may now give a longer one."""
        if (system, prompt) not in self._answers:
            for part in self.header.get("without", ()):
                prompt = PARTS[part].sub("", prompt)
        answer = self._answers.get((system, prompt))
        if answer is None or (self.client is not None and cut_too_early(answer, self.max_tokens)):
            return None
        self.counters.count(cached=1)
        self.last = self._authors.get((system, prompt), "")
        self.played[self.last] += 1
        return answer

    def remember(self, prompt: str, answer: str, system: str = "") -> None:
        """Records an answer that came in another way, if this cassette records at all."""
        if self.client is not None:
            self.client.remember(prompt, answer, system)
            self._record(prompt, system, answer)

    def _record(self, prompt: str, system: str, answer: str) -> None:
        self._answers[system, prompt] = ChatAnswer(answer, cut_at(answer))
        self._authors[system, prompt] = self.last = self.model
        line = {"model": self.model, "system": system, "prompt": prompt, "answer": answer}
        append_line(self.path, {**line, "cut_at": cut_at(answer)} if cut_at(answer) else line)

    def _begin(self, note: str) -> None:
        made = datetime.now(timezone.utc).date().isoformat()
        header = {"cassette": FORMAT, "model": self.model, "made": made, "note": note}
        append_line(self.path, header, only_first=True)
        self.header = header

    def _torn_at_once(self) -> bool:
        """True if the process that began this cassette was killed within the first line."""
        with self.path.open("rb") as file:
            first = file.readline()
        return b'{"cassette": '.startswith(first[:13]) and not first.endswith(b"\n") and not is_document(first)

    def _read(self) -> None:
        try:
            status = self.path.stat()
            state = (status.st_ino, status.st_ctime_ns, status.st_mtime_ns, status.st_size)
            header, answers, authors = _content(self.path.absolute(), state)
            for other in header.get("with", []):  # recordings beside this one, whose answers are its own, too
                if Path(other).name != other or other == self.path.name:
                    raise ValueError(f"{other!r} is no name of another file beside it")
                own = Cassette(self.path.with_name(other))
                self._answers |= own._answers
                self._authors |= own._authors
            self.header = dict(header)
            self._answers |= answers
            self._authors |= authors
        except UserError:  # of a recording beside this one
            raise
        except (*_UNREADABLE, KeyError) as error:
            raise UserError(
                f"{str(self.path)!r} is no cassette ({type(error).__name__}: {error}); correct or record it anew."
            ) from error


@lru_cache(maxsize=8)  # the checks of a file with several stages read the same recordings again and again
def _content(
    path: Path, state: tuple[int, ...]
) -> tuple[dict[str, Any], dict[Question, ChatAnswer], dict[Question, str]]:
    """Header, answers and their authors of a recording, of a state of its file."""
    content = path.read_bytes()
    parts = (PACKED[path.suffix].decompress(content) if path.suffix in PACKED else content).split(b"\n")
    if len(parts) > 1 and parts[-1] and not is_document(parts[-1]):
        logger.warning("The last line of the cassette %s has no end; it is left out.", path)
        parts.pop()
    lines = [json.loads(part) for part in parts if part.strip()]
    if not lines or lines[0]["cassette"] != FORMAT:
        raise ValueError(f"its first line is not that of a cassette of format {FORMAT}")
    if unknown := [part for part in lines[0].get("without", []) if part not in PARTS]:
        raise ValueError(f"{unknown[0]!r} is no part of a question; known are {', '.join(PARTS)}")
    answers, authors = {}, {}
    for line in lines[1:]:
        question, answer = (line["system"], line["prompt"]), line["answer"]
        if not all(isinstance(text, str) for text in (*question, answer)):
            raise TypeError("a question or an answer is no text")
        answers[question] = ChatAnswer(answer, int(line.get("cut_at", 0)))
        authors[question] = str(line.get("model", ""))
    return lines[0], answers, authors


def put_in_order(path: Path) -> None:
    """Puts the lines of a recording that nobody continues in the order of their questions' words.

    They were written in the order in which answers came, which several questions under way decide by chance. Of lines
    with one question the last one still counts.

    Args:
        path: The recording; nothing is done where there is none.
    """
    if not path.is_file() or not path.stat().st_size:
        return
    first, *lines = [line for line in path.read_bytes().split(b"\n") if is_document(line)]

    def question(line: bytes) -> Question:
        told = json.loads(line)
        return told["system"], told["prompt"]

    write_atomically(path, b"\n".join([first, *sorted(lines, key=question)]) + b"\n")


def describe_recording(path: str | os.PathLike[str]) -> str:
    """File, author and day of a cassette, from its first line; the answers are not read.

    Raises:
        UserError: If it is no cassette.
    """
    place = Path(path)
    try:
        with PACKED[place.suffix].open(place) if place.suffix in PACKED else place.open("rb") as file:
            header = json.loads(file.readline(_LONGEST_HEADER))
        told = [" ".join(str(header[name]).split()) for name in ("model", "made") if header.get(name)]
    except (*_UNREADABLE, AttributeError) as error:
        raise UserError(f"{str(path)!r} is no cassette ({type(error).__name__}); correct or record it anew.") from error
    return f"recording {place.name} ({', '.join(told) or 'of nobody who is named'})"


def _shown(text: str) -> str:
    """The end of a question, where prompts differ most; without the form of its answer."""
    words = " ".join(_FORM.sub("", text).split())
    return words if len(words) <= _SHOWN else f"... {words[-_SHOWN:]}"


def asks(chat: Mapping[str, Any]) -> bool:
    """True if settings of a chat model name one that is asked, and not only a recording to play."""
    return bool(chat.get("model") or chat.get("local"))


def open_chat(settings: Mapping[str, Any]) -> ChatModel:
    """A client, a cassette, or both, from settings as they stand in YAML files.

    Args:
        settings: Those of `AskedChat`, or of `AskedLocalChat`. A `cassette` alone is played back; with a chat model
            what is missing is recorded.

    Raises:
        UserError: If nothing says whom to ask, or a setting is not allowed.
    """
    given = AskingChat.checked("", {"chat": settings}).chat
    cassette, note = given.pop("cassette", None), given.pop("note", "")
    if not asks(given):
        return Cassette(cassette)
    client: ChatModel = make_local_chat(**given) if "local" in given else ChatClient(**given)
    return client if cassette is None else Cassette(cassette, client, note)
