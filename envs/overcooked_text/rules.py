"""The game: state and rules of the textual 7x7 kitchen, in plain Python without gym, numpy or randomness.

`TextKitchen` knows primitive actions only; macro-actions are in `actions.py`. With `legacy=True` it behaves
exactly like the original game; otherwise the deviations listed in `docs/envs/overcooked_text.md` apply.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rllib_llm_comm.envs.overcooked_text.layouts import (
    AGENT,
    CELLS,
    COUNTER,
    DEFAULT_REWARDS,
    DELIVERY,
    DELTAS,
    FLOOR,
    FOOD_CODES,
    KNIFE,
    MOVES,
    PLATE,
    RECIPES,
    SIZE,
    STAY,
    Setup,
    grid_start,
    nearest_free_counter,
    recipe_foods,
    start_state,
    windows,
)

_ORDER = (0, 2, 1, 3)  # right, left, down, up: the order in which the original looks at the neighbours
IN_THE_WAY = 1
"""Mark of a cell that is neither floor nor an agent, in the search for a way."""

_WAYS = bytes(code if code in (FLOOR, AGENT) else IN_THE_WAY for code in range(256))
_CACHE: dict[tuple[bytes, int, int], int] = {}
_CACHE_SIZE = 200_000
DISTANCE = tuple(
    tuple(abs(a // SIZE - b // SIZE) + abs(a % SIZE - b % SIZE) for b in range(CELLS)) for a in range(CELLS)
)
"""Manhattan distance between two cell numbers."""


class _Node:
    """An open cell.

    Equal nodes compare as smaller both ways, so the heap's mechanics decide between them, as in the original.
    """

    __slots__ = ("cell", "cost", "estimate", "first", "occupied")

    def __init__(self, cell: int, cost: int, estimate: int, first: int, occupied: bool) -> None:
        self.cell, self.cost, self.estimate, self.first, self.occupied = cell, cost, estimate, first, occupied

    def __lt__(self, other: _Node) -> bool:
        if self.estimate != other.estimate:
            return self.estimate < other.estimate
        return self.occupied <= other.occupied


def ways_of(grid: bytes | bytearray) -> bytes:
    """State of a grid that matters for finding a way: floor, agents, and the rest, which is in the way."""
    return bytes(grid.translate(_WAYS))


def first_step(ways: bytes, start: int, target: int) -> int:
    """The first primitive action of a way from `start` to `target`.

    Other agents count as passable, but of two equally long ways the one without an agent is preferred.

    Args:
        ways: The believed map as `ways_of` gives it.
        start: Cell number where the way starts.
        target: Cell number of its end, which need not be passable.

    Returns:
        0 right, 1 down, 2 left, 3 up, or 4 when there is no way.
    """
    # There are so few different maps of ways that nearly every call is remembered.
    key = (ways, start, target)
    action = _CACHE.get(key)
    if action is None:
        if len(_CACHE) >= _CACHE_SIZE:
            _CACHE.clear()
        action = _CACHE[key] = _search(ways, start, target)
    return action


def _search(grid: bytes, start: int, target: int) -> int:
    distance = DISTANCE[target]
    visited = {start}
    heap = [_Node(start, 0, distance[start], STAY, False)]
    while heap:
        node = heapq.heappop(heap)
        for action in _ORDER:
            cell = node.cell + DELTAS[action]
            if cell in visited:
                continue
            first = action if node.cost == 0 else node.first
            if grid[cell] in (FLOOR, AGENT):
                visited.add(cell)
                cost = node.cost + 1
                heapq.heappush(heap, _Node(cell, cost, cost + distance[cell], first, grid[cell] == AGENT))
            if cell == target:
                return first
    return STAY


CHOPS_NEEDED = 3


@dataclass(slots=True, eq=False)
class Thing:
    """Anything with a place.

    Attributes:
        name: Its name, unique in the kitchen.
        cell: Its cell number, `x * 7 + y`; for a held or contained object that of its holder.
        code: Its cell code in the grid.
    """

    name: str
    cell: int
    code: int

    @property
    def x(self) -> int:
        """The row."""
        return self.cell // SIZE

    @property
    def y(self) -> int:
        """The column."""
        return self.cell % SIZE


@dataclass(slots=True, eq=False)
class Food(Thing):
    """A food.

    Attributes:
        chops: Number of cuts, 0 to 3.
    """

    chops: int = 0

    @property
    def chopped(self) -> bool:
        """True if it was cut often enough."""
        return self.chops >= CHOPS_NEEDED


@dataclass(slots=True, eq=False)
class Plate(Thing):
    """A plate (bowl).

    Attributes:
        contents: The chopped foods in it, in the order in which they came.
    """

    contents: list[Food] = field(default_factory=list)


Item = Food | Plate
"""Item that can be held."""


@dataclass(slots=True, eq=False)
class Knife(Thing):
    """A cutting board, or the delivery hatch.

    Attributes:
        on: Item that lies on it.
    """

    on: Item | None = None


@dataclass(slots=True, eq=False)
class Agent(Thing):
    """A cook.

    Attributes:
        held: Item in its hands.
    """

    held: Item | None = None


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
    """Effect of touching the place "counter" or a board with what a cook holds; `NOTHING` if there is none."""
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


class Belief:
    """The memory of one agent.

    A visible object is believed where it is; an unseen one where it was last seen, or at its start cell when
    the place where it was last seen is in sight and empty.

    Attributes:
        names: Names of all objects, in the order of the observation vector.
        cells: Believed cell number of each object, in that order.
        status: Believed share of the cuts done (0 to 1) of each food.
    """

    __slots__ = (
        "names", "cells", "status", "_codes", "_skeleton", "_own", "_map", "_ways", "_index", "_bare_ways", "_agents",
        "_items", "_start", "_decay", "_foods", "_others", "_self",
    )  # fmt: skip

    def __init__(
        self, things: Sequence[Thing], skeleton: bytes, own: int, start: Sequence[int], decay: bool = False
    ) -> None:
        """Starts with the full truth.

        Args:
            things: All objects in the order of the observation vector; foods first.
            skeleton: 49 codes of walls and floor.
            own: Index in `things` of the agent itself.
            start: Start cell of every object.
            decay: Whether the believed status of an unseen food shrinks to a third (a quirk of the original).
        """
        self.names = tuple(thing.name for thing in things)
        self.cells = [thing.cell for thing in things]
        self.status = [thing.chops / 3 for thing in things if isinstance(thing, Food)]
        self._codes = [thing.code for thing in things]
        self._skeleton = skeleton
        self._own = own
        self._map: bytearray | None = None
        self._ways: bytes | None = None
        self._index = {name: k for k, name in enumerate(self.names)}
        self._agents = [k for k, thing in enumerate(things) if isinstance(thing, Agent) and k != own]
        self._items = [k for k, thing in enumerate(things) if not isinstance(thing, (Agent, Knife))]
        self._start, self._decay = start, decay
        self._foods = [(k, thing) for k, thing in enumerate(things) if isinstance(thing, Food)]
        self._self = things[own]
        self._others = [
            (k, thing) for k, thing in enumerate(things) if k != own and not isinstance(thing, (Food, Knife))
        ]
        bare = bytearray(ways_of(skeleton))
        for thing in things:
            if isinstance(thing, Knife):  # never moves
                bare[thing.cell] = IN_THE_WAY
        self._bare_ways = bytes(bare)

    def where(self, name: str) -> tuple[int, int]:
        """The cell `(x, y)` where the object `name` is believed."""
        return divmod(self.cells[self._index[name]], SIZE)

    def cell(self, name: str) -> int:
        """The cell number where the object `name` is believed."""
        return self.cells[self._index[name]]

    def food_status(self, name: str) -> float:
        """Believed share of the cuts done of the food `name`, 0 to 1."""
        return self.status[self._index[name]]

    @property
    def map(self) -> bytearray:
        """49 cell codes as this agent believes them; later objects hide earlier ones. Do not change it."""
        grid = self._map
        if grid is None:
            grid = self._map = bytearray(self._skeleton)
            cells = self.cells
            for k, code in enumerate(self._codes):
                grid[cells[k]] = code
            grid[cells[self._own]] = AGENT
        return grid

    @property
    def ways(self) -> bytes:
        """The map as `first_step` reads it for a way from the agent's own cell, which it leaves bare."""
        ways = self._ways
        if ways is None:
            # As `ways_of(self.map)`, without the map: what lies in the way is in the way, whatever it is.
            grid, cells = bytearray(self._bare_ways), self.cells
            here = cells[self._own]
            for k in self._items:
                if cells[k] != here:
                    grid[cells[k]] = IN_THE_WAY
            for k in self._agents:
                grid[cells[k]] = AGENT
            ways = self._ways = bytes(grid)
        return ways

    def update(self, seen: bytes) -> None:
        """Takes in what is seen after a step; 49 flags are 1 where a cell is in sight."""
        cells, status, start = self.cells, self.status, self._start
        before, here = cells[self._own], self._self.cell
        moved = False
        if here != before:
            cells[self._own] = here
            self._map = None
        for k, food in self._foods:
            cell, believed = food.cell, cells[k]
            if seen[cell]:
                status[k] = food.chops / 3
                if cell != believed:
                    cells[k] = cell
                    moved = moved or cell != here or believed != before
            else:
                if seen[believed] and believed != start[k]:
                    cells[k], moved = start[k], True
                if self._decay:
                    status[k] /= 3
        for k, thing in self._others:
            cell, believed = thing.cell, cells[k]
            if cell != believed:
                if seen[cell]:
                    cells[k] = cell
                    moved = moved or cell != here or believed != before
                elif seen[believed] and believed != start[k]:
                    cells[k], moved = start[k], True
        if moved:  # apart from the agent and what it carries
            self._map = self._ways = None

    def set(self, cells: Sequence[int], status: Sequence[float]) -> None:
        """Overwrites the memory, for restoring a saved state."""
        self.cells = list(cells)
        self.status = list(status)
        self._map = self._ways = None


