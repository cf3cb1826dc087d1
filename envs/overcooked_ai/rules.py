"""The game: a kitchen, two cooks, soups; one game as an object, or many at once for learners that want arrays.

Knows nothing of agents, texts or pictures; the rules are in `kernel`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from rllib_llm_comm.core.errors import UserError, require_whole
from rllib_llm_comm.envs.compiling import compiling
from rllib_llm_comm.envs.overcooked_ai import encoding, kernel
from rllib_llm_comm.envs.overcooked_ai.kernel import IDLE
from rllib_llm_comm.envs.overcooked_ai.layouts import (
    COUNTER,
    DISHES,
    FLOOR,
    ONIONS,
    POT,
    SERVING,
    TOMATOES,
    Cell,
    Layout,
    check_dynamics,
    get_layout,
)
from rllib_llm_comm.envs.overcooked_ai.places import COOKS, STEPS, places_of
from rllib_llm_comm.envs.overcooked_ai.recipes import COOK_TIME, FULL, contents, ingredients

if TYPE_CHECKING:
    from rllib_llm_comm.envs.overcooked_ai.wanted import WantedPot

KIND_NAMES = ("nothing", "onion", "dish", "soup", "tomato")
ACTION_NAMES = ("north", "south", "east", "west", "stay", "interact")
NUM_ACTIONS = len(ACTION_NAMES)
HORIZON = 400


@dataclass(frozen=True)
class Item:
    """An object in a hand, on a counter or in a pot.

    Attributes:
        kind: "onion", "dish", "soup" or "tomato".
        onions: Of a soup: its onions, 0 to 3.
        tick: Of a soup: -1 before cooking, from 1 while it cooks, `time` when it is ready.
        tomatoes: Of a soup: its tomatoes, 0 to 3.
        time: Of a soup: how long such a one cooks.
    """

    kind: str
    onions: int = 0
    tick: int = 0
    tomatoes: int = 0
    time: int = COOK_TIME

    @property
    def ready(self) -> bool:
        """True if it is a soup that is done."""
        return self.kind == "soup" and self.tick >= self.time and self.tick != kernel.IDLE

    @property
    def left(self) -> int:
        """Of a soup: steps that it must cook, or cook on, until it is ready."""
        return max(0, self.time - max(self.tick, 0))

    @property
    def full(self) -> bool:
        """True if it is a soup to which nothing can be added any more."""
        return self.kind == "soup" and (self.tick != kernel.IDLE or self.onions + self.tomatoes == FULL)


@dataclass(frozen=True)
class Cook:
    """A player.

    Attributes:
        cell: (x, y).
        facing: 0 north, 1 south, 2 east, 3 west.
        held: Item in its hands.
    """

    cell: Cell
    facing: int
    held: Item | None


@dataclass(frozen=True)
class KitchenStep:
    """Result of one step of a kitchen.

    Attributes:
        sparse: Reward for delivered soups per player; only those of the wanted pot, if one is. Whole numbers are `int`.
        shaped: Shaped reward per player, likewise.
        events: Names of `kernel.EVENTS` per player.
    """

    sparse: tuple[float, float]
    shaped: tuple[float, float]
    events: tuple[tuple[str, ...], tuple[str, ...]]


QUIET = KitchenStep((0, 0), (0, 0), ((), ()))
"""Result of most steps: nothing is paid and nothing happens that has a name."""
_QUIET_ROWS = [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]


class SoupKitchen:
    """One game.

    Attributes:
        layout: The kitchen.
        state: int16 (S,), the whole state of the original's game; see `kernel`.
        wanted: The pot whose soups pay, followed by `step` (not by `advance`); None (as at the beginning): all do.

    Args:
        layout: Name, rows or description; see `layouts.get_layout`.
        dynamics: "old": a pot with three ingredients starts by itself (Carroll et al. 2019). "new": an interact with
            empty hands starts a pot with one to three.
        horizon: Steps of an episode, >= 1.

    Raises:
        UserError: If a value is not allowed.
    """

    def __init__(
        self,
        layout: str | Sequence[str] | Mapping[str, Any] | Layout = "cramped_room",
        dynamics: str = "old",
        horizon: int = HORIZON,
    ) -> None:
        self.layout: Layout = get_layout(layout)
        check_dynamics(self.layout, dynamics)
        _compile_rules()
        self.dynamics = dynamics
        self.horizon = horizon
        self._planes = encoding.static_planes(self.layout)
        self._rules = kernel.rule_numbers(self.layout, by_itself=dynamics == "old")
        self._out = np.zeros((2, 3))
        self._lossless_shape = (2, *self._planes.shape)
        self.state = start_state(self.layout)
        self.wanted: WantedPot | None = None

    @property
    def time(self) -> int:
        """Steps since the start."""
        return int(self.state[0])

    @property
    def over(self) -> bool:
        """True if the time is up."""
        return self.time >= self.horizon

    def reset(self) -> None:
        """Puts everything back to the start."""
        self.state = start_state(self.layout)

    def advance(self, first: int, second: int) -> np.ndarray:
        """One step without names for what happened, for speed.

        Returns:
            float64 (2, 3): sparse reward, shaped reward and events as bits, per player. Overwritten by the next step.
        """
        kernel.step(self.state, self.layout.terrain, self._rules, first, second, self._out)
        return self._out

    def step(self, actions: Sequence[int]) -> KitchenStep:
        """One step; an action is a number of `ACTION_NAMES`.

        Raises:
            UserError: If an action is none.
        """
        one, two = actions
        for action in (one, two):
            if not 0 <= int(action) < NUM_ACTIONS:
                raise UserError(f"action {action!r} is not allowed; the actions are 0 to {NUM_ACTIONS - 1}.")
        before = None if self.wanted is None else self.state.copy()
        rows = self.advance(int(one), int(two)).tolist()
        if before is None and rows == _QUIET_ROWS:
            return QUIET
        first, second = rows
        sparse = (_plain(first[0]), _plain(second[0]))
        if self.wanted is not None and before is not None:
            sparse = self.wanted.paid(before, self.state, sparse)
        shaped = (_plain(first[1]), _plain(second[1]))
        return KitchenStep(sparse, shaped, (_names(int(first[2])), _names(int(second[2]))))

    def cook(self, i: int) -> Cook:
        """A player as an object."""
        at = kernel.PLAYER + kernel.FIELDS * i
        x, y, facing, kind, inside, tick = self.state[at : at + kernel.FIELDS].tolist()
        return Cook((x, y), facing, self._item(kind, inside, tick))

    def item(self, cell: Cell) -> Item | None:
        """Item on a counter or in a pot."""
        at = kernel.CELLS + 3 * (cell[1] * self.layout.width + cell[0])
        return self._item(*self.state[at : at + 3].tolist())

    def _item(self, kind: int, inside: int, tick: int) -> Item | None:
        if kind != kernel.SOUP:
            return Item(KIND_NAMES[kind]) if kind else None
        onions, tomatoes = ingredients(inside)
        return Item("soup", onions, tick, tomatoes, self.layout.recipes.times[inside])

    def items(self) -> dict[Cell, Item]:
        """All objects that nobody holds, by cell."""
        width = self.layout.width
        held = self.state[kernel.CELLS :].reshape(-1, 3)
        places = np.flatnonzero(held[:, 0])
        found = zip(places.tolist(), held[places].tolist(), strict=True)
        return {
            (place % width, place // width): item
            for place, packed in found
            if (item := self._item(*packed)) is not None
        }

    def lossless(self) -> np.ndarray:
        """int8 (2, W, H, 26): the lossless encoding per player; a new array."""
        out = np.empty(self._lossless_shape, np.int8)
        encoding.lossless(self.state, self._planes, self._rules, self.horizon, out)
        return out

    def features(self) -> np.ndarray:
        """int16 (2, 96): the features of Overcooked-AI per player."""
        out = np.empty((2, encoding.NUM_FEATURES), np.int16)
        encoding.features(self.state, *encoding.feature_tables(self.layout), self._rules, out)
        return out

    def snapshot(self) -> dict[str, Any]:
        """The state as plain values, for files: `t`, `players` and `objects`."""

        def packed(item: Item | None) -> list[Any] | None:
            """An item as plain values: its kind and, of a soup, its onions, tomatoes and cooking time in game steps."""
            if item is None:
                return None
            return ["soup", item.onions, item.tomatoes, item.tick] if item.kind == "soup" else [item.kind]

        players = []
        for i in range(2):
            cook = self.cook(i)
            players.append([*cook.cell, cook.facing, packed(cook.held)])
        objects = sorted([x, y, *(packed(item) or [])] for (x, y), item in self.items().items())
        return {"t": self.time, "players": players, "objects": objects}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Sets the state from what `snapshot` gave. The pots of soups outside of pots are unknown then.

        Raises:
            UserError: If it is no state of this kitchen.
        """
        self.state = read_snapshot(self.layout, snapshot)
        if self.wanted is not None:
            self.wanted.origins.clear()


