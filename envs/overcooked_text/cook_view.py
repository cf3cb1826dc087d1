"""View of one cook as plain data: the form between the game's state and its words.

The same form is filled by the game (`observation_text.py`) and by the made-up kitchens on which the embedded language
model is pre-trained, so both speak the same sentences.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

BOWL = "bowl"
LEFT, RIGHT, ONE_ROOM = "left", "right", "one"
COUNTER, SHELF = "counter", "shelf"
BOARDS = ("first board", "second board")


class Item(NamedTuple):
    """A food or a bowl.

    Attributes:
        name: A food's name or `"bowl"`.
        chopped: For a food, whether it is chopped.
        contents: For a bowl, the names of the (chopped) foods in it, sorted.
    """

    name: str
    chopped: bool = False
    contents: tuple[str, ...] = ()

    @property
    def is_bowl(self) -> bool:
        """True if this is a bowl."""
        return self.name == BOWL


@dataclass(frozen=True)
class Partner:
    """Another cook that is seen.

    Attributes:
        name: Its name.
        holding: Item in its hands.
    """

    name: str
    holding: Item | None = None


@dataclass(frozen=True)
class View:
    """View of one cook: its sight and the item in its hands.

    Attributes:
        name: The cook's own name.
        dish: Names of the foods of the dish, sorted; empty for a cook that is not told the order.
        room: `"left"`, `"right"` or `"one"` (nothing divides the kitchen).
        at: The board or delivery spot that the cook stands in front of, or the empty string.
        holding: Item in its hands.
        boards: For each board its name and what lies on it, for boards that are seen.
        counter: Items in sight on the shared counter, or `None` if there is none in sight.
        shelf: Items in sight on the shelves along the walls.
        partners: The other cooks that are seen.
        others_told: Whether every other cook is told the order, too. Nothing in the words tells it.
    """

    name: str
    dish: tuple[str, ...]
    room: str
    at: str = ""
    holding: Item | None = None
    boards: tuple[tuple[str, Item | None], ...] = ()
    counter: tuple[Item, ...] | None = None
    shelf: tuple[Item, ...] = ()
    partners: tuple[Partner, ...] = ()
    others_told: bool = True


class Option(NamedTuple):
    """Effect that an action would have now.

    Attributes:
        kind: One of `wait`, `get` (take `item` from `place`), `fill` (put the chopped food `item` at `place` into
            the own bowl), `add` (put the own chopped food `item` into the bowl at `place`), `place` (put `item` on
            the board `place`), `counter` (put `item` on the counter), `walk` (go to `place`), `chop` (`item` on the
            board in front), `serve` (bring `item` to the delivery), `move` (one step, direction in `place`),
            `nothing` (the action would have no effect).
        item: The thing concerned.
        place: A board, `"counter"`, `"shelf"`, or a direction.
    """

    kind: str
    item: Item | None = None
    place: str = ""
