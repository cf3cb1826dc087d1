"""Chat models as all that asks them knows them: answers, counts, purposes, and questions side by side.

Games and other work side by side in threads: only one goes on at a time, the others wait for a chat model's answers. A
game's own code (network, random numbers, sandbox) need not be safe for threads then, and its course is the same in
whatever company it is played.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from typing_extensions import Self

from rllib_llm_comm.core.errors import UserError

_counting = threading.Lock()  # one for all: counters are copied and pickled


@dataclass
class ChatCounters:
    """Counters of questions and their cost.

    Attributes:
        requests: Requests sent, repeated ones included.
        cached: Answers from the disk or a recording.
        retries: Requests repeated after a passing trouble.
        failures: Questions without an answer.
        truncated: Answers from a model that were cut off, since they became too long.
        input_tokens: Tokens sent, as the server counts them.
        output_tokens: Tokens received.
        cost: Money, by the prices given; requests whose price nobody knows at their highest (see
            `rllib_llm_comm.chat.client.ChatClient`).
        seconds: Seconds that questions waited for answers that were not kept, turns and repetitions included;
            questions that are under way at once count each.
    """

    requests: int = 0
    cached: int = 0
    retries: int = 0
    failures: int = 0
    truncated: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    seconds: float = 0.0

    def add(self, **amounts: float) -> None:
        """Counts on."""
        with _counting:
            for name, amount in amounts.items():
                setattr(self, name, getattr(self, name) + amount)

    def count(self, **amounts: float) -> None:
        """Counts on, here and in all open scopes; who answers calls it."""
        for counters in (self, *_open_scopes.get()):
            counters.add(**amounts)

    @property
    def questions(self) -> int:
        """Questions that were put, whoever answered: repetitions of a request are none."""
        return self.requests - self.retries + self.cached

    def to_json(self) -> dict[str, float]:
        """The counters as plain values."""
        return asdict(self)


def cost_of(counters: ChatCounters) -> dict[str, float]:
    """The cost of questions under the names of reports; `kept_answers` are those that cost nothing.

    `answer_seconds` is `ChatCounters.seconds`.
    """
    return {
        "requests": counters.requests,
        "kept_answers": counters.cached,
        "input_tokens": counters.input_tokens,
        "output_tokens": counters.output_tokens,
        "cost": counters.cost,
        "answer_seconds": counters.seconds,
    }


_open_scopes: ContextVar[tuple[ChatCounters, ...]] = ContextVar("open_scopes", default=())


@contextmanager
def count_scope(counters: ChatCounters | None = None) -> Iterator[ChatCounters]:
    """Counts what is asked inside a `with`, of any client; scopes may lie in each other.

    A scope belongs to its thread or task: what others ask at the same time is not counted.

    Args:
        counters: Counts on these; by default new ones.

    Yields:
        The counters.
    """
    counted = counters if counters is not None else ChatCounters()
    token = _open_scopes.set((*_open_scopes.get(), counted))
    try:
        yield counted
    finally:
        _open_scopes.reset(token)


class ChatAccounts:
    """The books of a run: what each of its episodes cost, and all of it together.

    Attributes:
        run: Everything that was asked inside `episode` or `other`.
        episodes: The same per episode.
    """

    def __init__(self) -> None:
        """Begins empty books."""
        self.run = ChatCounters()
        self.episodes: dict[str, ChatCounters] = {}

    @contextmanager
    def episode(self, name: str) -> Iterator[ChatCounters]:
        """Books what is asked inside a `with` on an episode; it may be entered again."""
        with count_scope(self.run), count_scope(self.episodes.setdefault(name, ChatCounters())) as counted:
            yield counted

    @contextmanager
    def other(self) -> Iterator[ChatCounters]:
        """Books what belongs to no episode, such as the making of a manual, on the run only."""
        with count_scope(self.run) as counted:
            yield counted

    def mean(self) -> dict[str, float]:
        """Each counter's mean over the episodes; zeros without any."""
        names = [field.name for field in fields(ChatCounters)]
        count = max(1, len(self.episodes))
        return {name: sum(getattr(one, name) for one in self.episodes.values()) / count for name in names}

    def to_json(self) -> dict[str, dict[str, float] | dict[str, dict[str, float]]]:
        """`run`, `per_episode` (means) and `episodes`, as plain values."""
        return {
            "run": self.run.to_json(),
            "per_episode": self.mean(),
            "episodes": {name: counted.to_json() for name, counted in self.episodes.items()},
        }


