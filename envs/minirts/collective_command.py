"""RED's action: one collective command with its arguments, and for each unit whether it goes along.

An action is `MultiDiscrete`, in this order: kind of command (7), resource to gather from (50), enemy to attack (50),
type to train (16), type to build (16), cell to build on (1024), cell to move to (1024), go on (2), and for each of up
to 50 own units whether it takes the command (2 each). Indices are those of the lists in the observation. Cells are
y * 32 + x. Units without a flag, and all units if "go on" is 1, keep the orders they have. What a flagged unit cannot
do is dropped without a word; so is what the money that is left does not pay for, in the order of the units.

Officers give each unit an order of its own. RED's label for what they order at a decision is one collective command per
commander, so it keeps one group of orders. Officers look at the game anew at each decision, so what is left out is
ordered again at the next ones, if it is still wanted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from rllib_llm_comm.core.errors import UserError, require_choice
from rllib_llm_comm.envs.minirts.engine import rts_game, state
from rllib_llm_comm.envs.minirts.engine.mapgen import SIZE
from rllib_llm_comm.envs.minirts.engine.rts_game import Order, Unit
from rllib_llm_comm.envs.minirts.engine.state import CELLS
from rllib_llm_comm.envs.minirts.engine.units import (
    CAN_ATTACK,
    COST,
    GUARD_TOWER,
    IS_MOBILE,
    MADE_BY,
    NUM_TYPES,
    PEASANT,
)
from rllib_llm_comm.envs.minirts.executor import tower_orders
from rllib_llm_comm.envs.minirts.side import Side, distance

MOST_UNITS = 50
"""Own units, enemies and resources that are listed."""
STAY, GATHER, ATTACK, BUILD, TRAIN, MOVE, GO_ON = range(7)
KIND_WORDS = ("stay", "gather", "attack", "build", "train", "move", "go on")
"""The kinds of commands in words."""
HEADS = (7, MOST_UNITS, MOST_UNITS, NUM_TYPES, NUM_TYPES, CELLS, CELLS, 2)
"""Sizes of the command's parts: kind, resource, enemy, type to train, type to build, cell to build on, cell to move to,
go on."""
KIND_AT, RESOURCE_AT, ENEMY_AT, TRAIN_AT, BUILD_AT, SITE_AT, CELL_AT, GO_ON_AT = range(len(HEADS))
"""Places of these parts in an action; the flags of the units come behind them."""
SIZES = [*HEADS, *[2] * MOST_UNITS]
_SPACE = spaces.MultiDiscrete(SIZES)
# As plain numbers, which are quicker to look up one by one.
_MAKER_OF, _FIGHTS, _MOVES = MADE_BY.tolist(), CAN_ATTACK.tolist(), IS_MOBILE.tolist()


def nothing_new() -> np.ndarray:
    """The action of a commander whose units all keep their orders, int64 (58,)."""
    action = np.zeros(len(SIZES), np.int64)
    action[KIND_AT], action[GO_ON_AT] = GO_ON, 1
    return action


def listed_units(side: Side, commander: int) -> list[Unit]:
    """The units that a commander's flags stand for: its own finished ones, the first 50."""
    return side.units_of(commander)[:MOST_UNITS]


def checked_actions(actions: Mapping[str, Any], agents: Sequence[str]) -> list[np.ndarray | None]:
    """The actions of one call of `step`, int64 (58,) per agent.

    Raises:
        UserError: For an unknown agent, or a missing or impossible action.
    """
    for agent in actions:
        if agent not in agents:
            raise UserError(f"`actions` has an entry for {agent!r}, but the agents are {list(agents)}.")
    found = list[np.ndarray | None]()
    for agent in agents:
        if agent not in actions:
            raise UserError(f"`actions` has no entry for {agent!r}; give one for every agent.")
        action = np.asarray(actions[agent])
        if action.shape != _SPACE.shape or not ((action >= 0) & (action < _SPACE.nvec)).all():
            raise UserError(
                f"`actions[{agent!r}]` is not in the action space, {len(SIZES)} whole numbers; see "
                "`envs.minirts.collective_command`."
            )
        found.append(action.astype(np.int64))
    return found


def orders_of(side: Side, actions: Sequence[np.ndarray | None]) -> list[Order]:
    """The orders that the commanders' actions mean; one whose action is `None` says nothing."""
    given: list[Order] = []
    budget = side.money
    for commander, action in enumerate(actions):
        if action is None or action[GO_ON_AT] or action[KIND_AT] in (STAY, GO_ON):
            continue
        for flag, unit in zip(action[len(HEADS) :], listed_units(side, commander), strict=False):
            one = _order(side, unit, action) if flag else None
            if one is None:
                continue
            cost = int(COST[one.what]) if one.what >= 0 else 0
            if cost <= budget:
                budget -= cost
                given.append(one)
    sent = {one.unit for one in given}
    shooting = [unit for unit in side.own if unit.type == GUARD_TOWER and unit.ref not in sent]
    return [*given, *tower_orders(side, shooting)]


def _order(side: Side, unit: Unit, action: np.ndarray) -> Order | None:
    kind, resource, enemy, trained, built, site, place = (int(part) for part in action[:7])
    if kind == GATHER and unit.type == PEASANT and side.halls and resource < len(side.resources):
        hall = min(side.halls, key=lambda h: distance(h, unit))
        return rts_game.gather(unit, hall, side.resources[resource])
    if kind == ATTACK and CAN_ATTACK[unit.type] and enemy < len(side.enemies):
        return rts_game.attack(unit, side.enemies[enemy])
    if kind == BUILD and unit.type == PEASANT and MADE_BY[built] == PEASANT and unit.order != "BUILD":
        return rts_game.build(unit, built, site % SIZE, site // SIZE)
    if kind == TRAIN and MADE_BY[trained] == unit.type and unit.type != PEASANT and unit.order == "IDLE":
        return rts_game.train(unit, trained)
    if kind == MOVE and IS_MOBILE[unit.type]:
        return rts_game.move(unit, place % SIZE, place // SIZE)
    return None


def masks(side: Side, commander: int) -> np.ndarray:
    """int8 (sum(SIZES),): what each part of an action may be, part after part; at least one value of each part."""
    own = listed_units(side, commander)
    types = {unit.type for unit in own}
    enemies, resources = side.enemies[:MOST_UNITS], side.resources[:MOST_UNITS]
    trained = [maker in types and maker != PEASANT and maker >= 0 for maker in _MAKER_OF]
    built = [maker == PEASANT and PEASANT in types for maker in _MAKER_OF]
    kinds = [
        True,
        PEASANT in types and bool(side.halls) and bool(resources),
        any(_FIGHTS[kind] for kind in types) and bool(enemies),
        any(built),
        any(trained),
        any(_MOVES[kind] for kind in types),
        True,
    ]
    out, first = np.ones(sum(SIZES), np.int8), 0
    for part in (kinds, _first(len(resources)), _first(len(enemies)), trained, built):
        out[first : first + len(part)] = part
        out[first] |= not any(part)
        first += len(part)
    out[sum(HEADS) + 2 * len(own) + 1 :: 2] = 0
    return out


def _first(count: int) -> list[bool]:
    return [True] * count + [False] * (MOST_UNITS - count)


# ---- the label of what officers order ----------------------------------------------------------------

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
