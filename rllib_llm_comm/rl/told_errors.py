"""Errors in the set-up of a module, told as they are."""

from __future__ import annotations

from typing import Any


class ToldErrors:
    """Makes an AttributeError in an RLModule's constructor, its `setup` included, a RuntimeError with the same words.

    RLlib takes an AttributeError there for that of an old module, builds it in a way that is gone, and tells of that
    alone. Stands in front of `TorchRLModule`.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        try:
            super().__init__(*args, **kwargs)
        except AttributeError as error:
            raise RuntimeError(f"{type(self).__name__} cannot be set up: AttributeError: {error}") from error
