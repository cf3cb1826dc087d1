"""Time per phase of a training iteration in seconds, and tokens, counted in the process that spends them."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

ENV, TEXT, MESSAGES, SCORING, FEATURES, UPDATE = "env", "text", "messages", "scoring", "features", "update"
PHASE_SECONDS = "phase_seconds"
TOKENS, GPU_MEMORY = "tokens", "gpu_memory_gb"
PHASES = (ENV, TEXT, MESSAGES, SCORING, FEATURES, UPDATE)


class PhaseClock:
    """Counts seconds per phase.

    Phases may lie in each other: the outer one pauses while the inner one runs, so that nothing counts twice. Inside a
    phase that is entered as a `whole`, everything counts to it. One thread only.

    Attributes:
        clock: Gives the time in seconds; a benchmark on a busy machine takes `time.process_time`.
    """

    def __init__(self) -> None:
        self.clock = time.perf_counter
        self._seconds: dict[str, float] = defaultdict(float)
        self._running: list[str] = []
        self._since = 0.0
        self._whole = 0
        self._tokens = 0

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

    def count_tokens(self, tokens: int) -> None:
        """Counts tokens that the language model computes, those that fill up a row included."""
        self._tokens += tokens

    @property
    def tokens(self) -> int:
        """The tokens since they were taken last."""
        return self._tokens

    def take_tokens(self) -> int:
        """The tokens since the last call."""
        tokens, self._tokens = self._tokens, 0
        return tokens

    def _book(self) -> None:
        now = self.clock()
        if self._running:
            self._seconds[self._running[-1]] += now - self._since
        self._since = now


phase = PhaseClock()
"""The clock of this process."""


def log_cost(logger: Any, place: tuple[str, ...] = ()) -> None:
    """Logs what a process spent since the last call: seconds of phases, tokens, and its peak of GPU memory so far.

    Args:
        logger: RLlib's logger of the process.
        place: Keys above these results.
    """
    for name, seconds in phase.take().items():
        logger.log_value((*place, PHASE_SECONDS, name), seconds, reduce="sum")
    if tokens := phase.take_tokens():
        logger.log_value((*place, TOKENS), tokens, reduce="lifetime_sum")
    if (memory := gpu_memory_gb()) is not None:
        logger.log_value((*place, GPU_MEMORY), memory, reduce="max")


def gpu_memory_gb() -> float | None:
    """The most GPU memory that torch has held in this process, in GB; `None` without a GPU, or where nobody asked torch
    for anything."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return None
    return float(torch.cuda.max_memory_allocated()) / 1e9
