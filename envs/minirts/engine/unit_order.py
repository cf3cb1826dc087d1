"""Orders to units as small objects, and how they are handed to the compiled rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Protocol

import numpy as np

from rllib_llm_comm.envs.minirts.engine import state

OUTCOMES = ("done", "dropped", "not allowed")


class Addressed(Protocol):
    """Whatever has an owner and a reference, such as `game.Unit`."""

    @property
    def player(self) -> int:
        """The owner."""

    @property
    def ref(self) -> int:
        """The reference."""


@dataclass(frozen=True)
class Order:
    """An order to one unit. `move`, `attack`, `gather`, `build` and `train` make them.

    Attributes:
        player: Player that gives it.
        unit: Reference to the unit.
        kind: `state.MOVE`, `ATTACK`, `GATHER`, `BUILD` or `TRAIN`.
        target: Reference to what is attacked or gathered from.
        hall: Reference to the town hall that loads are brought to.
        what: Type that is built or trained.
        x: Target column, in cells (MOVE, BUILD).
        y: Target row, in cells.
    """

    player: int
    unit: int
    kind: int
    target: int = state.NO_ONE
    hall: int = state.NO_ONE
    what: int = state.NO_ONE
    x: float = 0.0
    y: float = 0.0


def move(unit: Addressed, x: float, y: float) -> Order:
    """Go somewhere."""
    return Order(unit.player, unit.ref, state.MOVE, x=x, y=y)


def attack(unit: Addressed, target: Addressed) -> Order:
    """Attack a unit or building until it is gone or out of sight."""
    return Order(unit.player, unit.ref, state.ATTACK, target=target.ref)


def gather(unit: Addressed, hall: Addressed, resource: Addressed) -> Order:
    """Carry loads from a resource to a town hall."""
    return Order(unit.player, unit.ref, state.GATHER, target=resource.ref, hall=hall.ref)


def build(unit: Addressed, what: int, x: float, y: float) -> Order:
    """Put up a building."""
    return Order(unit.player, unit.ref, state.BUILD, what=what, x=x, y=y)


def train(house: Addressed, what: int) -> Order:
    """Make a unit."""
    return Order(house.player, house.ref, state.TRAIN, what=what)


def pack(orders: Sequence[Order]) -> np.ndarray:
    """Orders as records `state.ORDER`."""
    return np.array([astuple(order) for order in orders], state.ORDER)
