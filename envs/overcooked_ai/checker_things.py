"""Reference of noun phrases in a plain text: cooks, places and things; and logic with "unknown" (`None`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from rllib_llm_comm.envs.overcooked_ai.layouts import COUNTER, DISHES, FLOOR, ONIONS, POT, SERVING, Cell
from rllib_llm_comm.envs.overcooked_ai.names import COOKS, KIND_WORDS, SHARED, SIDE, Places
from rllib_llm_comm.envs.overcooked_ai.recipes import FULL
from rllib_llm_comm.envs.overcooked_ai.rules import Item

Truth = bool | None
T = TypeVar("T")

# A word of a noun phrase. What the phrase means is decided by the narrower forms below.
_WORD = r"(?!(?:is|holds|faces|reaches|needs|not|in|on|at|there)\b)[a-z0-9]+ "
PLACE = rf"(?:(?:{_WORD}){{0,5}}(?:pot|counter|crate|stack|serving)s?(?: [0-9+]+)?|floor \d+:\d+)"
COOK = rf"(?:alice|bob|(?:{_WORD}){{0,4}}cooks?)"
ITEM = rf"(?:nothing|something|(?:{_WORD}){{0,5}}(?:onions?|dish(?:es)?|soups?)(?: of \d+ onions?)?)"

_EVERY = ("all", "every", "each", "both")
_NOUNS = {"pot": POT, "counter": COUNTER, "crate": ONIONS, "stack": DISHES, "serving": SERVING}
_DETERMINER = (
    r"(?:(?P<det>the|an?|any|some|\d+|both|all|every|each|no|none|neither)(?: of)?(?: the)?(?: (?P<size>2|3))? )?"
)
_PLACE = re.compile(
    _DETERMINER + r"(?:(?P<side>left|right|upper|lower) )?(?:(?P<family>shared|side) )?"
    r"(?P<noun>pot|counter|crate|stack|serving)(?P<plural>s?)(?: (?P<numbers>\d+(?:\+\d+)*))?"
)
_FLOOR = re.compile(r"floor (\d+):(\d+)")
_COOK = re.compile(_DETERMINER + r"(?P<noun>cook)(?P<plural>s?)")
_ITEM = re.compile(
    r"(?:(?P<det>the|an?|no|any|some|\d+(?: of 3)?) )?(?P<more>more )?"
    r"(?P<how>(?:(?:ready|cooking|plated|empty) )*)"
    r"(?P<kind>onion|dish|soup)(?P<plural>s|es)?(?: of (?P<onions>\d+) onions?)?"
)


def inverse(truth: Truth) -> Truth:
    """Not."""
    return None if truth is None else not truth


def every(truths: Iterable[Truth]) -> Truth:
    """And, where unknown stays unknown unless one is false."""
    seen = set(truths)
    return False if False in seen else None if None in seen else True


def some(truths: Iterable[Truth]) -> Truth:
    """Or, where unknown stays unknown unless one is true."""
    return inverse(every(inverse(truth) for truth in truths))


@dataclass(frozen=True)
class Named(Generic[T]):
    """Referent of a noun phrase.

    Attributes:
        things: Things that it may mean.
        how: "the" (one of them, not told which), "all", "any", "no", or "count".
        count: Number, for "count".
        plural: Whether it stands in the plural.
        free: Whether it has a determiner that does not speak of each thing ("the counters", but not "both counters").
    """

    things: tuple[T, ...]
    how: str
    count: int = 0
    plural: bool = False
    free: bool = False

    def holds(self, predicate: Callable[[T], Truth], negated: bool = False) -> Truth:
        """Truth value of a predicate (or its negation) of the referent.

        Args:
            predicate: Says whether it is true of one thing.
            negated: Whether the sentence says "not".
        """
        truths = [predicate(thing) for thing in self.things]
        how = self.how
        if negated:
            # "All pots are not ready" may mean that none is, or that not all are: true only if both agree.
            if how in ("no", "count"):
                return None
            how = "the" if how == "all" else how
            truths = [inverse(truth) for truth in truths]
        if how == "all":
            return every(truths)
        if how in ("any", "no"):
            return some(truths) if how == "any" else inverse(some(truths))
        if how == "count":
            sure = truths.count(True)
            return counted(self.count, sure, sure + truths.count(None))
        return truths[0] if len(set(truths)) == 1 else None


def counted(number: int, low: int, high: int) -> Truth:
    """Truth value of a count that lies in `low` to `high`; more than said is neither true nor false."""
    if high < number:
        return False
    return True if low == high == number else None


def _how(match: re.Match[str], things: tuple[T, ...]) -> Named[T] | None:
    """A noun phrase's things and what its determiner says of them."""
    det, plural = match["det"], bool(match["plural"])
    if not things or (match["size"] and (int(match["size"]) != len(things) or det == "the" and not plural)):
        return None
    free = det in (None, "the", "a", "an", "any", "some")
    if det in (None, "the"):
        return Named(things, "all" if plural else "the", plural=plural, free=free)
    if det in ("a", "an", "any", "some"):
        return None if plural else Named(things, "any", free=free)
    if det in _EVERY:
        return None if det == "both" and len(things) != 2 else Named(things, "all", plural=plural)
    if det in ("no", "none", "neither"):
        return Named(things, "no", plural=plural)
    return Named(things, "count", count=int(det), plural=plural)


def named_cooks(phrase: str) -> Named[int] | None:
    """The cooks that a phrase names, or `None`."""
    if phrase in COOKS:
        return Named((COOKS.index(phrase),), "the")
    match = _COOK.fullmatch(phrase)
    return _how(match, (0, 1)) if match else None


