"""RED's label for what officers order at a decision: one collective command per commander, with its units.

Officers give each unit an order of its own; RED's action (`collective_command`) is one command for all flagged units.
The label keeps one group of orders per commander and decision. Officers look at the game anew at each decision, so what
is left out is ordered again at the next ones, if it is still wanted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from rllib_llm_comm.core.errors import require_choice
from rllib_llm_comm.envs.minirts.collective_command import (
    ATTACK,
    BUILD,
    BUILD_AT,
    CELL_AT,
    ENEMY_AT,
    GATHER,
    GO_ON_AT,
    HEADS,
    KIND_AT,
    MOST_UNITS,
    MOVE,
    RESOURCE_AT,
    SITE_AT,
    SIZES,
    TRAIN,
    TRAIN_AT,
    listed_units,
    nothing_new,
)
from rllib_llm_comm.envs.minirts.commanders.executor import Executor, Orders
from rllib_llm_comm.envs.minirts.commanders.tasks import NOTHING, WAIT, Command
from rllib_llm_comm.envs.minirts.engine import state
from rllib_llm_comm.envs.minirts.engine.mapgen import SIZE
from rllib_llm_comm.envs.minirts.engine.unit_order import Order
from rllib_llm_comm.envs.minirts.side import Side

MAJORITY, SAME, TURNS = "majority", "same", "turns"
RULES = (MAJORITY, SAME, TURNS)
"""Rules of the label."""
_KIND = {state.GATHER: GATHER, state.ATTACK: ATTACK, state.BUILD: BUILD, state.TRAIN: TRAIN, state.MOVE: MOVE}
ARGUMENT_AT = {GATHER: RESOURCE_AT, ATTACK: ENEMY_AT, TRAIN: TRAIN_AT, BUILD: BUILD_AT, MOVE: CELL_AT}
"""Place in an action of the argument of each kind of command; a building has a cell, too."""
Meaning = tuple[int, int, int]
"""Kind of a collective command, its argument, and its cell (-1 without one)."""


class CollectiveLabels:
    """Turns the orders of officers into RED's actions.

    Args:
        side: The side.
        rule: "majority", as of RED: the most frequent kind of order and the most frequent argument among its units, for
            all of them. "same": the same, for those units alone whose order it is. "turns" (ours): as "same", but of
            the kinds of orders the one that was left out at the most decisions in a row comes first.

    Raises:
        UserError: If there is no such rule.
    """

    def __init__(self, side: Side, rule: str = TURNS) -> None:
        require_choice("rule", rule, RULES)
        self._side, self._rule = side, rule
        self.begin()

    def begin(self) -> None:
        """Begins a game: nothing was left out."""
        self._left_out: list[Counter[int]] = [Counter() for _ in range(self._side.size)]

    def actions(self, orders: Sequence[Order]) -> list[np.ndarray]:
        """RED's action of each commander, int64 (58,), for the orders of the officers at this decision."""
        by_unit = {order.unit: order for order in orders}
        return [self._action(commander, by_unit) for commander in range(self._side.size)]

    def _action(self, commander: int, by_unit: dict[int, Order]) -> np.ndarray:
        meant: dict[int, Meaning] = {}
        for row, unit in enumerate(listed_units(self._side, commander)):
            meaning = self._meaning(by_unit[unit.ref]) if unit.ref in by_unit else None
            if meaning is not None:
                meant[row] = meaning
        if not meant:
            return nothing_new()
        chosen = self._chosen(meant, self._left_out[commander])
        kind, argument, cell = chosen
        action = np.zeros(len(SIZES), np.int64)
        action[KIND_AT], action[ARGUMENT_AT[kind]] = kind, argument
        if kind == BUILD:
            action[SITE_AT] = cell
        for row, meaning in meant.items():
            action[len(HEADS) + row] = meaning[0] == kind if self._rule == MAJORITY else meaning == chosen
        return action

    def _chosen(self, meant: dict[int, Meaning], left_out: Counter[int]) -> Meaning:
        """The command of this decision; counts what is left out."""
        kinds = Counter(meaning[0] for meaning in meant.values())
        waited = left_out if self._rule == TURNS else Counter[int]()
        kind = max(kinds, key=lambda one: (waited[one], kinds[one], -one))
        for other in list(left_out):
            if other not in kinds:
                del left_out[other]
        left_out.update(one for one in kinds if one != kind)
        left_out.pop(kind, None)
        return Counter(meaning for meaning in meant.values() if meaning[0] == kind).most_common(1)[0][0]

    def _meaning(self, order: Order) -> Meaning | None:
        """An order as a collective command; None for what RED's action cannot say (a target beyond the lists)."""
        kind, cell = _KIND[order.kind], _cell(order)
        if kind in (GATHER, ATTACK):
            listed = (self._side.resources if kind == GATHER else self._side.enemies)[:MOST_UNITS]
            place = next((place for place, unit in enumerate(listed) if unit.ref == order.target), None)
            return None if place is None else (kind, place, -1)
        if kind == MOVE:
            return kind, cell, -1
        return (kind, order.what, cell) if kind == BUILD else (kind, order.what, -1)


