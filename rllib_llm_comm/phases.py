"""Time per phase of a training iteration in seconds, counted in the process that spends it."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

ENV, TEXT, MESSAGES, SCORING, FEATURES, UPDATE = "env", "text", "messages", "scoring", "features", "update"
PHASE_SECONDS = "phase_seconds"
PHASES = (ENV, TEXT, MESSAGES, SCORING, FEATURES, UPDATE)


class PhaseClock:
    """Counts seconds per phase.

    Phases may lie in each other: the outer one pauses while the inner one runs, so that nothing counts twice. Inside a
    phase that is entered as a `whole`, everything counts to it. One thread only.
    """

    def __init__(self) -> None:
        self._seconds: dict[str, float] = defaultdict(float)
        self._running: list[str] = []
        self._since = 0.0
        self._whole = 0

    @contextmanager
    def __call__(self, phase: str, whole: bool = False) -> Iterator[None]:
        """Counts what happens inside.

        Args:
            phase: Its name.
            whole: Whether phases inside it count to it, too.
        """
        if self._whole:
            yield
            return
        self._book()
        self._running.append(phase)
        self._whole += whole
        try:
            yield
        finally:
            self._book()
            self._running.pop()
            self._whole -= whole

    def take(self) -> dict[str, float]:
        """The seconds since the last call, by phase; the running phase goes on."""
        self._book()
        taken = dict(self._seconds)
        self._seconds.clear()
        return taken

    def _book(self) -> None:
        now = time.perf_counter()
        if self._running:
            self._seconds[self._running[-1]] += now - self._since
        self._since = now


phase = PhaseClock()
"""The clock of this process."""
