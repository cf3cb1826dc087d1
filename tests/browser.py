"""A real headless Chromium for tests; without one they are skipped."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools import browser as chromium
from tools.browser import Browser


@contextlib.contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """Starts Chromium with a profile of its own; tests are skipped where there is none."""
    found = chromium.find_chromium()
    if found is None:
        pytest.skip("no Chromium on this machine, so the page is not opened in a browser")
    with chromium.browser(found, profile) as running:
        yield running