@cache
def _compile_rules() -> None:
    """Compiles the rules, or loads what was compiled before, now and not in the midst of the first game."""
    layout = get_layout("cramped_room")
    state, planes = start_state(layout), encoding.static_planes(layout)
    rules = kernel.rule_numbers(layout, by_itself=True)
    with compiling("the onion-soup kitchens", "about 20 seconds"):
        kernel.step(state, layout.terrain, rules, kernel.STAY, kernel.STAY, np.zeros((2, 3)))
        encoding.lossless(state, planes, rules, HORIZON, np.zeros((2, *planes.shape), np.int8))
        tables = encoding.feature_tables(layout)
        encoding.features(state, *tables, rules, np.zeros((2, encoding.NUM_FEATURES), np.int16))


def start_state(layout: Layout) -> np.ndarray:
    """int16 (S,): the start of a game."""
    return read_snapshot(layout, json.loads(layout.opening)) if layout.opening else _empty_state(layout)


def _empty_state(layout: Layout) -> np.ndarray:
    """The state in which the players stand at the start, look north and nothing lies about."""
    state = np.zeros(kernel.CELLS + 3 * layout.terrain.size, np.int16)
    for i, cell in enumerate(layout.starts):
        at = kernel.PLAYER + kernel.FIELDS * i
        state[at : at + 3] = *cell, kernel.NORTH
    return state


