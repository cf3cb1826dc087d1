"""Cost of questions to chat models: counted per client, per episode and per run."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, fields

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
        """Counts on.

        Args:
            **amounts: Amounts to add to the counters of these names.
        """
        with _counting:
            for name, amount in amounts.items():
                setattr(self, name, getattr(self, name) + amount)

    def to_json(self) -> dict[str, float]:
        """The counters as plain values."""
        return asdict(self)


def cost_of(counters: ChatCounters) -> dict[str, float]:
    """The cost of questions under the names of reports; `kept_answers` are those that cost nothing.

    `answer_seconds` is `ChatCounters.seconds`.

    Args:
        counters: The counters.
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


def count_in_scopes(**amounts: float) -> None:
    """Adds to all open scopes; clients call it.

    Args:
        **amounts: See `rllib_llm_comm.chat.usage.ChatCounters.add`.
    """
    for counters in _open_scopes.get():
        counters.add(**amounts)


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
        """Books what is asked inside a `with` on an episode; it may be entered again.

        Args:
            name: The episode's.
        """
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
