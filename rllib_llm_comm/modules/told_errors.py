"""Errors in the set-up of a module, told as they are."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


def told_errors(setup: Callable[[Any], None]) -> Callable[[Any], None]:
    """A `setup` whose AttributeErrors become RuntimeErrors with the same words.

    RLlib takes an AttributeError there for that of an old module, builds it in a way that is gone, and tells of that
    alone.

    Args:
        setup: The method `setup` of an RLModule.
    """

    @functools.wraps(setup)
    def told(self: Any) -> None:
        try:
            setup(self)
        except AttributeError as error:
            raise RuntimeError(f"{type(self).__name__} cannot be set up: AttributeError: {error}") from error

    return told