def _cell(order: Order) -> int:
    x, y = (min(max(int(part + 0.5), 0), SIZE - 1) for part in (order.x, order.y))
    return y * SIZE + x


_ASTRAY = 2
HOLD = (5, 15)
"""Fewest and most decisions for which a moody commander holds a command that is not done."""


def disturbed(action: np.ndarray, side: Side, rng: np.random.Generator, delay: float, wrong: float) -> np.ndarray:
    """A collective command as an imperfect officer gives it: perhaps not yet, perhaps for a wrong target.

    A wrong target is any known enemy or resource, a building site up to two columns and rows away, or any cell to go
    to. What is trained or built stays as it is.

    Args:
        action: RED's action, int64 (58,).
        side: The side.
        rng: Draws.
        delay: Chance that nothing is ordered at this decision.
        wrong: Chance of a wrong target.
    """
    late, astray = rng.random(2) < (delay, wrong)
    if action[GO_ON_AT] or late:
        return nothing_new()
    if not astray:
        return action
    changed, kind = action.copy(), int(action[KIND_AT])
    if kind in (GATHER, ATTACK):
        listed = side.resources if kind == GATHER else side.enemies
        changed[RESOURCE_AT if kind == GATHER else ENEMY_AT] = rng.integers(min(len(listed), MOST_UNITS))
    elif kind == BUILD:
        row, column = np.array(divmod(int(action[SITE_AT]), SIZE)) + rng.integers(-_ASTRAY, _ASTRAY + 1, 2)
        changed[SITE_AT] = np.clip(row, 0, SIZE - 1) * SIZE + np.clip(column, 0, SIZE - 1)
    elif kind == MOVE:
        changed[CELL_AT] = rng.integers(SIZE * SIZE)
    return changed


class MoodyCommander:
    """Gives random commands, each until it is done or for 5 to 15 decisions; then all that it commanded is undone."""

    def __init__(self, executor: Executor, commands: Sequence[Command], rng: np.random.Generator) -> None:
        self._executor, self._rng = executor, rng
        self._commands = [command for command in commands if command.verb != WAIT]
        self._left = [0] * executor.side.size

    def __call__(self, commander: int) -> Command:
        """The command of a commander at a decision."""
        orders = self._executor.orders[commander]
        self._left[commander] -= 1
        busy = bool(orders.jobs) or orders != Orders()
        if self._left[commander] > 0 and busy:
            return NOTHING
        self._executor.orders[commander] = Orders()
        allowed = [one for one in self._commands if not self._executor.refusal(commander, one)]
        if not allowed:
            return NOTHING
        self._left[commander] = int(self._rng.integers(HOLD[0], HOLD[1] + 1))
        return allowed[int(self._rng.integers(len(allowed)))]
