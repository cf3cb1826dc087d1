"""A frugal client for language models behind OpenAI's chat protocol, hosted or local.

What clients share, also those of other processes, lies in files: answers already paid for, their cost, and one rate.
Files appear at once or not at all, and a claim (a lock that ends with its process) keeps two clients from paying for
the same answer or from spending the same money.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from rllib_llm_comm.chat.answers import UnknownFormError, strict_form
from rllib_llm_comm.chat.chat_model import (
    Asking,
    ChatAnswer,
    ChatCounters,
    ChatDownError,
    ChatError,
    ChatModel,
    QuestionLocks,
    asking,
    cut_at,
    cut_too_early,
    others_go_on,
    tokens_for,
)
from rllib_llm_comm.chat.endpoint import holds_key, read_key, shown
from rllib_llm_comm.chat.settings import ChatSettings
from rllib_llm_comm.chat.thoughts import without_thoughts
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.files import claim_file, read_text, state_folder, write_atomically
from rllib_llm_comm.core.places import local_path

if TYPE_CHECKING:
    from rllib_llm_comm.chat.wire import Completion, LostError, RefusedError, Wire


logger = logging.getLogger(__name__)


# ---- what clients share -----------------------------------------------------------------------------------------


def request_key(request: Mapping[str, Any]) -> str:
    """The sha256 of a request's canonical JSON: the same model, settings and words give the same key."""
    return hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()


def append_line(path: Path, document: Mapping[str, Any], *, only_first: bool = False) -> None:
    """Appends a line of JSON to a file to which other processes append, too.

    Args:
        path: The file; made if there is none.
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
    """True if a line is whole JSON."""
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
            write_atomically(self._folder / f"{key}.json", json.dumps({"key": key, "answer": answer, **cut}))

    def claim(self, key: str) -> AbstractContextManager[None]:
        """Holds a question while it is asked: who asks the same elsewhere waits, and then finds the answer."""
        if self._folder is None:
            return nullcontext()
        # 256 files for all questions: a lock for each would leave as many empty files as there are answers.
        return claim_file(self._folder.with_name("locks") / f"{key[:2]}.lock")


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

    def claim(self) -> AbstractContextManager[None]:
        """Holds the books of the folder between looking and booking."""
        if self._folder is None:
            return nullcontext()
        return claim_file(self._folder.with_name("locks") / "spending.lock")

    def add(self, cost: float) -> None:
        """Books money; a negative sum takes a reservation back."""
        if cost == 0:
            return
        self._own = max(0.0, self._own + cost)
        if self._folder is not None:
            write_atomically(self._folder / self._file, json.dumps({"cost": self._own}))


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


# ---- the client -------------------------------------------------------------------------------------------------


MOST_LOST = 3
PAUSE = 60.0


class Breaker:
    """Counts questions without an answer; after some in a row it is open, and closed by the first answer.

    After a pause one question is let through; if it is lost, too, the pause begins again.

    Attributes:
        why: Failure of the latest lost question.
        hopeless: Whether that is nothing which passes.
    """

    def __init__(self) -> None:
        self.why, self.hopeless = "", False
        self._lost = 0
        self._until = 0.0

    @property
    def open(self) -> bool:
        """True if no requests are sent now."""
        return self._lost >= MOST_LOST and time.monotonic() < self._until

    @property
    def tripped(self) -> bool:
        """True if so many questions in a row were lost that the caller should give up."""
        return self._lost >= MOST_LOST

    def lose(self, why: str, at_once: bool = False) -> None:
        """Notes a lost question.

        Args:
            why: The failure.
            at_once: Whether the next question would surely be lost, too, as with a revoked key.
        """
        self.why, self.hopeless = why, at_once
        self._lost = MOST_LOST if at_once else self._lost + 1
        self._until = time.monotonic() + PAUSE

    def answered(self) -> None:
        """Notes an answer."""
        self._lost, self.why, self.hopeless = 0, "", False


_OLD, _NEW = "max_tokens", "max_completion_tokens"
_FORM = "response_format"
# Statuses of a server that does not know a parameter.
_UNKNOWN = frozenset({400, 422})


class Dialect:
    """Writes requests so that a server takes them.

    Args:
        forms: Whether the server is asked to write by a JSON schema (`response_format`) where there is one.
    """

    def __init__(self, forms: bool) -> None:
        self._tokens, self._temperature = _OLD, True
        self._forms, self._proven = forms, False
        self._doubt = ""

    def parameters(self, tokens: int, temperature: float, asked: Asking, extra: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters of a request beside model and messages.

        Args:
            tokens: Most tokens of the answer.
            temperature: Of sampling.
            asked: The purpose.
            extra: The user's own; they go before ours.
        """
        body: dict[str, Any] = {self._tokens: tokens}
        if self._temperature:
            body["temperature"] = temperature
        if self._forms and asked.schema is not None:
            try:
                form = {"name": asked.form, "schema": strict_form(asked.schema), "strict": True}
                body[_FORM] = {"type": "json_schema", "json_schema": form}
            except UnknownFormError:
                pass
        return body | dict(extra)

    def learn(self, status: int, text: str, sent: Mapping[str, Any]) -> str:
        """Drops the parameter that a server refused; returns its name.

        Returns:
            One sentence; empty if nothing can be changed, and the refusal stands.
        """
        words = text.lower()
        if status not in _UNKNOWN:
            return self._undo()
        if _OLD in sent and _NEW in words:
            self._tokens = _NEW
            return f"It wants `{_NEW}` in place of `{_OLD}`."
        if "temperature" in sent and self._temperature and "temperature" in words and "support" in words:
            self._temperature = False
            return "It takes no such `temperature`; its own default is used."
        if _FORM in sent and self._forms and (not self._proven or _FORM in words or "schema" in words):
            self._forms = False
            self._doubt = f"It refuses `{_FORM}` with a JSON schema; the form is told in the prompt only."
            return self._doubt
        return self._undo()

    def accepted(self, sent: Mapping[str, Any]) -> str:
        """Notes that a request was taken.

        Returns:
            A sentence on what was found out by that; empty if nothing was.
        """
        self._proven |= _FORM in sent
        found, self._doubt = self._doubt, ""
        return found

    def _undo(self) -> str:
        """The form was not the reason."""
        if self._doubt:
            self._forms, self._doubt = True, ""
        return ""


