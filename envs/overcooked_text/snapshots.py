"""The kitchen's state as data: number vectors for policies, JSON-able snapshots for saving and replays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from rllib_llm_comm.envs.overcooked_text.beliefs import Belief
from rllib_llm_comm.envs.overcooked_text.effects import Agent, Food, Item, Knife, Plate, Thing
from rllib_llm_comm.envs.overcooked_text.episodes import Setup
from rllib_llm_comm.envs.overcooked_text.layouts import CELLS, SIZE, grid_start

_SCALED = tuple((cell // SIZE / SIZE, cell % SIZE / SIZE) for cell in range(CELLS))


class KitchenState(Protocol):
    """The state of a kitchen, as `rules.Kitchen` has it."""

    view_radius: int
    skeleton: bytes
    setup: Setup
    cells: bytearray
    foods: dict[str, Food]
    plates: list[Plate]
    knives: list[Knife]
    delivery: Knife
    agents: list[Agent]
    items: dict[str, Item]
    things: list[Thing]
    beliefs: list[Belief]
    game_step: int
    delivered: bool
    served: int
    paid: set[str]

    @property
    def grid(self) -> list[list[int]]:
        """The cell codes as 7 rows of 7 numbers."""

    def sight(self, agent: int) -> bytes:
        """49 flags, 1 where an agent sees the cell."""

    def one_hot(self, agent: int) -> list[float]:
        """The order as 7 numbers; 0 for an agent that is not told it."""

    def reset(self, setup: Setup | None = None) -> None:
        """Puts everything back to its start."""

    def forget(self) -> None:
        """Makes every agent remember the full present truth and nothing else."""

    def serve(self, served: int) -> None:
        """Counts so many orders as served."""


def seen_vector(kitchen: KitchenState, agent: int) -> list[float]:
    """Present sight of an agent as numbers, without memory.

    Args:
        kitchen: The kitchen.
        agent: Index of the agent.

    Returns:
        Row / 7 and column / 7 of each object in the order tomato, lettuce, onion, plates, knives, delivery,
        agents (0, 0 if unseen), after those of a food the share of its cuts done, then the order one-hot
        (7; 0 for an agent that is not told it). 30 numbers for two agents in layout "full".
    """
    seen = kitchen.sight(agent)
    vector: list[float] = []
    for thing in kitchen.things:
        cell = thing.cell
        if seen[cell]:
            vector += _SCALED[cell]
            if isinstance(thing, Food):
                vector.append(thing.chops / 3)
        else:
            vector += (0.0, 0.0, 0.0) if isinstance(thing, Food) else (0.0, 0.0)
    return vector + kitchen.one_hot(agent)


def whole_vector(kitchen: KitchenState) -> list[float]:
    """The whole kitchen as numbers: as `seen_vector` of an agent that sees everything, the order left out.

    Args:
        kitchen: The kitchen.
    """
    vector: list[float] = []
    for thing in kitchen.things:
        vector += _SCALED[thing.cell]
        if isinstance(thing, Food):
            vector.append(thing.chops / 3)
    return vector


def memory_vector(kitchen: KitchenState, agent: int) -> list[float]:
    """Like `seen_vector`, but unseen objects stand where the agent believes them."""
    if kitchen.view_radius == 0:
        return seen_vector(kitchen, agent)
    belief = kitchen.beliefs[agent]
    vector: list[float] = []
    foods = len(belief.status)
    for k, cell in enumerate(belief.cells):
        vector += _SCALED[cell]
        if k < foods:
            vector.append(belief.status[k])
    return vector + kitchen.one_hot(agent)


def snapshot(kitchen: KitchenState) -> dict[str, Any]:
    """The whole state as JSON-able data; `restore` takes it back.

    Returns:
        `grid` (7 strings of codes), `agents` ([x, y, held]), `foods` (name -> [x, y, chops, chopped]),
        `plates` (name -> [x, y, contents]), `knives` and `delivery` ([[x, y, what lies on it]]), `belief`
        (per agent the believed map), `memory` (per agent believed cells and food status), `game_step`,
        `delivered`, `paid`, `served`, `orders`, `told` (per agent) and `start` ([7 strings of codes, cell numbers of
        the agents]).
    """
    setup = kitchen.setup
    return {
        "grid": ["".join(map(str, row)) for row in kitchen.grid],
        "agents": [[a.x, a.y, a.held.name if a.held else None] for a in kitchen.agents],
        "foods": {f.name: [f.x, f.y, f.chops, int(f.chopped)] for f in kitchen.foods.values()},
        "plates": {p.name: [p.x, p.y, [food.name for food in p.contents]] for p in kitchen.plates},
        "knives": [_surface_state(knife) for knife in kitchen.knives],
        "delivery": [_surface_state(kitchen.delivery)],
        "belief": ["/".join(belief.rows) for belief in kitchen.beliefs],
        "memory": [[list(belief.cells), list(belief.status)] for belief in kitchen.beliefs],
        "game_step": kitchen.game_step,
        "delivered": kitchen.delivered,
        "paid": sorted(kitchen.paid),
        "served": kitchen.served,
        "orders": list(setup.orders),
        "told": list(setup.told),
        "start": [_rows(setup.start.grid), list(setup.start.agents)],
    }


def _rows(grid: bytes) -> list[str]:
    return ["".join(map(str, grid[x * SIZE : x * SIZE + SIZE])) for x in range(SIZE)]


def _setup(kitchen: KitchenState, state: Mapping[str, Any]) -> Setup:
    rows, agents = state["start"]
    grid = bytes(int(code) for row in rows for code in row)
    start = grid_start(grid, kitchen.skeleton, tuple(agents))
    return Setup(tuple(state["orders"]), tuple(map(bool, state["told"])), start)


def restore(kitchen: KitchenState, state: Mapping[str, Any]) -> None:
    """Puts a kitchen into the state of a snapshot.

    Without the key `memory` every agent remembers the full truth; without `orders` the kitchen keeps its own orders and
    start.

    Args:
        kitchen: A kitchen with the same settings as the one that made the snapshot.
        state: The snapshot.
    """
    kitchen.reset(_setup(kitchen, state) if "orders" in state else None)
    kitchen.cells = bytearray(int(code) for row in state["grid"] for code in row)
    for name, (x, y, chops, _) in state["foods"].items():
        kitchen.foods[name].cell, kitchen.foods[name].chops = x * SIZE + y, chops
    for plate in kitchen.plates:
        x, y, contents = state["plates"][plate.name]
        plate.cell, plate.contents = x * SIZE + y, [kitchen.foods[name] for name in contents]
    surfaces = zip([*kitchen.knives, kitchen.delivery], [*state["knives"], *state["delivery"]], strict=True)
    for surface, (_, _, on) in surfaces:
        surface.on = kitchen.items[on] if on else None
    for agent, (x, y, held) in zip(kitchen.agents, state["agents"], strict=True):
        agent.cell, agent.held = x * SIZE + y, kitchen.items[held] if held else None
    kitchen.forget()
    if "memory" in state:
        for belief, (cells, status) in zip(kitchen.beliefs, state["memory"], strict=True):
            belief.set(cells, status)
    kitchen.game_step = state.get("game_step", 0)
    kitchen.delivered = state.get("delivered", kitchen.delivery.on is not None)
    kitchen.serve(state.get("served", int(kitchen.delivered)))
    kitchen.paid = set(state.get("paid", ()))


def _surface_state(surface: Knife) -> list[Any]:
    return [surface.x, surface.y, surface.on.name if surface.on else None]
