"""The game: state and rules of the textual 7x7 kitchen, in plain Python without gym, numpy or randomness.

`Kitchen` knows primitive actions only; macro-actions are in `macro_execution.py`. With `legacy=True` it behaves
exactly like the original game; otherwise the deviations listed in `docs/envs/overcooked_text.md` apply.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rllib_llm_comm.envs.overcooked_text import snapshots
from rllib_llm_comm.envs.overcooked_text.beliefs import Belief
from rllib_llm_comm.envs.overcooked_text.effects import (
    NOTHING,
    WAIT,
    Agent,
    Effect,
    Food,
    Item,
    Knife,
    Plate,
    StepOutcome,
    Thing,
    carry,
    lying_item,
    place_item,
    touch,
)
from rllib_llm_comm.envs.overcooked_text.episodes import Setup
from rllib_llm_comm.envs.overcooked_text.layouts import (
    AGENT,
    COUNTER,
    DEFAULT_REWARDS,
    DELIVERY,
    DELTAS,
    FLOOR,
    KNIFE,
    MOVES,
    SIZE,
    STAY,
    nearest_free_counter,
    start_state,
    windows,
)
from rllib_llm_comm.envs.overcooked_text.orders import Orders


class Kitchen(Orders):
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
    """

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
        """Builds and resets the kitchen.

        Args:
            map_name: "A" (one room), "B" (two rooms, a shared counter between them) or "C" (as B, with a
                gap).
            layout: "full", "oneplate" or "tomato".
            recipe: The dish ordered, one of `layouts.RECIPES`.
            num_agents: 1 to 3.
            view_radius: Range of a cook's sight, in cells; 0 means everything.
            rewards: Overrides of `layouts.DEFAULT_REWARDS`.
            chop_pays_once: Whether each food pays its chop only once per episode. Off in legacy mode.
            legacy: Whether to behave exactly like the original.
            shared_collision: Whether every cook pays for every collision, not only the blocked one.
        """
        start = start_state(map_name, layout, num_agents)
        self.map_name, self.layout, self.num_agents = map_name, layout, num_agents
        self.view_radius, self.legacy, self.shared_collision = view_radius, legacy, shared_collision
        self.rewards = {**DEFAULT_REWARDS, **(rewards or {})}
        self.chop_pays_once = chop_pays_once and not legacy
        self.skeleton = start.skeleton
        self._windows = windows(view_radius)
        self.reset(Setup((recipe,), (True,) * num_agents, start))

    def reset(self, setup: Setup | None = None) -> None:
        """Puts everything back to its start.

        Args:
            setup: Orders, who is told, and start of the episode; None takes those of the last one.
        """
        self.setup = setup = setup or self.setup
        start = setup.start
        self.is_map_start = start == start_state(self.map_name, self.layout, self.num_agents)
        self.cells = bytearray(start.grid)
        self.foods = {name: Food(name, cell) for name, cell in start.foods}
        self.plates = [Plate(f"plate{k}", cell) for k, cell in enumerate(start.plates, 1)]
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
        return bool(self._windows[self.agents[agent].cell][x * SIZE + y])

    def board_at(self, cell: int) -> Knife | None:
        """The cutting board in the cell number `cell`, if there is one."""
        return self._surfaces.get(cell)

    def seen_vector(self, agent: int) -> list[float]:
        """Sight of `agent` as numbers, without memory."""
        return snapshots.seen_vector(self, agent)

    def memory_vector(self, agent: int) -> list[float]:
        """Like `seen_vector`, but unseen objects stand where `agent` believes them."""
        return snapshots.memory_vector(self, agent)

    # ---- acting --------------------------------------------------------------------------------------------

    def effect(self, agent: int, action: int) -> Effect:
        """Effect of the primitive `action` of `agent` in the present state if nobody else moves.

        Args:
            agent: Index of the agent.
            action: 0 right, 1 down, 2 left, 3 up, 4 stay.
        """
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
        """One game step.

        Args:
            actions: One primitive action per agent: 0 right, 1 down, 2 left, 3 up, anything above stays.

        Returns:
            Rewards and what happened.
        """
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
        """Carries out what touching `target` does.

        Returns:
            The shared reward.
        """
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
        """The whole state as JSON-able data; `restore` takes it back."""
        return snapshots.snapshot(self)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes over a `snapshot` of a kitchen with the same settings."""
        snapshots.restore(self, state)
        self._looked = False

    def copy(self) -> Kitchen:
        """An independent copy of the kitchen in its present state."""
        twin = Kitchen(
            self.map_name, self.layout, self.recipe, self.num_agents, self.view_radius, self.rewards,
            self.chop_pays_once, self.legacy, self.shared_collision,
        )  # fmt: skip
        twin.restore(self.snapshot())
        return twin
