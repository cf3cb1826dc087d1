"""Games side by side in threads: only one goes on at a time, the others wait for a chat model's answers.

A game's own code (network, random numbers, sandbox) need not be safe for threads then, and its course is the same in
whatever company it is played.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from weakref import WeakValueDictionary


class StoppedError(RuntimeError):
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
            raise StoppedError

    @contextmanager
    def _pass_on(self) -> Iterator[None]:
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
        with turns._pass_on():
            yield
    finally:
        _turns.reset(token)


class QuestionLocks:
    """A lock per question, so that one that several threads have at once is asked once."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[object, _QuestionLock] = WeakValueDictionary()
        self._lock = threading.Lock()

    @contextmanager
    def hold(self, question: object) -> Iterator[None]:
        """Holds a question; who has the same waits.

        Args:
            question: Anything that can be a key.
        """
        with self._lock:
            own = self._locks.get(question)
            if own is None:
                own = self._locks[question] = _QuestionLock()
        with own.lock:
            yield


class _QuestionLock:
    """A lock to which there are weak references."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