class ChatAnswer(str):
    """An answer that may be cut off; otherwise a text like any other.

    Attributes:
        cut_at: Tokens after which it was cut off; 0 for a whole one.
    """

    cut_at: int = 0

    def __new__(cls, text: str, cut_at: int = 0) -> Self:
        """Makes one."""
        made = super().__new__(cls, text)
        made.cut_at = cut_at
        return made


def cut_at(answer: str) -> int:
    """Tokens after which an answer was cut off; 0 for a whole one."""
    return answer.cut_at if isinstance(answer, ChatAnswer) else 0


class ChatError(RuntimeError):
    """A request failed for good. Its text never holds the key; the server's words are short and on one line."""


class ChatDownError(UserError, ChatError):
    """The server does not answer at all, or refuses whatever it is asked; who needs answers gives up."""


class ChatModel(ABC):
    """Answers prompts. `ChatClient`, `LocalChat` and `Cassette` are such; all that asks takes any.

    Attributes:
        counters: Counts so far.
        model: Name of the model; empty for one without a name.
        max_tokens: See `tokens_for`.
        max_concurrent: Questions that are under way at once.
        ask_ahead: Games or other pieces of work that are begun beside those, and whose questions wait in line.
    """

    counters: ChatCounters
    model: str = ""
    max_tokens: int | Mapping[str, int] | None = None
    max_concurrent: int = 1
    ask_ahead: int = 0

    @abstractmethod
    def complete(self, prompt: str, system: str = "") -> str:
        """The answer.

        Raises:
            ChatError: If there is none after all repetitions.
            UserError: If the user has to do something first.
        """

    def recall(self, prompt: str, system: str = "") -> str | None:
        """The answer if it is kept, else `None`; costs nothing. By default nothing is kept."""
        return None

    def remember(self, prompt: str, answer: str, system: str = "") -> None:
        """Keeps an answer that came in another way, if it keeps any."""
        return


LABEL, PLAY, JUDGE, PLAN, REFLECTION, TRANSLATION, REWARD_CODE, MANUAL, OTHER = (
    "label", "play", "judge", "plan", "reflection", "translation", "reward_code", "manual", "other",
)  # fmt: skip

# Most tokens of an answer, thoughts before it included (ours; the papers give none).
TOKENS: Mapping[str, int] = {
    LABEL: 400,
    PLAY: 400,
    JUDGE: 400,
    PLAN: 1500,
    REFLECTION: 1500,
    TRANSLATION: 1500,
    REWARD_CODE: 1500,
    MANUAL: 2000,
    OTHER: 1000,
}


@dataclass(frozen=True)
class Asking:
    """Purpose of the present questions.

    Attributes:
        purpose: One of `TOKENS`.
        schema: JSON schema of the answer; `None` for free text.
        form: Name of the schema.
    """

    purpose: str = OTHER
    schema: Mapping[str, Any] | None = None
    form: str = "answer"


_asking: ContextVar[Asking | None] = ContextVar("asking", default=None)


def asking() -> Asking:
    """Purpose of this thread's or task's present questions."""
    return _asking.get() or Asking()


@contextmanager
def asking_for(purpose: str, schema: Mapping[str, Any] | None = None, form: str = "answer") -> Iterator[None]:
    """Context in which questions have a purpose; models that do not care need no such argument."""
    token = _asking.set(Asking(purpose, schema, form))
    try:
        yield
    finally:
        _asking.reset(token)


def tokens_for(max_tokens: int | Mapping[str, int] | None, purpose: str) -> int:
    """The bound on the tokens of an answer.

    Args:
        max_tokens: As given by the user: one number, numbers by purpose, or `None`.
        purpose: One of `TOKENS`.
    """
    if isinstance(max_tokens, Mapping):
        return max_tokens.get(purpose, TOKENS[purpose])
    return TOKENS[purpose] if max_tokens is None else max_tokens