_MAX_CHARACTERS_PER_TOKEN = 16
_SHOWN_OF_REFUSAL = 80
_INSTEAD = {
    "refusal": "is a refusal",
    "filter": "was left out by the server's filter; ask another model",
    "calls": "is several tool calls, of which none is taken; turn tools off by `extra_body`",
}
_LONG_KEY = 20  # so long that none is in an answer by chance
_HINTS = {401: "is the key right?", 403: "is the key allowed this?", 404: "is the model's name right?"}
# Errors that no other question would change: an address that is left, a wrong key, an empty account, an unknown model.
_HOPELESS = frozenset({301, 302, 307, 308, 401, 402, 404})
_OWN_STATE = ("_cache", "_ledger", "_wire", "_secret", "_told", "_lock", "_slots", "_questions", "_rate", "_breaker")


class ChatClient(ChatModel):
    """Asks a chat model; keeps answers, stays within a rate and a budget, and leaves a dead server alone.

    OpenAI's package repeats requests after passing troubles. After three questions in a row without an answer, or at
    once if the key or the model is refused, nothing is asked for a minute (`ChatDownError`); then one question is let
    through.

    **Budget.** The most that a request can cost is booked before it is sent. It is given back if the server refused
    the request (4xx but 408, and 503) or was never reached, and set right if the server answered; it stays after
    time-outs, broken connections, other 5xx, and answers that are cut or too large, since they may be paid for.

    The key is read from an environment variable at the first request; it is in no file, log, error or pickle.

    Attributes:
        counters: Counts so far.
    """

    def __init__(self, model: str | ChatSettings, base_url: str | None = None, **settings: Any) -> None:
        """Keeps the settings; nothing is sent yet.

        Args:
            model: The model's name at the server; or all settings.
            base_url: As of `ChatSettings`.
            **settings: The other fields of `ChatSettings`.

        Raises:
            UserError: If a setting is not allowed.
        """
        given = model if isinstance(model, ChatSettings) else ChatSettings(model=model, base_url=base_url, **settings)
        self.model, self.base_url, self.api_key_env = given.model, given.base_url, given.api_key_env
        self.timeout, self.max_retries = given.timeout, given.max_retries
        self.requests_per_minute, self.budget = given.requests_per_minute, given.budget
        self.max_concurrent, self.ask_ahead = given.max_concurrent, given.ask_ahead
        self.prices = (given.price_per_million_input / 1e6, given.price_per_million_output / 1e6)
        self.temperature, self.max_tokens, self.cache_dir = given.temperature, given.max_tokens, given.cache_dir
        self.extra_body = dict(given.extra_body or {})
        self.counters = ChatCounters()
        self._dialect = Dialect(given.forms)
        self._begin()

    def _begin(self) -> None:
        """Makes the parts that a copy in another process needs anew."""
        folder = self.cache_dir or None
        self._cache, self._ledger = AnswerCache(folder), SpendingLedger(folder)
        self._wire: Wire | None = None
        self._secret = ""
        self._told: set[str] = set()
        self._lock = threading.RLock()
        self._slots, self._questions = threading.Semaphore(self.max_concurrent), QuestionLocks()
        self._rate = SharedRate(self.requests_per_minute, (self.base_url, self.model, self.api_key_env))
        self._breaker = Breaker()

    def __repr__(self) -> str:
        return f"ChatClient(model={self.model!r}, base_url={self.base_url!r}, api_key_env={self.api_key_env!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in _OWN_STATE}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update({"max_concurrent": 1, "ask_ahead": 1, **state})
        self._begin()

    def keep_answers(self, folder: str | os.PathLike[str]) -> None:
        """Keeps answers and spent money in a folder, unless `cache_dir` is set; before the first question."""
        if self.cache_dir is None:
            self.cache_dir = os.fspath(folder)
            self._cache, self._ledger = AnswerCache(folder), SpendingLedger(folder)

    def complete(self, prompt: str, system: str = "") -> str:
        """The model's answer; of calls from several threads `max_concurrent` are under way, the others take turns.

        Returns:
            The text, at most some characters per token of `max_tokens` long; a `ChatAnswer`.

        Raises:
            UserError: If the budget is spent or the key is missing.
            ChatDownError: If the server seems dead.
            ChatError: If no answer came after all repetitions.
        """
        messages, key = self._request(prompt, system)
        begun = time.perf_counter()
        # A question whose answer is kept is paid for once.
        alone = self._questions.hold(key) if self.cache_dir else nullcontext()
        with others_go_on(), alone, self._slots:
            answer = self._kept(key)
            if answer is None:
                with self._cache.claim(key):
                    answer = self._kept(key)  # another process may just have paid for it
                    if answer is None:
                        try:
                            return self._pay(messages, key)
                        finally:
                            self.counters.count(seconds=time.perf_counter() - begun)
            self.counters.count(cached=1)
            return answer

    def recall(self, prompt: str, system: str = "") -> str | None:
        """The answer to a question if it is kept, else `None`; nothing is sent."""
        answer = self._kept(self._request(prompt, system)[1])
        if answer is not None:
            self.counters.count(cached=1)
        return answer

    def remember(self, prompt: str, answer: str, system: str = "") -> None:
        """Keeps an answer that came in another way, such as in a batch."""
        self._cache.put(self._request(prompt, system)[1], answer)

    def _request(self, prompt: str, system: str) -> tuple[list[dict[str, str]], str]:
        """The messages, and their key in the cache: the same for every purpose and dialect of the server."""
        messages = [{"role": "system", "content": system}] if system else []
        messages.append({"role": "user", "content": prompt})
        settings = {
            "model": self.model,
            "messages": messages,
            "temperature": self.temperature,
            "max_tokens": self.max_tokens if isinstance(self.max_tokens, int) else None,
            **({"extra_body": self.extra_body} if self.extra_body else {}),
        }
        return messages, request_key({"base_url": self.base_url, **settings})

    def _kept(self, key: str) -> ChatAnswer | None:
        answer = self._cache.get(key)
        return None if answer is None or cut_too_early(answer, self.max_tokens) else answer

    # ---- asking ------------------------------------------------------------------------------------------

    def _pay(self, messages: list[dict[str, str]], key: str) -> ChatAnswer:
        try:
            with self._lock:
                if self._breaker.open:
                    raise self._down()
            answer = self._ask(messages)
        except ChatError:
            self.counters.count(failures=1)
            raise
        with self._lock:
            self._breaker.answered()
        self._cache.put(key, answer)
        return answer

    def _ask(self, messages: list[dict[str, str]]) -> ChatAnswer:
        from rllib_llm_comm.chat.wire import LostError, RefusedError

        wire = self._connect()
        tokens = tokens_for(self.max_tokens, asking().purpose)
        while True:
            sent = self._dialect.parameters(tokens, self.temperature, asking(), self.extra_body)
            begin, end = self._booking(_bytes(messages, sent), tokens)
            failure: ChatError
            try:
                completion = wire.send({"model": self.model, "messages": messages, **sent}, begin, end)
            except LostError as lost:
                failure = self._lost(lost)
            except RefusedError as refused:
                with self._lock:
                    # A question beside this one may have learnt it by now.
                    learnt = sent != self._dialect.parameters(tokens, self.temperature, asking(), self.extra_body)
                    if learnt or self._dialect.learn(refused.status, refused.text, sent):
                        continue
                failure = self._refused(refused)
            else:
                with self._lock:
                    found = self._dialect.accepted(sent)
                if found:
                    logger.warning("Chat model %s: %s", self.model, found)
                return self._answer(completion, tokens)
            raise failure

    def _answer(self, completion: Completion, tokens: int) -> ChatAnswer:
        text = completion.text[: tokens * _MAX_CHARACTERS_PER_TOKEN]
        if len(self._secret) > 8:
            text = text.replace(self._secret, "[key]")
            if len(self._secret) >= _LONG_KEY and holds_key(text, self._secret):
                raise ChatError(
                    f"The chat model {self.model!r} answered with the key in disguise; do not use this server."
                )
        unread = shown(", ".join(repr(kind) for kind in completion.unread), self._secret)
        if unread and not text:
            raise ChatError(
                f"The chat model {self.model!r} answered without text, in parts of the kind {unread}; ask for text by "
                "`extra_body`, or ask another model."
            )
        if unread:
            self._tell_once("parts", f"parts of the kind {unread}, which hold no text, are left out.")
        if completion.cut:
            self.counters.count(truncated=1)
            self._tell_once(
                "cut",
                f"an answer ({asking().purpose}) was cut off after {tokens} tokens; raise `max_tokens`. Further ones "
                "are only counted.",
            )
        elif completion.instead:
            about = f": {' '.join(text.split())[:_SHOWN_OF_REFUSAL]!r}" if completion.instead == "refusal" else ""
            what = _INSTEAD[completion.instead]
            self._tell_once(completion.instead, f"an answer ({asking().purpose}) {what}{about}. Told once.")
        elif not without_thoughts(text):
            self._tell_once(
                "empty",
                f"an answer ({asking().purpose}) has no content beside thoughts; if that goes on, turn its thinking "
                "off by `extra_body`. Told once.",
            )
        return ChatAnswer(text, tokens if completion.cut else 0)

    def _tell_once(self, kind: str, what: str) -> None:
        if kind not in self._told:
            self._told.add(kind)
            logger.warning("Chat model %s: %s", self.model, what)

    def _lost(self, lost: LostError) -> ChatError:
        why = str(lost)
        with self._lock:
            self._breaker.lose(why)
            if self._breaker.tripped:
                return self._down()
        asked = "1 request" if lost.requests == 1 else f"{lost.requests} requests"
        return ChatError(f"The chat model {self.model!r} gave no answer after {asked} ({why}).")

    def _refused(self, refused: RefusedError) -> ChatError:
        from rllib_llm_comm.chat.wire import QUOTA

        hint = f"; {_HINTS[refused.status]}" if refused.status in _HINTS else ""
        why = f"HTTP {refused.status}: {shown(refused.text, self._secret)}{hint}"
        if refused.status in _HOPELESS or refused.code == QUOTA:
            with self._lock:
                self._breaker.lose(why, at_once=True)
                return self._down()
        return ChatError(f"The chat model {self.model!r} refused the request: {why}")

    def _down(self) -> ChatDownError:
        sent = f"up to {self.max_retries + 1} times" if self.max_retries else "once"
        what = (
            "refuses to answer"
            if self._breaker.hopeless
            else f"gave no answer to {MOST_LOST} questions in a row, each sent {sent}"
        )
        return ChatDownError(
            f"The chat model {self.model!r} {what} ({self._breaker.why}). It is left alone for {PAUSE:g} s; once that "
            "is mended, call again."
        )

    def _connect(self) -> Wire:
        with self._lock:
            self._secret = read_key(self.api_key_env, self.base_url)
            if self._wire is None:
                from rllib_llm_comm.chat.wire import Wire

                self._wire = Wire(self._secret, self.base_url, self.timeout, self.max_retries)
            return self._wire

    def _booking(self, size: int, tokens: int) -> tuple[Callable[[], None], Callable[[Completion | None, bool], None]]:
        """What is done before and after each request of a question: its turn, its count and its cost."""
        # A token is at least a byte, so this is the most that a request can cost.
        most = size * self.prices[0] + tokens * self.prices[1]
        repeated = False

        def begin() -> None:
            """Waits until the next request may go, and books the most that it can cost."""
            nonlocal repeated
            self._rate.wait()
            self._reserve(most)
            self.counters.count(requests=1, retries=int(repeated))
            repeated = True

        def end(completion: Completion | None, free: bool) -> None:
            """Books what a request has cost in place of the most that it could.

            Args:
                completion: The answer with the tokens that the server counted; `None` for none.
                free: Whether the request surely costs nothing: it never left, or the server refused it.
            """
            cost = 0.0 if free else most
            if completion is not None:
                # Servers that do not count are booked at the upper bound.
                sent = size if completion.sent is None else completion.sent
                received = tokens if completion.received is None else completion.received
                self.counters.count(input_tokens=sent, output_tokens=received)
                cost = sent * self.prices[0] + received * self.prices[1]
            self.counters.count(cost=cost)
            with self._lock:
                self._ledger.add(cost - most)

        return begin, end

    def _reserve(self, most: float) -> None:
        """Books a request's highest cost before it is sent, so that a killed process cannot overspend."""
        with self._lock, self._ledger.claim():
            spent = 0.0 if self.budget is None else self._ledger.spent
            if self.budget is not None and spent + most > self.budget:
                raise UserError(
                    f"`budget` is {self.budget:g} but {spent:.4g} is spent and the next request may cost {most:.2g}; "
                    "raise `budget` to go on (answers in `cache_dir` stay free)."
                )
            self._ledger.add(most)


def _bytes(messages: list[dict[str, str]], sent: Mapping[str, Any]) -> int:
    """Bytes that a model may be shown: the messages, their frames and a form."""
    form = len(str(sent["response_format"]).encode()) if "response_format" in sent else 0
    return form + sum(len(message["content"].encode("utf-8", "replace")) + 16 for message in messages)
