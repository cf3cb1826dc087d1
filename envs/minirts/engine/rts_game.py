"""The game: orders, the rules of a tick, and the game as an object. Knows nothing of agents or pictures.

game = RTSGame(seed=3, settings=RTSSettings(opponents=(None, "medium")))
game.run(49)                                            # to the first decision
peasant = game.units(0, kind=PEASANT)[0]
game.step([build(peasant, BARRACK, 10, 12)], ticks=50)  # an order, and on to the next decision
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass
from functools import cache
from typing import Any

import numpy as np
from numba import njit
from pydantic import Field

from rllib_llm_comm.core.errors import LARGEST, UserError
from rllib_llm_comm.core.settings import Settings
from rllib_llm_comm.envs.compiling import compiling
from rllib_llm_comm.envs.minirts.engine import mapgen, opponents, state
from rllib_llm_comm.envs.minirts.engine.mapgen import SIZE, MapSettings
from rllib_llm_comm.envs.minirts.engine.movement import reference, resolve, update_fog
from rllib_llm_comm.envs.minirts.engine.opponents import act
from rllib_llm_comm.envs.minirts.engine.state import (
    BROKEN,
    DRAWN,
    FAILURE_TICKS,
    FINISHED,
    IDLE,
    NO_ONE,
    RUNNING,
    SITE,
    WON,
    draw,
    fingerprint,
    rule,
    seed_stream,
)
from rllib_llm_comm.envs.minirts.engine.unit_commands import add_unit, carry_out_all, give, queue_hit, run_orders
from rllib_llm_comm.envs.minirts.engine.units import BUILD_TICKS, HP, IS_BUILDING, IS_MOBILE, NAMES, RESOURCE, TOWN_HALL

UNITS_AT = 2
"""The tick at which the map and the first units appear."""


class Economy(Settings):
    """What players have."""

    money: int = Field(500, ge=0, le=LARGEST)
    """Gold of each player at the start."""
    unit_cap: int = Field(50, ge=0, le=LARGEST)
    """Most units and buildings per player; 0 for no cap."""


class RTSSettings(Economy):
    """Settings of a game."""

    map: MapSettings = MapSettings()
    """The map."""
    opponents: tuple[str | None, str | None] = (None, None)
    """Per player the scripted opponent that plays (`opponents.parse`), or `None` where orders come from outside."""
    max_tick: int = Field(20_000, ge=0)
    """Tick at which the game is a draw; 0 for never."""
    frame_skip: int = Field(50, ge=1)
    """Scripted opponents act every so many ticks."""


@dataclass(frozen=True)
class Unit:
    """A unit, a building or a resource as it is now.

    Attributes:
        ref: Its name in orders.
        number: Number of units created before it.
        player: Its owner.
        type: Number of its type; see `rllib_llm_comm.envs.minirts.engine.units`.
        x: Position, in cells.
        y: Position, in cells.
        hp: Hit points.
        finished: Whether it is no building under construction.
        order: Name of its running order, "IDLE" if there is none; see
            `rllib_llm_comm.envs.minirts.engine.state.ORDER_NAMES`.
        making: Type that it builds or trains, -1 if none.
        target: Reference to what it attacks or gathers from, -1 if nothing.
    """

    ref: int
    number: int
    player: int
    type: int
    x: float
    y: float
    hp: int
    finished: bool
    order: str
    making: int
    target: int

    @property
    def name(self) -> str:
        """Name of its type."""
        return NAMES[self.type]

    @property
    def cell(self) -> tuple[int, int]:
        """(x, y) of the cell it stands on."""
        return int(self.x + 0.5), int(self.y + 0.5)


# ---- orders ------------------------------------------------------------------------------------------

OUTCOMES = ("done", "dropped", "not allowed")


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


def move(unit: Unit, x: float, y: float) -> Order:
    """Go somewhere."""
    return Order(unit.player, unit.ref, state.MOVE, x=x, y=y)


def attack(unit: Unit, target: Unit) -> Order:
    """Attack a unit or building until it is gone or out of sight."""
    return Order(unit.player, unit.ref, state.ATTACK, target=target.ref)


def gather(unit: Unit, hall: Unit, resource: Unit) -> Order:
    """Carry loads from a resource to a town hall."""
    return Order(unit.player, unit.ref, state.GATHER, target=resource.ref, hall=hall.ref)


def build(unit: Unit, what: int, x: float, y: float) -> Order:
    """Put up a building."""
    return Order(unit.player, unit.ref, state.BUILD, what=what, x=x, y=y)


def train(house: Unit, what: int) -> Order:
    """Make a unit."""
    return Order(house.player, house.ref, state.TRAIN, what=what)


def pack(orders: Sequence[Order]) -> np.ndarray:
    """Orders as records `state.ORDER`."""
    return np.array([astuple(order) for order in orders], state.ORDER)


# ---- the rules of a tick, compiled; `g` is a record `state.GAME`, `m` a record `state.MEMORY` ----------------

_BULLET_STEP = np.float32(0.2)
_HITS2 = np.float32(0.3) * np.float32(0.3)
_EXPLOSION_TICKS = 3
_MAX_FAILURES = 250
_POOR = 50


@rule
def _progress(g):  # type: ignore[no-untyped-def]
    """Construction sites grow."""
    for player in range(2):
        for i in range(g.count[player]):
            slot = g.roster[player, i]
            if g.stage[slot] == SITE:
                full = HP[g.type[slot]]
                # In this order and in float64, as the original rounds.
                g.hp[slot] = min(full, np.int32((g.tick - g.created[slot]) / BUILD_TICKS * full))


@rule
def _fly(g, at, target):  # type: ignore[no-untyped-def]
    """Moves a bullet towards the unit in a slot. Returns whether it is there already."""
    dx, dy = g.x[target] - g.b_x[at], g.y[target] - g.b_y[at]
    if dx * dx + dy * dy < _HITS2:
        return True
    length = np.float32(math.sqrt(dx * dx + dy * dy))
    # The quotient is rounded first, as in the original.
    shorter = _BULLET_STEP / length
    g.b_x[at] += dx * shorter
    g.b_y[at] += dy * shorter
    return False


@rule
def _drop_gone(g):  # type: ignore[no-untyped-def]
    """Takes off the bullets that are gone; the last one gets the number of each."""
    for at in range(g.num_bullets - 1, -1, -1):
        if 0 < g.b_gone_at[at] <= g.tick:
            last = g.num_bullets - 1
            g.b_shooter[at], g.b_target[at], g.b_type[at] = g.b_shooter[last], g.b_target[last], g.b_type[last]
            g.b_x[at], g.b_y[at], g.b_gone_at[at] = g.b_x[last], g.b_y[last], g.b_gone_at[last]
            g.num_bullets = last


@rule
def _bullets(g):  # type: ignore[no-untyped-def]
    """Bullets fly on, hit, or are lost because their target is gone.

    One that hit keeps its number for a while. This matters because the numbers tell which of two hits in a tick comes
    first, and so at whom a unit strikes back.
    """
    for at in range(g.num_bullets):
        if g.b_gone_at[at] > 0:
            continue
        target = resolve(g, g.b_target[at])
        if target == NO_ONE:
            g.b_gone_at[at] = g.tick
        elif _fly(g, at, target):
            queue_hit(g, g.b_target[at], g.b_shooter[at], g.b_type[at])
            g.b_gone_at[at] = g.tick + _EXPLOSION_TICKS
    _drop_gone(g)


@rule
def winner(g):  # type: ignore[no-untyped-def]
    """Present winner, or -1: the only one with a town hall, else the only one that is not ruined.

    Ruined is who has no money for a peasant and nothing that walks.
    """
    has_hall, ruined = np.zeros(2, np.bool_), np.zeros(2, np.bool_)
    for player in range(2):
        mobile = False
        for i in range(g.count[player]):
            kind = g.type[g.roster[player, i]]
            has_hall[player] |= kind == TOWN_HALL
            mobile |= IS_MOBILE[kind]
        ruined[player] = not mobile and g.money[player] < _POOR
    if has_hall[0] != has_hall[1]:
        return 0 if has_hall[0] else 1
    if ruined[0] != ruined[1]:
        return 1 if ruined[0] else 0
    return NO_ONE


@rule
def _judge(g):  # type: ignore[no-untyped-def]
    g.winner = winner(g)
    failures = 0
    for i in range(FAILURE_TICKS):
        failures += g.failed[i]
    if g.winner != NO_ONE:
        g.status = WON
    elif failures >= _MAX_FAILURES:
        g.status = BROKEN
    elif g.max_tick > 0 and g.tick >= g.max_tick:
        g.status = DRAWN


@rule
def _give_wishes(g, m, player):  # type: ignore[no-untyped-def]
    for i in range(g.count[player]):
        slot = g.roster[player, i]
        if g.stage[slot] != FINISHED or m.wish[slot] == IDLE:
            continue
        kind, target, hall, what = m.wish[slot], m.wish_target[slot], m.wish_hall[slot], m.wish_what[slot]
        give(g, player, reference(g, slot), kind, target, hall, what, m.wish_x[slot], m.wish_y[slot], True)


@rule
def _opponents_act(g, m):  # type: ignore[no-untyped-def]
    """Scripted opponents whose turn it is think on the same state; then their orders are given, by unit."""
    for player in range(2):
        for i in range(g.count[player]):
            slot = g.roster[player, i]
            m.wish[slot], m.wish_target[slot], m.wish_hall[slot], m.wish_what[slot] = IDLE, NO_ONE, NO_ONE, NO_ONE
            m.wish_x[slot] = m.wish_y[slot] = 0
    for player in range(2):
        if g.ai_kind[player] and (g.tick + 1) % g.ai_every[player] == 0:
            act(g, m, player)
    for player in range(2):
        _give_wishes(g, m, player)


@rule
def tick(g, m, given, codes, filtered):  # type: ignore[no-untyped-def]
    """One tick; `g.tick` stays.

    Args:
        g: The game.
        m: Memory of the path planners.
        given: Records `state.ORDER` that players give in this tick.
        codes: int32, as long: what became of each order; see `rllib_llm_comm.envs.minirts.engine.unit_commands`.
        filtered: Whether orders that say what the unit already does are dropped.
    """
    g.failed[g.tick % FAILURE_TICKS] = 0
    _progress(g)
    for i in range(given.size):
        o = given[i]
        codes[i] = give(g, o.player, o.unit, o.kind, o.target, o.hall, o.what, o.x, o.y, filtered)
    if g.ai_kind[0] or g.ai_kind[1]:
        _opponents_act(g, m)
    _bullets(g)
    run_orders(g, m)
    carry_out_all(g)
    update_fog(g)
    _judge(g)


def _entrances(sources: int) -> tuple[Callable[..., Any], ...]:
    """Entry points for Python; numba keeps only these on disk, with all that they call, as long as `sources` stays."""

    @njit(cache=True, nogil=True)
    def run(g, m, given, codes, filtered, ticks, to_the_end):  # type: ignore[no-untyped-def]
        """Ticks until so many have passed or, with `to_the_end`, the game is over; `tick` tells the other arguments."""
        _ = sources
        none = given[:0]
        for i in range(ticks):
            if to_the_end and g.status != RUNNING:
                return
            tick(g, m, given if i == 0 else none, codes, filtered)
            if not to_the_end or g.status == RUNNING:
                g.tick += 1

    @njit(cache=True, nogil=True)
    def begin(g, owners, kinds, places):  # type: ignore[no-untyped-def]
        """As `begin` below, with players and types, int32 (N,), and places, float32 (N, 2), of the units."""
        _ = sources
        for i in range(owners.size):
            add_unit(g, owners[i], kinds[i], FINISHED, places[i, 0], places[i, 1])
        update_fog(g)

    return run, begin


run, _begin = _entrances(fingerprint())


def begin(g: Any, units: Iterable[tuple[int, int, float, float]]) -> None:
    """Puts the first units, (player, type, x, y) in the order of creation, into a new game and looks around."""
    table = np.array(list(units), np.float32).reshape(-1, 4)
    _begin(g, table[:, 0].astype(np.int32), table[:, 1].astype(np.int32), np.ascontiguousarray(table[:, 2:]))


@cache
def compile_rules() -> None:
    """Makes sure that the rules are compiled; numba keeps them on disk, so that later processes only load them."""
    with compiling("MiniRTS", "about a minute"):
        record, memory = state.new_game(), state.new_memory()
        begin(record[0], ())
        seed_stream(record, 0, 0)
        draw(record[0], 0, 0, 1)
        run(record[0], memory[0], np.zeros(0, state.ORDER), np.zeros(0, np.int32), True, 0, True)


# ---- the game as an object ---------------------------------------------------------------------------

_COLUMNS = ("serial", "owner", "type", "x", "y", "hp", "stage", "order", "what", "target")


@dataclass(frozen=True)
class Snapshot:
    """The exact state of a game; see `rllib_llm_comm.envs.minirts.engine.rts_game.RTSGame.snapshot`."""

    record: np.ndarray
    touched: np.ndarray
    learned: np.ndarray
    route: np.ndarray


class RTSGame:
    """One game.

    Attributes:
        settings: The settings.
        record: The state, `state.GAME` of shape (1,).
        memory: Memory of the path planners, `state.MEMORY` of shape (1,).

    Args:
        seed: The map's seed, and the opponents' unless they get their own; any whole number.
        settings: Settings other than the defaults.
        opponent_seeds: Seeds of the opponents' draws.

    Raises:
        UserError: If a setting is not allowed.
    """

    def __init__(
        self, seed: int = 0, settings: RTSSettings | None = None, opponent_seeds: tuple[int, int] | None = None
    ) -> None:
        self.settings = settings or RTSSettings()
        self.memory = state.new_memory()
        self.record = state.new_game()
        self.reset(seed, opponent_seeds)

    def reset(self, seed: int, opponent_seeds: tuple[int, int] | None = None) -> None:
        """Begins a new game; the arguments are those of the class."""
        made = mapgen.generate(seed, self.settings.map)
        self._begin(made.terrain, made.units, (self.settings.money, self.settings.money))
        self.record["tick"] = UNITS_AT + 1
        seeds = opponent_seeds or (seed, seed)
        for player, name in enumerate(self.settings.opponents):
            if name is not None:
                opponents.enter(self.record, player, name, seeds[player], self.settings.frame_skip)

    @classmethod
    def scenario(
        cls,
        units: Iterable[tuple[int, int, float, float]],
        money: tuple[int, int] = (0, 0),
        terrain: np.ndarray | None = None,
        settings: RTSSettings | None = None,
    ) -> RTSGame:
        """A game that starts at tick 0 with given units.

        Args:
            units: (player, type, x, y) in the order of creation.
            money: Of both players.
            terrain: (1024,), row by row; all grass by default.
            settings: Cap and length of the game; the rest is not looked at.
        """
        game = cls.__new__(cls)
        game.settings = settings or RTSSettings(unit_cap=0, max_tick=0)
        game.memory = state.new_memory()
        game._begin(np.zeros(SIZE * SIZE, np.int8) if terrain is None else terrain, units, money)
        return game

    def _begin(
        self, terrain: np.ndarray, units: Iterable[tuple[int, int, float, float]], money: tuple[int, int]
    ) -> None:
        compile_rules()
        _forget(self.memory)
        self.record = state.new_game()
        g = self.record[0]
        g["terrain"], g["money"] = terrain, money
        g["unit_cap"], g["max_tick"] = self.settings.unit_cap, self.settings.max_tick
        begin(g, units)

    @property
    def tick(self) -> int:
        """The tick that comes next; after the end, the tick in which the game ended."""
        return int(self.record["tick"][0])

    @property
    def over(self) -> bool:
        """True if the game has ended."""
        return int(self.record["status"][0]) != state.RUNNING

    @property
    def broken(self) -> bool:
        """True if it ended in a jam: the original gives up when too many moves fail."""
        return int(self.record["status"][0]) == state.BROKEN

    @property
    def winner(self) -> int:
        """0 or 1; -1 while nobody has won, and after a draw."""
        return int(self.record["winner"][0])

    def money(self, player: int) -> int:
        """Money of a player."""
        return int(self.record["money"][0, player])

    def step(self, orders: Sequence[Order], ticks: int | None = None) -> list[str]:
        """Gives orders and runs on, until the game is over or so many ticks have passed.

        Args:
            orders: In the order in which they are sent.
            ticks: Number of ticks; `frame_skip` by default.

        Returns:
            "done" or "dropped" for each order; those that say what the unit already does, that attack a building under
            construction or that ask a busy building to train are dropped.

        Raises:
            UserError: If an order is for another player's unit, or for one that cannot carry it out.
        """
        given, codes = pack(orders), np.zeros(len(orders), np.int32)
        count = self.settings.frame_skip if ticks is None else ticks
        run(self.record[0], self.memory[0], given, codes, True, count, True)
        outcomes = [OUTCOMES[code] for code in codes.tolist()]
        if "not allowed" in outcomes:
            wrong = orders[outcomes.index("not allowed")]
            raise UserError(
                f"`orders` has {wrong}, which is not for a unit of player {wrong.player} that can do it; "
                "give orders to own finished units, by their types."
            )
        return outcomes

    def run(self, count: int) -> None:
        """Lets ticks pass, until the game is over."""
        self.step((), count)

    def units(self, player: int | None = None, kind: int | None = None) -> list[Unit]:
        """Units as they are, without fog, in the order of creation, resources included; of a player, or of a type."""
        players = (0, 1) if player is None else (player,)
        return [unit for unit in self._read(self._slots(*players)) if kind in (None, unit.type)]

    def unit(self, ref: int) -> Unit | None:
        """A unit by its reference, or `None` if it is gone."""
        slot = ref % state.SLOTS
        there = ref >= 0 and self.record["serial"][0, slot] == ref // state.SLOTS
        return self._read(np.array([slot]))[0] if there else None

    def visible(self, player: int) -> np.ndarray:
        """bool (32, 32) by row and column: cells that a player sees now."""
        return (self.record["sight"][0, player] > 0).reshape(SIZE, SIZE)

    def explored(self, player: int) -> np.ndarray:
        """bool (32, 32) by row and column: cells that a player has ever seen."""
        return (self.record["seen"][0, player] > 0).reshape(SIZE, SIZE)

    def known_to(self, player: int) -> tuple[list[Unit], list[Unit], list[Unit]]:
        """All that a player knows of, in one reading: its own units, `seen_enemies`, and `seen_resources`.

        Its own units are those of `units`, resources that it owns and building sites included.
        """
        slots, owned = self._slots(0, 1), self.record["count"][0]
        own = np.repeat((0, 1), owned) == player
        known = self._are_known(player, slots)
        kept = own | known
        units = self._read(slots[kept])
        told = list(zip(units, own[kept].tolist(), known[kept].tolist(), strict=True))
        return (
            [unit for unit, mine, _ in told if mine],
            [unit for unit, mine, there in told if there and not mine and unit.type != RESOURCE],
            [unit for unit, _, there in told if there and unit.type == RESOURCE],
        )

    def seen_enemies(self, player: int) -> list[Unit]:
        """Finished units of the other player that a player sees, and its buildings that the player remembers."""
        return self.known_to(player)[1]

    def seen_resources(self, player: int) -> list[Unit]:
        """Resources that a player sees or remembers."""
        return self.known_to(player)[2]

    def snapshot(self) -> Snapshot:
        """The exact state, what the path planners learned included."""
        m = self.memory[0]
        touched = np.argwhere(m["touched"])
        rows = tuple(touched.T)
        return Snapshot(self.record.copy(), touched, m["learned"][rows], m["route"][rows])

    def restore(self, snapshot: Snapshot) -> None:
        """Goes back to a state of this or of another game."""
        self.record = snapshot.record.copy()
        _forget(self.memory)
        m, rows = self.memory[0], tuple(snapshot.touched.T)
        m["touched"][rows] = 1
        m["learned"][rows], m["route"][rows] = snapshot.learned, snapshot.route

    def _slots(self, *players: int) -> np.ndarray:
        """Slots of the units of players, in the order of creation."""
        g = self.record[0]
        return np.concatenate([g["roster"][player, : g["count"][player]] for player in players])

    def _read(self, slots: np.ndarray) -> list[Unit]:
        """The units at some places, column by column, as single fields are slow to read."""
        g = self.record[0]
        columns = (g[name][slots].tolist() for name in _COLUMNS)
        return [
            Unit(
                ref=serial * state.SLOTS + slot,
                number=serial - 1,
                player=player,
                type=kind,
                x=x,
                y=y,
                hp=hp,
                finished=stage == state.FINISHED,
                order=state.ORDER_NAMES[order],
                making=what if order in (state.BUILD, state.TRAIN) else state.NO_ONE,
                target=target if order in (state.ATTACK, state.GATHER) else state.NO_ONE,
            )
            for slot, serial, player, kind, x, y, hp, stage, order, what, target in zip(
                slots.tolist(), *columns, strict=True
            )
        ]

    def _are_known(self, player: int, slots: np.ndarray) -> np.ndarray:
        """True for units that are finished and seen by a player, or remembered if they stand still."""
        g = self.record[0]
        # As of `Unit.cell`; units can stand slightly outside of the map.
        columns, rows = ((g[axis][slots].astype(np.float64) + 0.5).astype(np.int64) for axis in ("x", "y"))
        seen = g["sight"][player][np.minimum(rows * SIZE + columns, state.CELLS - 1)] > 0
        types = g["type"][slots]
        remembered = ((IS_BUILDING[types] != 0) | (types == RESOURCE)) & (g["known"][player][slots] != 0)
        found: np.ndarray = (g["stage"][slots] == state.FINISHED) & (seen | remembered)
        return found


def _forget(memory: np.ndarray) -> None:
    """Empties what path planners know, as far as it is not empty."""
    m = memory[0]
    rows = tuple(np.argwhere(m["touched"]).T)
    m["learned"][rows], m["route"][rows], m["touched"][rows] = 0, 0, 0