def read_snapshot(layout: Layout, snapshot: Mapping[str, Any]) -> np.ndarray:
    """int16 (S,): a state from plain values; see `rllib_llm_comm.envs.overcooked_ai.rules.SoupKitchen.restore`."""
    state = _empty_state(layout)
    try:
        state[0] = snapshot["t"]
        for i, (x, y, facing, held) in enumerate(snapshot["players"]):
            at = kernel.PLAYER + kernel.FIELDS * i
            if layout.kind((x, y)) != FLOOR or not 0 <= facing < 4:
                raise ValueError(f"player {i} cannot be there")
            state[at : at + kernel.FIELDS] = x, y, facing, *_packed(held)
        for x, y, *item in snapshot["objects"]:
            at = kernel.CELLS + 3 * (y * layout.width + x)
            state[at : at + 3] = _packed(item)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise UserError(f"this is no state of the kitchen {layout.name!r} ({error}).") from error
    return state


def _packed(item: Sequence[Any] | None) -> tuple[int, int, int]:
    if item is None:
        return 0, 0, 0
    kind = KIND_NAMES.index(item[0])
    if kind != kernel.SOUP:
        return kind, 0, 0
    onions, tomatoes = int(item[1]), int(item[2])
    if min(onions, tomatoes) < 0 or not 1 <= onions + tomatoes <= FULL:
        raise ValueError(f"no soup has {onions} onions and {tomatoes} tomatoes")
    return kind, contents(onions, tomatoes), int(item[3])


def _plain(number: float) -> float:
    """A reward as people write it: 20 and not 20.0."""
    return int(number) if number.is_integer() else number


@cache
def _names(bits: int) -> tuple[str, ...]:
    return tuple(name for number, name in enumerate(kernel.EVENTS) if bits >> number & 1)


NONE, TAKE, PUT, ADD, START, PLATE, DELIVER = "", "take", "put", "add", "start", "plate", "deliver"


def effect(kitchen: SoupKitchen, held: Item | None, cell: Cell) -> str:
    """Effect of an interact with a cell, by what is in the cook's hands.

    Returns:
        `TAKE` (from a counter, crate or stack), `PUT` (onto a counter), `ADD` (an onion or a tomato to a pot), `START`
        (cooking; new dynamics only), `PLATE` (a ready soup), `DELIVER` (a soup), or `NONE`.
    """
    kind, item = kitchen.layout.kind(cell), kitchen.item(cell)
    if kind == COUNTER:
        if held is None:
            return TAKE if item is not None else NONE
        return PUT if item is None else NONE
    if kind in (ONIONS, TOMATOES, DISHES):
        return TAKE if held is None else NONE
    if kind == POT:
        return _pot_effect(kitchen, held, item)
    return DELIVER if kind == SERVING and held is not None and held.kind == "soup" else NONE


def _pot_effect(kitchen: SoupKitchen, held: Item | None, soup: Item | None) -> str:
    idle = soup is not None and soup.tick < 0
    if held is None:
        return START if idle and kitchen.dynamics == "new" else NONE
    if held.kind in ("onion", "tomato"):
        return NONE if soup is not None and soup.full else ADD
    return PLATE if held.kind == "dish" and soup is not None and soup.ready else NONE


