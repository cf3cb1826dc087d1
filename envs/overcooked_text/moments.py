"""Moments of a kitchen as plain values that never change: what planners see, and what tests of subgoals compare."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rllib_llm_comm.envs.overcooked_text.rules import Kitchen


class Moment(NamedTuple):
    """A moment of a kitchen.

    Attributes:
        time: Game steps before it.
        order: The dish that is ordered, as in the setting `recipe`.
        served: Number of orders delivered.
        cells: Cell number of each food and plate by name; of what is held or lies in a bowl that of its holder.
        chopped: Names of the foods that are chopped.
        contents: Names of the foods in each plate, by its name.
        cooks: Cell number of each cook.
        held: Name of the item in each cook's hands, or `None`.
        boards: Name of what lies on each cutting board, or `None`.
        events: Per cook what it did in the game step that led here, such as "chopped tomato".
    """

    time: int
    order: str
    served: int
    cells: dict[str, int]
    chopped: frozenset[str]
    contents: dict[str, tuple[str, ...]]
    cooks: tuple[int, ...]
    held: tuple[str | None, ...]
    boards: tuple[str | None, ...]
    events: tuple[tuple[str, ...], ...]


def moment(kitchen: Kitchen, events: Sequence[Sequence[str]] = ()) -> Moment:
    """The moment that a kitchen is in.

    Args:
        kitchen: The kitchen.
        events: Per cook the events of the last game step; none at the start.
    """
    cooks = kitchen.agents
    return Moment(
        kitchen.game_step,
        kitchen.recipe,
        kitchen.served,
        {name: item.cell for name, item in kitchen.items.items()},
        frozenset([name for name, food in kitchen.foods.items() if food.chopped]),
        {plate.name: tuple([food.name for food in plate.contents]) for plate in kitchen.plates},
        tuple([cook.cell for cook in cooks]),
        tuple([cook.held.name if cook.held else None for cook in cooks]),
        tuple([board.on.name if board.on else None for board in kitchen.knives]),
        tuple([tuple(done) for done in events]) or ((),) * len(cooks),
    )
