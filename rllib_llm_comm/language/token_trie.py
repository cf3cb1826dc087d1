"""Numbers of token sequences: a bounded trie whose nodes stand for the beginnings of texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

NONE = -1
_TOKENS = 2**32


class Places:
    """A bounded number of places, handed out to owners and taken back.

    Args:
        capacity: Number of places, >= 0.

    Attributes:
        exhausted: The last round in which nothing old enough was there to make room.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.exhausted = -1
        self._free: list[int] = []
        self._fresh = 0

    @property
    def count(self) -> int:
        """Places in use."""
        return self._fresh - len(self._free)

    def take(self) -> int:
        """A free place; `NONE` if there is none."""
        if self._free:
            return self._free.pop()
        if self._fresh == self.capacity:
            return NONE
        self._fresh += 1
        return self._fresh - 1

    def give_back(self, places: np.ndarray) -> None:
        """Frees places."""
        self._free.extend(places.tolist())


class TokenTrie:
    """A trie of token ids with a bounded number of nodes; those used longest ago go first.

    A node stands for the sequence from the first token to its own, so equal beginnings of texts are one path. Some
    nodes have a second place, in a smaller store (`extra`). Whoever uses a node uses those above it in the same round.
    So a node is never older than those below it, and goes no sooner.

    Args:
        capacity: Most nodes, >= 0.
        extra: Most nodes with a place in the smaller store, >= 0.
    """

    def __init__(self, capacity: int, extra: int) -> None:
        self.nodes, self.extras = Places(capacity), Places(extra)
        self.extra_of = np.full(capacity, NONE, np.int64)
        self._used = np.zeros(capacity, np.int64)
        self._key_of = np.zeros(capacity, np.int64)
        self._node_at: dict[int, int] = {}
        self._round = 0

    def begin_round(self) -> None:
        """Starts a round; whatever is used in it stays until the next one."""
        self._round += 1

    def find(self, tokens: Sequence[int], parents: Sequence[int]) -> list[int]:
        """Nodes of a text's tokens.

        Args:
            tokens: Token ids.
            parents: Place in the list of the token in front of each; -1 for none.

        Returns:
            A node for each token, `NONE` where there is none.
        """
        found: list[int] = []
        get = self._node_at.get
        for token, parent in zip(tokens, parents, strict=True):
            above = found[parent] if parent >= 0 else NONE
            lost = parent >= 0 and above == NONE
            found.append(NONE if lost else get((above + 1) * _TOKENS + token, NONE))
        return found

    def use(self, nodes: np.ndarray) -> None:
        """Marks nodes (of any shape; `NONE` counts for nothing) as used in this round."""
        self._used[nodes[nodes != NONE]] = self._round

    def add(self, above: int, token: int) -> tuple[int, bool]:
        """Adds a node, used in this round.

        Args:
            above: The node in front of it; -1 for none.
            token: Its token id.

        Returns:
            The node, `NONE` where there is no room, and whether it is new.
        """
        key = (above + 1) * _TOKENS + token
        node = self._node_at.get(key, NONE)
        if node != NONE:
            return node, False
        node = self._take(self.nodes, self._drop_oldest)
        if node == NONE:
            return NONE, False
        self._node_at[key] = node
        self._key_of[node], self._used[node] = key, self._round
        return node, True

    def add_extra(self, node: int) -> int:
        """A place of a node in the smaller store; `NONE` where there is no room."""
        place = self._take(self.extras, self._drop_oldest_extras)
        if place != NONE:
            self.extra_of[node] = place
        return place

    def _take(self, places: Places, make_room: Callable[[], bool]) -> int:
        place = places.take()
        if place != NONE or places.exhausted == self._round:
            return place
        if make_room():
            return places.take()
        places.exhausted = self._round  # to look again costs as much as there are nodes
        return NONE

    def _drop_oldest(self) -> bool:
        nodes = np.fromiter(self._node_at.values(), np.int64, len(self._node_at))
        old = self._oldest(nodes)
        for key in self._key_of[old].tolist():
            del self._node_at[key]
        self._drop_extras(old[self.extra_of[old] != NONE])
        self.nodes.give_back(old)
        return len(old) > 0

    def _drop_oldest_extras(self) -> bool:
        old = self._oldest(np.nonzero(self.extra_of != NONE)[0])
        self._drop_extras(old)
        return len(old) > 0

    def _drop_extras(self, nodes: np.ndarray) -> None:
        self.extras.give_back(self.extra_of[nodes])
        self.extra_of[nodes] = NONE

    def _oldest(self, nodes: np.ndarray) -> np.ndarray:
        """About the older half of some nodes, of whole rounds, none of this one."""
        rounds = self._used[nodes]
        before = rounds[rounds < self._round]
        return nodes[rounds <= np.median(before)] if len(before) else nodes[:0]