def plain_state(kitchen: SoupKitchen) -> dict[str, Any]:
    """The whole state, JSON-able.

    Returns:
        `time`: game steps so far. `cooks`, by name: `cell` and `faces` (names of places, such as "floor 2,3" and "left
        pot"; who stands there is not told) and `holds` ("nothing", "onion", "dish", "soup" or "tomato").
        `pots`, by name: `onions` (0 to 3) and `cooking` ("no", "yes" or "ready") with `steps_left`, and `tomatoes`
        where the kitchen has some. `counters`, by name: what lies there.
    """
    places = places_of(kitchen.layout)
    cooks = {}
    for i, name in enumerate(COOKS):
        cook = kitchen.cook(i)
        dx, dy = STEPS[cook.facing]
        faced = places.names[cook.cell[0] + dx, cook.cell[1] + dy]
        cooks[name] = {"cell": places.names[cook.cell], "faces": faced, "holds": _kind(cook.held)}
    pots = {places.names[cell]: _pot(kitchen, cell) for cell in places.fixtures[POT]}
    counters = {places.names[cell]: _kind(kitchen.item(cell)) for cell in places.fixtures[COUNTER]}
    return {"time": kitchen.time, "cooks": cooks, "pots": pots, "counters": counters}


def _kind(item: Item | None) -> str:
    return "nothing" if item is None else item.kind


def _pot(kitchen: SoupKitchen, cell: Cell) -> dict[str, Any]:
    item = kitchen.item(cell)
    told: dict[str, Any] = {"onions": 0 if item is None else item.onions}
    if kitchen.layout.has_tomatoes:
        told["tomatoes"] = 0 if item is None else item.tomatoes
    cooking = "no" if item is None or item.tick == IDLE else "ready" if item.ready else "yes"
    return {**told, "cooking": cooking, "steps_left": item.left if item is not None and cooking == "yes" else 0}


# ---- many games at once ------------------------------------------------------------------------------


class KitchenBatch:
    """N games in one kitchen, stepped together by one compiled loop.

    Attributes:
        layout: The kitchen.
        states: int16 (N, S), all states; see `kernel`.

    Args:
        num_games: N, >= 1.
        layout: As of `SoupKitchen`, as are `dynamics` and `horizon`.
        num_threads: Threads that share the games out among them, >= 1; results do not depend on it.

    Raises:
        UserError: If a value is not allowed.
    """

    def __init__(
        self,
        num_games: int,
        layout: str | Sequence[str] | Mapping[str, Any] | Layout = "cramped_room",
        dynamics: str = "old",
        horizon: int = HORIZON,
        num_threads: int = 1,
    ) -> None:
        for name, value in (("num_games", num_games), ("num_threads", num_threads)):
            require_whole(name, value, 1)
        self.layout = get_layout(layout)
        check_dynamics(self.layout, dynamics)
        self.dynamics = dynamics
        self.horizon = horizon
        self._rules = kernel.rule_numbers(self.layout, by_itself=dynamics == "old")
        self._planes = encoding.static_planes(self.layout)
        self._start = start_state(self.layout)
        self.states = np.repeat(self._start[None], num_games, axis=0)
        self._out = np.zeros((num_games, 2, 3))
        shares = np.linspace(0, num_games, min(num_threads, num_games) + 1).astype(int)
        self._parts = [slice(*part) for part in pairwise(shares.tolist())]
        self._threads = ThreadPoolExecutor(len(self._parts), "kitchens") if len(self._parts) > 1 else None
        self._lossless = np.zeros((num_games, 2, *self._planes.shape), np.int8)

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """One step of all games. Those whose time is up stay at their end until `restart`.

        Args:
            actions: (N, 2) integers, 0 to 5.

        Returns:
            Sparse rewards (N, 2), shaped rewards (N, 2) and whether the step was a game's last (N,).
        """
        chosen = np.ascontiguousarray(actions, np.int8)

        def step(part: slice) -> None:
            kernel.step_many(self.states[part], self.layout.terrain, self._rules, chosen[part], self._out[part])

        self._share_out(step)
        return self._out[:, :, 0].copy(), self._out[:, :, 1].copy(), self.states[:, 0] >= self.horizon

    def restart(self, games: np.ndarray) -> None:
        """Begins games anew: bool (N,), or their numbers."""
        self.states[games] = self._start

    def lossless(self) -> np.ndarray:
        """int8 (N, 2, W, H, 26): the lossless encoding per game and player; overwritten by the next call."""

        def encode(part: slice) -> None:
            encoding.lossless_many(self.states[part], self._planes, self._rules, self.horizon, self._lossless[part])

        self._share_out(encode)
        return self._lossless

    def _share_out(self, work: Callable[[slice], None]) -> None:
        """Does something for all games, a share per thread; compiled code runs without Python's lock."""
        if self._threads is None:
            work(self._parts[0])
        else:
            list(self._threads.map(work, self._parts))
