"""The things in the kitchen, and what happens when a cook touches one: one pure function that both the game
and the preview of an action use, so that a phrase can never promise something else than the game does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from rllib_llm_comm.envs.overcooked_text.layouts import FOOD_CODES, PLATE, SIZE

CHOPS_NEEDED = 3


class Thing:
    """Anything with a place.

    Attributes:
        name: Its name, unique in the kitchen.
        cell: Its cell number, `x * 7 + y`; for a held or contained object that of its holder.
        code: Its cell code in the grid.
    """

    __slots__ = ("name", "cell", "code")

    def __init__(self, name: str, cell: int, code: int) -> None:
        self.name = name
        self.cell = cell
        self.code = code

    @property
    def x(self) -> int:
        """The row."""
        return self.cell // SIZE

    @property
    def y(self) -> int:
        """The column."""
        return self.cell % SIZE

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, x={self.x}, y={self.y})"


class Food(Thing):
    """A food.

    Attributes:
        chops: Number of cuts, 0 to 3.
    """

    __slots__ = ("chops",)

    def __init__(self, name: str, cell: int) -> None:
        super().__init__(name, cell, FOOD_CODES[name])
        self.chops = 0

    @property
    def chopped(self) -> bool:
        """True if it was cut often enough."""
        return self.chops >= CHOPS_NEEDED


class Plate(Thing):
    """A plate (bowl).

    Attributes:
        contents: The chopped foods in it, in the order in which they came.
    """

    __slots__ = ("contents",)

    def __init__(self, name: str, cell: int) -> None:
        super().__init__(name, cell, PLATE)
        self.contents: list[Food] = []


Item = Food | Plate
"""Item that can be held."""


class Knife(Thing):
    """A cutting board, or the delivery hatch.

    Attributes:
        on: Item that lies on it.
    """

    __slots__ = ("on",)

    def __init__(self, name: str, cell: int, code: int) -> None:
        super().__init__(name, cell, code)
        self.on: Item | None = None


class Agent(Thing):
    """A cook.

    Attributes:
        held: Item in its hands.
    """

    __slots__ = ("held",)

    def __init__(self, name: str, cell: int, code: int) -> None:
        super().__init__(name, cell, code)
        self.held: Item | None = None


def place_item(item: Item, cell: int) -> None:
    """Moves an object and, with a plate, its contents to a cell number."""
    item.cell = cell
    if isinstance(item, Plate):
        for food in item.contents:
            food.cell = cell


def carry(cook: Agent, cell: int) -> None:
    """Moves a cook and what it holds to a cell number."""
    cook.cell = cell
    if cook.held is not None:
        place_item(cook.held, cell)


class Effect(NamedTuple):
    """Effect of an action, real or expected.

    Attributes:
        kind: `"none"` (nothing at all happens), `"wait"`, `"move"` (one step, direction in `place`), `"walk"`
            (only goes to `place`), `"pick_up"` (`item` from `place`), `"put_down"` (`item` on a counter),
            `"place_on_board"` (`item` on the board `place`), `"chop"` (`item` on the board `place`),
            `"add_to_plate"` (the food `item` into `plate`), `"deliver"` (`item`).
        item: Name of the object concerned ("tomato", "plate1"), or the empty string.
        place: "counter" (any counter, also along the walls), "knife1", "knife2", "delivery", or a direction.
        cell: `(x, y)` of the place, or None.
        plate: For `"add_to_plate"` the plate's name.
        into_held: For `"add_to_plate"`: the cook holds the plate and the food lies at `place` (else the cook
            holds the food and the plate stands at `place`).
        takes_plate: For `"add_to_plate"`: the cook holds the plate afterwards although it stood at `place`
            before.
        correct: For `"deliver"`: whether this is the dish ordered.
    """

    kind: str
    item: str = ""
    place: str = ""
    cell: tuple[int, int] | None = None
    plate: str = ""
    into_held: bool = False
    takes_plate: bool = False
    correct: bool | None = None


NOTHING = Effect("none")
WAIT = Effect("wait")


class Lying(NamedTuple):
    """An object on a surface, as the toucher knows it.

    Attributes:
        item: The object.
        chopped: For a food, whether it is chopped.
    """

    item: Item
    chopped: bool


def lying_item(item: Item | None) -> Lying | None:
    """Item that truly lies somewhere, or None for nothing."""
    return None if item is None else Lying(item, isinstance(item, Food) and item.chopped)


def touch(held: Item | None, place: str, cell: int, lying: Lying | None) -> Effect:
    """Effect of a cook's touch on a counter or a board.

    Args:
        held: Item in the cook's hands.
        place: "counter" or a board's name.
        cell: The cell number of the place.
        lying: Item that lies there.

    Returns:
        The effect; `NOTHING` when touching has none.
    """
    where = divmod(cell, SIZE)
    on_board = place != "counter"
    if held is None:
        if lying is None:
            return NOTHING
        item = lying.item
        if on_board and isinstance(item, Food) and not lying.chopped:
            return Effect("chop", item.name, place, where)
        return Effect("pick_up", item.name, place, where)
    if lying is None:
        return Effect("place_on_board" if on_board else "put_down", held.name, place, where)
    item = lying.item
    if isinstance(held, Plate):
        if isinstance(item, Food) and lying.chopped:
            return Effect("add_to_plate", item.name, place, where, held.name, into_held=True)
        return NOTHING
    if isinstance(item, Plate) and held.chops >= CHOPS_NEEDED:
        return Effect("add_to_plate", held.name, place, where, item.name, takes_plate=on_board)
    return NOTHING


@dataclass(slots=True)
class StepOutcome:
    """Outcome of one game step.

    Attributes:
        rewards: Per agent.
        done: Whether the right dish was delivered.
        blocked: Agents that chose a move into a floor cell and stayed where they were.
        swaps: Pairs of agents that exchanged their cells.
        events: Per agent, what it did: "pick_up tomato", "put_down tomato", "place_on_board tomato", "chop
            tomato" (one cut), "chopped tomato" (the last cut), "add_to_plate tomato", "correct_delivery",
            "wrong_delivery", "blocked", "swapped".
        primitive: The primitive actions carried out.
    """

    rewards: list[float]
    done: bool
    blocked: list[int]
    swaps: list[tuple[int, int]]
    events: list[list[str]]
    primitive: list[int] = field(default_factory=list)
