"""A bounded memory of results that are dear to compute."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Memo(Generic[Value]):
    """Least-recently-used results that hold as long as a stamp (the state of some weights) stays the same.

    Args:
        max_items: Largest number of results that are kept.
    """

    def __init__(self, max_items: int) -> None:
        self._items: OrderedDict[Hashable, Value] = OrderedDict()
        self._max_items = max_items
        self._stamp: Hashable = None

    def __len__(self) -> int:
        return len(self._items)

    def require(self, stamp: Hashable) -> None:
        """Forgets everything unless the stamp is the one of the last call."""
        if stamp != self._stamp:
            self._items.clear()
            self._stamp = stamp

    def get(self, key: Hashable) -> Value | None:
        """The result of a key, or `None`."""
        value = self._items.get(key)
        if value is not None:
            self._items.move_to_end(key)
        return value

    def put(self, key: Hashable, value: Value) -> None:
        """Stores a result; the one used longest ago goes when there is no room."""
        self._items[key] = value
        self._items.move_to_end(key)
        if len(self._items) > self._max_items:
            self._items.popitem(last=False)

    def clear(self) -> None:
        """Forgets everything."""
        self._items.clear()
