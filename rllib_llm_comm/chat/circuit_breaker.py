"""A circuit breaker: a server that does not answer is left alone for a while, and whoever asks is told at once."""

from __future__ import annotations

import time

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