_NOT_TOLD = [0.0] * len(RECIPES)


EVERYTHING = bytes([1]) * CELLS
"""The sight of who sees all cells."""
_SCALED = tuple((cell // SIZE / SIZE, cell % SIZE / SIZE) for cell in range(CELLS))


def _rows(grid: bytes | bytearray) -> list[str]:
    """A grid as 7 strings of codes."""
    return ["".join(map(str, grid[x * SIZE : x * SIZE + SIZE])) for x in range(SIZE)]


def _surface_state(surface: Knife) -> list[Any]:
    return [surface.x, surface.y, surface.on.name if surface.on else None]


class KitchenMoment(NamedTuple):
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


def moment(kitchen: TextKitchen, events: Sequence[Sequence[str]] = ()) -> KitchenMoment:
    """The moment that a kitchen is in, with the events of the last game step per cook."""
    cooks = kitchen.agents
    return KitchenMoment(
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


class TextKitchen:
    """One kitchen with its cooks.

    Attributes:
        agents: The cooks, in index order.
        foods: Food by name.
        plates: The plates.
        knives: The cutting boards.
        delivery: The delivery hatch.
        beliefs: The memory of each cook.
        game_step: Number of steps since the reset.
        plate_numbers: Indices of the plates in `things`.
        is_map_start: Whether everything started where the map has it.
        delivered: Whether all orders were delivered.
        setup: The episode's orders, who is told them, and the start.
        recipe: The dish that is ordered now.
        recipe_foods: Names of the foods that it needs.
        served: Number of orders delivered.
        paid: Foods whose chop was already rewarded since the last order.
    """

    setup: Setup

    def __init__(
        self,
        map_name: str = "B",
        layout: str = "full",
        recipe: str = "lettuce-tomato salad",
        num_agents: int = 2,
        view_radius: int = 2,
        rewards: Mapping[str, float] | None = None,
        chop_pays_once: bool = True,
        legacy: bool = False,
        shared_collision: bool = False,
    ) -> None:
        """Builds and resets the kitchen by settings as of `OvercookedTextSettings`; legacy mode pays every chop."""
        start = start_state(map_name, layout, num_agents)
        self.map_name, self.layout, self.num_agents = map_name, layout, num_agents
        self.view_radius, self.legacy, self.shared_collision = view_radius, legacy, shared_collision
        self.rewards = {**DEFAULT_REWARDS, **(rewards or {})}
        self.chop_pays_once = chop_pays_once and not legacy
        self.skeleton = start.skeleton
        self._windows = windows(view_radius)
        self.reset(Setup((recipe,), (True,) * num_agents, start))

    def reset(self, setup: Setup | None = None) -> None:
        """Puts everything back to the start of a setup, or of the last one."""
        self.setup = setup = setup or self.setup
        start = setup.start
        self.is_map_start = start == start_state(self.map_name, self.layout, self.num_agents)
        self.cells = bytearray(start.grid)
        self.foods = {name: Food(name, cell, FOOD_CODES[name]) for name, cell in start.foods}
        self.plates = [Plate(f"plate{k}", cell, PLATE) for k, cell in enumerate(start.plates, 1)]
        self.knives = [Knife(f"knife{k}", cell, KNIFE) for k, cell in enumerate(start.knives, 1)]
        self.delivery = Knife("delivery", start.delivery, DELIVERY)
        self.agents = [Agent(f"agent{k}", cell, AGENT) for k, cell in enumerate(start.agents, 1)]
        self.items: dict[str, Item] = {**self.foods, **{plate.name: plate for plate in self.plates}}
        self.things: list[Thing] = [
            *self.foods.values(), *self.plates, *self.knives, self.delivery, *self.agents
        ]  # fmt: skip
        self.plate_numbers = [self.things.index(plate) for plate in self.plates]
        self._surfaces = {knife.cell: knife for knife in self.knives}
        self._start_cells = [thing.cell for thing in self.things]
        self.forget()
        self.game_step = 0
        self.delivered = False
        self.serve(0)

    def forget(self) -> None:
        """Makes every agent remember the full present truth and nothing else."""
        self._looked = False
        first_agent = len(self.things) - self.num_agents
        self.beliefs = [
            Belief(self.things, self.skeleton, first_agent + i, self._start_cells, self.legacy)
            for i in range(self.num_agents)
        ]

    # ---- looking -------------------------------------------------------------------------------------------

    @property
    def grid(self) -> list[list[int]]:
        """The cell codes as 7 rows of 7 numbers (a copy)."""
        return [list(self.cells[x * SIZE : x * SIZE + SIZE]) for x in range(SIZE)]

    def sight(self, agent: int) -> bytes:
        """49 flags, 1 where `agent` sees the cell."""
        return self._windows[self.agents[agent].cell]

    def visible(self, agent: int, x: int, y: int) -> bool:
        """True if `agent` sees the cell `(x, y)`."""
        return bool(self.sight(agent)[x * SIZE + y])

    def board_at(self, cell: int) -> Knife | None:
        """The cutting board in the cell number `cell`, if there is one."""
        return self._surfaces.get(cell)

    def seen_vector(self, agent: int) -> list[float]:
        """Present sight of an agent as numbers, without memory.

        Returns:
            Row / 7 and column / 7 of each object in the order tomato, lettuce, onion, plates, knives, delivery,
            agents (0, 0 if unseen), after those of a food the share of its cuts done, then the order one-hot
            (7; 0 for an agent that is not told it). 30 numbers for two agents in layout "full".
        """
        return self._numbers(self.sight(agent)) + self.one_hot(agent)

    def _numbers(self, seen: bytes) -> list[float]:
        vector: list[float] = []
        for thing in self.things:
            cell = thing.cell
            if seen[cell]:
                vector += _SCALED[cell]
                if isinstance(thing, Food):
                    vector.append(thing.chops / 3)
            else:
                vector += (0.0, 0.0, 0.0) if isinstance(thing, Food) else (0.0, 0.0)
        return vector

    def memory_vector(self, agent: int) -> list[float]:
        """Like `seen_vector`, but unseen objects stand where the agent believes them."""
        if self.view_radius == 0:
            return self.seen_vector(agent)
        belief = self.beliefs[agent]
        vector: list[float] = []
        foods = len(belief.status)
        for k, cell in enumerate(belief.cells):
            vector += _SCALED[cell]
            if k < foods:
                vector.append(belief.status[k])
        return vector + self.one_hot(agent)

    def whole_vector(self) -> list[float]:
        """The whole kitchen as numbers: as `seen_vector` of an agent that sees everything, the order left out."""
        return self._numbers(EVERYTHING)

    # ---- orders ------------------------------------------------------------------------------------------

    def serve(self, served: int) -> None:
        """Makes so many orders delivered: the next one is ordered (the last one stays), and chops pay again."""
        self.served = served
        self.recipe = self.setup.orders[min(served, len(self.setup.orders) - 1)]
        self.recipe_foods = recipe_foods(self.recipe)
        self._one_hot = [float(name == self.recipe) for name in RECIPES]
        self.paid: set[str] = set()

    def told(self, agent: int) -> str | None:
        """The dish ordered, or None for an agent that is not told it."""
        return self.recipe if self.setup.told[agent] else None

    def one_hot(self, agent: int) -> list[float]:
        """The dish ordered among `layouts.RECIPES`, all 0 for an agent that is not told it."""
        return self._one_hot if self.setup.told[agent] else _NOT_TOLD

    def secret(self) -> list[float]:
        """The dish ordered among `layouts.RECIPES`, the share of orders delivered, and per cook whether it is told."""
        return [*self._one_hot, self.served / len(self.setup.orders), *map(float, self.setup.told)]

    def is_ordered(self, item: Item) -> bool:
        """True if `item` is a plate with exactly the foods of the dish ordered."""
        return isinstance(item, Plate) and {food.name for food in item.contents} == set(self.recipe_foods)

    # ---- acting --------------------------------------------------------------------------------------------

    def effect(self, agent: int, action: int) -> Effect:
        """Effect of a primitive action (0 right, 1 down, 2 left, 3 up, 4 stay) of an agent now if nobody else moves."""
        if action >= STAY:
            return WAIT
        cook = self.agents[agent]
        target = cook.cell + DELTAS[action]
        code = self.cells[target]
        if code == FLOOR:
            return Effect("move", place=MOVES[action], cell=divmod(target, SIZE))
        if code == AGENT:
            return NOTHING
        return self.touched(cook.held, target)

    def touched(self, held: Item | None, target: int) -> Effect:
        """True effect of touching the cell `target`, which is neither floor nor agent."""
        code = self.cells[target]
        if code == DELIVERY:
            if held is None:
                return NOTHING
            return Effect("deliver", held.name, "delivery", divmod(target, SIZE), correct=self.is_ordered(held))
        if code == KNIFE:
            knife = self._surfaces[target]
            return touch(held, knife.name, target, lying_item(knife.on))
        if code == COUNTER:
            return touch(held, "counter", target, None)
        for item in self.items.values():
            if item.code == code and item.cell == target:
                return touch(held, "counter", target, lying_item(item))
        return NOTHING

    def step(self, actions: Sequence[int]) -> StepOutcome:
        """One game step, by a primitive action per agent: 0 right, 1 down, 2 left, 3 up, anything above stays."""
        count = self.num_agents
        agents, cells = self.agents, self.cells
        events: list[list[str]] = [[] for _ in agents]
        swaps: list[tuple[int, int]] = []
        blocked: list[int] = []
        shared = self.rewards["step"]
        acted = [action >= STAY for action in actions]
        waiting = [i for i, still in enumerate(acted) if not still]
        if waiting:
            self._looked = False
        while waiting:
            for i in waiting:
                if acted[i]:
                    continue
                acted[i] = True
                cook, action = agents[i], actions[i]
                target = cook.cell + DELTAS[action]
                code = cells[target]
                if code == FLOOR:
                    cells[cook.cell] = FLOOR
                    cells[target] = AGENT
                    carry(cook, target)
                elif code == AGENT:
                    j = next(k for k in range(count) if agents[k].cell == target)
                    if acted[j]:
                        blocked.append(i)
                        continue
                    other = actions[j]
                    if other < STAY and target + DELTAS[other] == cook.cell:
                        carry(agents[j], cook.cell)
                        carry(cook, target)
                        acted[j] = True
                        swaps.append((min(i, j), max(i, j)))
                    else:
                        acted[i] = False  # waits for the other to get out of the way
                else:
                    shared += self._apply(cook, self.touched(cook.held, target), target, events[i])
            waiting = [i for i in waiting if not acted[i]]
        return self._finish(actions, sorted(blocked), shared, events, swaps)

    def _finish(
        self,
        actions: Sequence[int],
        blocked: list[int],
        shared: float,
        events: list[list[str]],
        swaps: list[tuple[int, int]],
    ) -> StepOutcome:
        """Charges collisions, counts the step and lets everybody look around."""
        given = [shared] * self.num_agents
        for i in blocked:
            events[i].append("blocked")
            if not self.legacy:
                for k in range(self.num_agents) if self.shared_collision else (i,):
                    given[k] += self.rewards["collision"]
        for pair in swaps:
            for i in pair:
                events[i].append("swapped")
        self.game_step += 1
        if self.legacy or not self._looked:
            self._look()
        return StepOutcome(given, self.delivered, blocked, swaps, events, list(actions))

    def _look(self) -> None:
        self._looked = True  # until somebody acts, a second look brings nothing new (but for a quirk of the original)
        for cook, belief in zip(self.agents, self.beliefs, strict=True):
            belief.update(self._windows[cook.cell])

    def _apply(self, cook: Agent, effect: Effect, target: int, events: list[str]) -> float:
        """Carries out what touching `target` does; gives the shared reward."""
        kind = effect.kind
        if kind == "none":
            return 0.0
        item = self.items[effect.item]
        surface = self._surfaces.get(target)
        if kind == "deliver":
            return self._deliver(cook, item, bool(effect.correct), events)
        events.append(f"{kind} {item.name}")
        if kind == "chop":
            return self._chop(item, events) if isinstance(item, Food) else 0.0
        if kind == "put_down":
            self.cells[target] = item.code
            cook.held = None
            place_item(item, target)
        elif kind == "place_on_board" and surface is not None:
            surface.on = item
            cook.held = None
            place_item(item, target)
        elif kind == "pick_up":
            self._clear(target)
            cook.held = item
            place_item(item, cook.cell)
        elif kind == "add_to_plate":
            plate = self.items[effect.plate]
            if isinstance(plate, Plate) and isinstance(item, Food):
                if effect.into_held or effect.takes_plate:
                    self._clear(target)
                    cook.held = plate
                else:
                    cook.held = None
                plate.contents.append(item)
                place_item(plate, cook.cell if cook.held is plate else target)
        return 0.0

    def _clear(self, target: int) -> None:
        """Takes whatever lies on a counter or a board away from it."""
        surface = self._surfaces.get(target)
        if surface is not None:
            surface.on = None
        else:
            self.cells[target] = COUNTER

    def _chop(self, food: Food, events: list[str]) -> float:
        food.chops += 1
        if not food.chopped:
            return 0.0
        events.append(f"chopped {food.name}")
        if food.name not in self.recipe_foods or (self.chop_pays_once and food.name in self.paid):
            return 0.0
        self.paid.add(food.name)
        return self.rewards["chop"]

    def _deliver(self, cook: Agent, item: Item, correct: bool, events: list[str]) -> float:
        cook.held = None
        if not correct:
            events.append("wrong_delivery")
            self._give_back(item)
            return self.rewards["wrong_delivery"]
        events.append("correct_delivery")
        self.serve(self.served + 1)
        if self.served < len(self.setup.orders):
            self._give_back(item)
        else:
            self.delivery.on = item
            place_item(item, self.delivery.cell)
            self.delivered = True
        return self.rewards["correct_delivery"]

    def _give_back(self, item: Item) -> None:
        contents: list[Food] = []
        if isinstance(item, Plate):
            contents, item.contents = item.contents, []
        for thing in (item, *contents):
            self._respawn(thing)

    def _respawn(self, item: Item) -> None:
        """Puts an object back to its start cell, foods raw again."""
        cell = next(c for c, t in zip(self._start_cells, self.things, strict=True) if t is item)
        if not self.legacy and self.cells[cell] != COUNTER:
            # The original overwrites whatever lies there, which then can never be picked up.
            cell = nearest_free_counter(self.cells, self.skeleton, cell)
        if isinstance(item, Food):
            item.chops = 0
        item.cell = cell
        self.cells[cell] = item.code

    # ---- saving --------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """The whole state as JSON-able data; `restore` takes it back.

        Returns:
            `grid` (7 strings of codes), `agents` ([x, y, held]), `foods` (name -> [x, y, chops, chopped]),
            `plates` (name -> [x, y, contents]), `knives` and `delivery` ([[x, y, what lies on it]]), `belief`
            (per agent the believed map), `memory` (per agent believed cells and food status), `game_step`,
            `delivered`, `paid`, `served`, `orders`, `told` (per agent) and `start` ([7 strings of codes, cell numbers
            of the agents]).
        """
        setup = self.setup
        return {
            "grid": _rows(self.cells),
            "agents": [[a.x, a.y, a.held.name if a.held else None] for a in self.agents],
            "foods": {f.name: [f.x, f.y, f.chops, int(f.chopped)] for f in self.foods.values()},
            "plates": {p.name: [p.x, p.y, [food.name for food in p.contents]] for p in self.plates},
            "knives": [_surface_state(knife) for knife in self.knives],
            "delivery": [_surface_state(self.delivery)],
            "belief": ["/".join(_rows(belief.map)) for belief in self.beliefs],
            "memory": [[list(belief.cells), list(belief.status)] for belief in self.beliefs],
            "game_step": self.game_step,
            "delivered": self.delivered,
            "paid": sorted(self.paid),
            "served": self.served,
            "orders": list(setup.orders),
            "told": list(setup.told),
            "start": [_rows(setup.start.grid), list(setup.start.agents)],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Puts a kitchen into the state of a snapshot.

        Without the key `memory` every agent remembers the full truth; without `orders` the kitchen keeps its own orders
        and start. The kitchen that made the snapshot had the same settings.
        """
        self.reset(self._setup(state) if "orders" in state else None)
        self.cells = bytearray(int(code) for row in state["grid"] for code in row)
        for name, (x, y, chops, _) in state["foods"].items():
            self.foods[name].cell, self.foods[name].chops = x * SIZE + y, chops
        for plate in self.plates:
            x, y, contents = state["plates"][plate.name]
            plate.cell, plate.contents = x * SIZE + y, [self.foods[name] for name in contents]
        surfaces = zip([*self.knives, self.delivery], [*state["knives"], *state["delivery"]], strict=True)
        for surface, (_, _, on) in surfaces:
            surface.on = self.items[on] if on else None
        for agent, (x, y, held) in zip(self.agents, state["agents"], strict=True):
            agent.cell, agent.held = x * SIZE + y, self.items[held] if held else None
        self.forget()
        if "memory" in state:
            for belief, (cells, status) in zip(self.beliefs, state["memory"], strict=True):
                belief.set(cells, status)
        self.game_step = state.get("game_step", 0)
        self.delivered = state.get("delivered", self.delivery.on is not None)
        self.serve(state.get("served", int(self.delivered)))
        self.paid = set(state.get("paid", ()))
        self._looked = False

    def _setup(self, state: Mapping[str, Any]) -> Setup:
        rows, agents = state["start"]
        grid = bytes(int(code) for row in rows for code in row)
        start = grid_start(grid, self.skeleton, tuple(agents))
        return Setup(tuple(state["orders"]), tuple(map(bool, state["told"])), start)

    def copy(self) -> TextKitchen:
        """An independent copy of the kitchen in its present state."""
        twin = TextKitchen(
            self.map_name, self.layout, self.recipe, self.num_agents, self.view_radius, self.rewards,
            self.chop_pays_once, self.legacy, self.shared_collision,
        )  # fmt: skip
        twin.restore(self.snapshot())
        return twin
