"""Games and other work side by side in threads: only one goes on at a time, the others wait for a chat model's answers.

A game's own code (network, random numbers, sandbox) need not be safe for threads then, and its course is the same in
whatever company it is played.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import TypeVar
from weakref import WeakValueDictionary

Item = TypeVar("Item")
Result = TypeVar("Result")


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


def side_by_side(work: Callable[[Item], Result], items: Sequence[Item], at_once: int) -> list[Result]:
    """Does the same work for several items; while some of them wait for a chat model's answers another one goes on.

    Args:
        work: The work for an item; a failure ends all others at their next question.
        items: The items.
        at_once: Most items that are begun and not finished; 1: one after the other, in this thread.

    Returns:
        What the work gives, in the order of the items.
    """
    threads = min(at_once, len(items))
    if threads <= 1 or _turns.get() is not None:  # work that is done beside other work already
        return [work(item) for item in items]
    turns = Turns()

    def beside(item: Item) -> Result:
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
        if not isinstance(error, StoppedError):
            raise error
    return [one.result() for one in begun]


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