def cut_too_early(answer: str, max_tokens: int | Mapping[str, int] | None) -> bool:
    """True if a kept answer was cut off where one may be longer now, so that it is worth asking again.

    Args:
        max_tokens: See `rllib_llm_comm.chat.chat_model.tokens_for`; the purpose is that of the moment.
    """
    return 0 < cut_at(answer) < tokens_for(max_tokens, asking().purpose)


def concurrent_questions(model: ChatModel | None) -> int:
    """The number of questions that a chat model, if there is one, answers at once."""
    return 1 if model is None else model.max_concurrent


def begun_at_once(model: ChatModel | None) -> int:
    """The number of games or other pieces of work that are begun side by side, so that a chat model is never idle.

    1 without one, for recordings and for models in this process: nobody waits for them.
    """
    return 1 if model is None else model.max_concurrent + model.ask_ahead


# ---- side by side -----------------------------------------------------------------------------------------------


Item = TypeVar("Item")
Result = TypeVar("Result")


class OtherGameFailedError(RuntimeError):
    """Another one of the games side by side has failed, so this one ends, too."""


class Turns:
    """The turn that threads pass to each other."""

    def __init__(self) -> None:
        self._lock, self._stopped = threading.Lock(), False

    def stop(self) -> None:
        """Ends all others at their next question."""
        self._stopped = True

    @contextmanager
    def take(self) -> Iterator[None]:
        """Goes on alone inside a `with`, except while a chat model is asked."""
        token = _turns.set(self)
        try:
            with self._lock:
                self._require_going()
                yield
        finally:
            _turns.reset(token)

    def _require_going(self) -> None:
        if self._stopped:
            raise OtherGameFailedError

    @contextmanager
    def pass_on(self) -> Iterator[None]:
        """Lets others go on inside a `with` of who has the turn, and takes it again."""
        self._require_going()
        self._lock.release()
        try:
            yield
        finally:
            self._lock.acquire()


_turns: ContextVar[Turns | None] = ContextVar("turns", default=None)


@contextmanager
def others_go_on() -> Iterator[None]:
    """Lets the other threads of `Turns` go on while this one waits; without such it does nothing."""
    turns = _turns.get()
    if turns is None:
        yield
        return
    token = _turns.set(None)  # whoever waits inside has given its turn away already
    try:
        with turns.pass_on():
            yield
    finally:
        _turns.reset(token)


def side_by_side(work: Callable[[Item], Result], items: Sequence[Item], at_once: int) -> list[Result]:
    """Does the same work for several items; while some of them wait for a chat model's answers another one goes on.

    Args:
        work: The work for an item; a failure ends all others at their next question.
        at_once: Most items that are begun and not finished; 1: one after the other, in this thread.

    Returns:
        What the work gives, in the order of the items.
    """
    threads = min(at_once, len(items))
    if threads <= 1 or _turns.get() is not None:  # work that is done beside other work already
        return [work(item) for item in items]
    turns = Turns()

    def beside(item: Item) -> Result:
        """The work for an item, in its turn; its failure ends the turns of all others."""
        with turns.take():
            try:
                return work(item)
            except BaseException:
                turns.stop()
                raise

    with ThreadPoolExecutor(threads, thread_name_prefix="asking") as pool:
        begun = [pool.submit(copy_context().run, beside, item) for item in items]
        try:
            wait(begun, return_when=FIRST_EXCEPTION)
        finally:
            if not all(one.done() and one.exception() is None for one in begun):
                turns.stop()
    failed = [error for one in begun if (error := one.exception()) is not None]
    for error in failed:
        if not isinstance(error, OtherGameFailedError):
            raise error
    return [one.result() for one in begun]


class QuestionLocks:
    """A lock per question, so that one that several threads have at once is asked once."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[object, Any] = WeakValueDictionary()
        self._lock = threading.Lock()

    @contextmanager
    def hold(self, question: object) -> Iterator[None]:
        """Holds a question; who has the same waits."""
        with self._lock:
            own = self._locks.get(question)
            if own is None:
                own = self._locks[question] = threading.Lock()
        with own:
            yield
