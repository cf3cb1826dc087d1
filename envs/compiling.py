"""Compiled rules: one process compiles at a time, and says so on stderr where that takes a while."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path

from rllib_llm_comm.core.files import claim_file

logger = logging.getLogger(__name__)

SILENT_SECONDS = 3.0
"""Loading what was compiled before takes less."""


@contextlib.contextmanager
def compiling(what: str, duration: str) -> Iterator[None]:
    """Compiles inside, or loads what another process has compiled meanwhile; logs a warning if that takes long.

    Environment runners that start together on a new machine would all compile the same; all but one wait instead.
    """
    text = f"Loading the rules of {what}; to compile them takes {duration}, once: they are kept for later."
    note = threading.Timer(SILENT_SECONDS, logger.warning, (text,))
    note.daemon = True
    note.start()
    # Where numba keeps what it compiles, or beside it.
    folder = Path(os.environ.get("NUMBA_CACHE_DIR") or Path(__file__).parent / "__pycache__")
    try:
        with contextlib.ExitStack() as stack:
            # Nothing is kept where nothing can be written, so that waiting would not help.
            with contextlib.suppress(OSError, NotImplementedError):
                stack.enter_context(claim_file(folder / f"{what.replace(' ', '_')}.lock"))
            yield
    finally:
        note.cancel()