def named_places(places: Places, phrase: str) -> tuple[int, Named[Cell]] | None:
    """The kind of cell and the cells that a phrase names, or `None`."""
    if floor := _FLOOR.fullmatch(phrase):
        cell = (int(floor[1]), int(floor[2]))
        return (FLOOR, Named((cell,), "the")) if cell in places.room_of else None
    match = _PLACE.fullmatch(phrase)
    if match is None:
        return None
    kind = _NOUNS[match["noun"]]
    cells = _cells(places, kind, match)
    named = _how(match, cells)
    if named is not None and match["numbers"]:
        named = Named(cells, "all" if len(cells) > 1 else "the", plural=len(cells) > 1)
    return None if named is None else (kind, named)


def _cells(places: Places, kind: int, match: re.Match[str]) -> tuple[Cell, ...]:
    cells, word, side = places.fixtures[kind], KIND_WORDS[kind], match["side"]
    if match["family"]:
        if kind != COUNTER:
            return ()
        word = SHARED if match["family"] == "shared" else SIDE
        cells = tuple(cell for cell in cells if places.names[cell].startswith(word))
    if match["numbers"]:
        named = [places.cells.get(f"{word} {number}") for number in match["numbers"].split("+")]
        return tuple(cell for cell in named if cell is not None) if None not in named and not side else ()
    if not side:
        return cells
    if f"{side} {word}" in places.cells:
        return (places.cells[f"{side} {word}"],)
    if len(cells) != 2:
        return ()
    # Of two pots named "upper" and "right" one is the left one as well.
    axis = 0 if side in ("left", "right") else 1
    first, last = sorted(cells, key=lambda cell: cell[axis])
    return () if first[axis] == last[axis] else ((first,) if side in ("left", "upper") else (last,))


@dataclass(frozen=True)
class Thing:
    """Things that a noun phrase speaks of.

    Attributes:
        kind: "onion", "dish", "soup", or "something".
        number: Number; `None` for one or more.
        several: Whether "some onions" may mean more than one.
        of_three: Whether it was "2 of 3 onions".
        how: Words before the noun: "ready", "plated", ...
        onions: Of a soup: its onions, if said.
    """

    kind: str
    number: int | None
    several: bool = False
    of_three: bool = False
    how: tuple[str, ...] = ()
    onions: int | None = None

    def range(self, items: Iterable[Item | None]) -> tuple[int, int]:
        """Number of such things among items on counters or in hands: at least, at most.

        A soup is on a plate, so it may or may not count as one; not as an empty one.
        """
        low = high = 0
        for item in items:
            if item is None:
                continue
            if self.kind == "dish" and item.kind == "soup" and "empty" not in self.how:
                high += 1
            elif self.kind in (item.kind, "something") and self._fits(item):
                low, high = low + 1, high + 1
        return low, high

    def _fits(self, item: Item) -> bool:
        if item.kind == "soup" and ("cooking" in self.how or not self._of(item)):
            return False
        return not ("plated" in self.how and item.kind != "soup")

    def _of(self, soup: Item) -> bool:
        """True if a soup is of as many onions as said, and of nothing else."""
        return self.onions is None or (self.onions, 0) == (soup.onions, soup.tomatoes)

    def matches(self, low: int, high: int) -> Truth:
        """Truth value of the claim that `low` to `high` such things are as many as said."""
        if self.number is not None:
            return counted(self.number, low, high) if self.number else (False if low else None if high else True)
        if high == 0:
            return False
        return True if low > (1 if self.several else 0) else None

    def in_pot(self, soup: Item | None) -> Truth:
        """Truth value of the claim that a pot holds so many such things."""
        if self.kind == "something":
            return inverse(soup is None) if self.number is None else soup is None
        if self.kind == "onion":
            return self._onions_in_pot(soup)
        if self.kind == "dish" or "plated" in self.how or soup is None or soup.tick < 0:
            return self.matches(0, 0)
        if not self._of(soup) or ("ready" if soup.ready else "cooking") in self._other_states():
            return self.matches(0, 0)
        # What cooks may or may not be called a soup, unless the sentence says that it cooks.
        return self.matches(int(soup.ready or "cooking" in self.how), 1)

    def _other_states(self) -> tuple[str, ...]:
        return tuple(
            {"ready": "cooking", "cooking": "ready"}[word] for word in self.how if word in ("ready", "cooking")
        )

    def _onions_in_pot(self, soup: Item | None) -> Truth:
        onions = soup.onions if soup is not None else 0
        if self.of_three:
            return self.number == onions and (soup is None or soup.tick < 0)
        if self.number is None:
            right: Truth = None if self.several and onions == 1 else onions > 0
        else:
            right = self.number == onions
        # When a soup is ready its onions are onions no more; while it cooks they are, and can be counted.
        return None if soup is not None and soup.ready and (right is not False or not self.number) else right


def thing(phrase: str) -> Thing | None:
    """Things that a phrase speaks of, or `None`."""
    if phrase in ("nothing", "something"):
        return Thing("something", 0 if phrase == "nothing" else None)
    match = _ITEM.fullmatch(phrase)
    if match is None or match["more"]:
        return None
    how = tuple(match["how"].split())
    allowed = {"onion": (), "dish": ("empty",), "soup": ("ready", "cooking", "plated")}[match["kind"]]
    if any(word not in allowed for word in how) or (match["onions"] and match["kind"] != "soup"):
        return None
    det, plural = match["det"], bool(match["plural"])
    of_three = bool(det) and det.endswith(f" of {FULL}")
    if of_three and match["kind"] != "onion":
        return None
    number = 0 if det == "no" else int(det.split()[0]) if det and det[0].isdigit() else None
    onions = int(match["onions"]) if match["onions"] else None
    return Thing(match["kind"], number, plural and det in ("some", "any"), of_three, how, onions)
