"""RED's action: one collective command with its arguments, and for each unit whether it goes along.

An action is `MultiDiscrete`, in this order: kind of command (7), resource to gather from (50), enemy to attack (50),
type to train (16), type to build (16), cell to build on (1024), cell to move to (1024), go on (2), and for each of up
to 50 own units whether it takes the command (2 each). Indices are those of the lists in the observation. Cells are
y * 32 + x. Units without a flag, and all units if "go on" is 1, keep the orders they have. What a flagged unit cannot
do is dropped without a word; so is what the money that is left does not pay for, in the order of the units.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.minirts.engine import tactics
from rllib_llm_comm.envs.minirts.engine import unit_order as order
from rllib_llm_comm.envs.minirts.engine.mapgen import SIZE
from rllib_llm_comm.envs.minirts.engine.rts_game import Unit
from rllib_llm_comm.envs.minirts.engine.state import CELLS
from rllib_llm_comm.envs.minirts.engine.unit_order import Order
from rllib_llm_comm.envs.minirts.engine.units import (
    CAN_ATTACK,
    COST,
    GUARD_TOWER,
    IS_MOBILE,
    MADE_BY,
    NUM_TYPES,
    PEASANT,
)
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
    return [*given, *tactics.towers(side, shooting)]


def _order(side: Side, unit: Unit, action: np.ndarray) -> Order | None:
    kind, resource, enemy, trained, built, site, place = (int(part) for part in action[:7])
    if kind == GATHER and unit.type == PEASANT and side.halls and resource < len(side.resources):
        hall = min(side.halls, key=lambda h: distance(h, unit))
        return order.gather(unit, hall, side.resources[resource])
    if kind == ATTACK and CAN_ATTACK[unit.type] and enemy < len(side.enemies):
        return order.attack(unit, side.enemies[enemy])
    if kind == BUILD and unit.type == PEASANT and MADE_BY[built] == PEASANT and unit.order != "BUILD":
        return order.build(unit, built, site % SIZE, site // SIZE)
    if kind == TRAIN and MADE_BY[trained] == unit.type and unit.type != PEASANT and unit.order == "IDLE":
        return order.train(unit, trained)
    if kind == MOVE and IS_MOBILE[unit.type]:
        return order.move(unit, place % SIZE, place // SIZE)
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
