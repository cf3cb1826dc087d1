"""Loading without progress bars."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def without_progress_bar() -> Iterator[None]:
    """Keeps transformers from drawing a bar for each model that is loaded, which tells nothing in a log."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
