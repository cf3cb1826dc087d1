"""Notice on stderr when rules have to be compiled, which takes a while at their first use on a machine."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator

logger = logging.getLogger(__name__)

SILENT_SECONDS = 3.0
"""Loading what was compiled before takes less."""


@contextlib.contextmanager
def compiling(what: str, duration: str) -> Iterator[None]:
    """Logs a warning if what is done inside takes long.

    Args:
        what: The rules, such as "the onion-soup kitchens".
        duration: Estimated duration.
    """
    text = f"Compiling the rules of {what}; this takes {duration} once and is kept for later."
    note = threading.Timer(SILENT_SECONDS, logger.warning, (text,))
    note.daemon = True
    note.start()
    try:
        yield
    finally:
        note.cancel()
