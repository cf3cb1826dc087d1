"""A scripted planner: which subgoal each cook should have now, and the walker that takes a cook to a goal cell.

The reference for planners that are language models. Rules of our own for any kitchen, also with separate rooms, from
its whole state and without search over game states.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from rllib_llm_comm.envs.overcooked_ai.kernel import INTERACT, STAY
from rllib_llm_comm.envs.overcooked_ai.layouts import COUNTER, DISHES, FLOOR, ONIONS, POT, SERVING, Cell, Layout
from rllib_llm_comm.envs.overcooked_ai.places import UNREACHABLE, routes_of
from rllib_llm_comm.envs.overcooked_ai.recipes import COOK_TIME, FULL
from rllib_llm_comm.envs.overcooked_ai.rules import NONE, Item, SoupKitchen, effect

_PASSING_SAVES = 1.6


@lru_cache(maxsize=32)
def passing_counters(layout: Layout) -> tuple[Cell, ...]:
    """Counters over which onions should be handed: all that save much of the way from crates to pots; else none."""
    ways = routes_of(layout)
    crates, pots = layout.cells(ONIONS), layout.cells(POT)
    direct = min(ways.leg(crate, pot) for crate in crates for pot in pots)
    saving = []
    for counter in layout.cells(COUNTER):
        to, on = min(ways.leg(crate, counter) for crate in crates), min(ways.leg(counter, pot) for pot in pots)
        if to + on < UNREACHABLE and direct > _PASSING_SAVES * (to + on + 2):
            saving.append((to + on, counter))
    return tuple(counter for _, counter in sorted(saving))


_STOCK = 3


@dataclass(frozen=True)
class Task:
    """Next task of one cook.

    Attributes:
        verb: "take", "put", "add", "plate", "deliver" or "wait".
        kind: Item to take, put down or bring: "onion", "dish", "soup"; empty for "wait".
        cell: Its cell; a floor cell for "wait".
    """

    verb: str
    kind: str
    cell: Cell


@dataclass
class _Plan:
    """Promises made while tasks are given out."""

    onions: dict[Cell, int]
    soups: dict[Cell, int]
    tasks: list[Task | None] = field(default_factory=lambda: [None, None])
    taken: set[Cell] = field(default_factory=set)


def plan(kitchen: SoupKitchen, pots: Iterable[Cell] | None = None) -> tuple[Task, Task]:
    """The task of each cook now. A kitchen where not only soup of three onions is ordered gets a `UserError`.

    Args:
        kitchen: The game.
        pots: The pots that the cooks use; None: those whose soups pay, so all, or the wanted one.
    """
    kitchen.layout.require_classic("The scripted cooks")
    if pots is None:
        pots = kitchen.layout.cells(POT) if kitchen.wanted is None else (kitchen.wanted.pot,)
    return TaskPlanner(kitchen, pots).tasks()


class TaskPlanner:
    """One planning of one moment: of a kitchen, and the pots that its cooks use."""

    def __init__(self, kitchen: SoupKitchen, pots: Iterable[Cell]) -> None:
        self.kitchen, self.layout, self.pots = kitchen, kitchen.layout, list(pots)
        self.routes, self.passing = routes_of(kitchen.layout), passing_counters(kitchen.layout)
        self.cooks = [kitchen.cook(0), kitchen.cook(1)]
        self.items = kitchen.items()
        self.loose = {cell: item for cell, item in self.items.items() if self.layout.kind(cell) == COUNTER}
        wanted, soups = {}, {}
        for pot in self.pots:
            soup = self.items.get(pot)
            if soup is None or (soup.tick < 0 and soup.onions < FULL):
                wanted[pot] = FULL - (soup.onions if soup else 0)
            else:
                soups[pot] = COOK_TIME - max(soup.tick, 0)
        self.plan = _Plan(wanted, soups)

    def tasks(self) -> tuple[Task, Task]:
        """Tasks of both now: full hands come first; then the empty-handed, the one with the shorter way first."""
        for kind in ("soup", "dish", "onion"):
            holders = [i for i in range(2) if (held := self.cooks[i].held) is not None and held.kind == kind]
            for i in sorted(holders, key=self._to_pots):
                self.plan.tasks[i] = getattr(self, f"_with_{kind}")(i)
        for pot, wanted in list(self.plan.onions.items()):
            if wanted == 0:  # its last onions are on their way
                self.plan.soups[pot] = COOK_TIME
        for i in sorted((i for i in range(2) if self.cooks[i].held is None), key=self._for_a_dish):
            self.plan.tasks[i] = self._with_nothing(i)
        first, second = self.plan.tasks
        assert first is not None and second is not None
        return first, second

    # ---- full hands --------------------------------------------------------------------------------------

    def _with_soup(self, i: int) -> Task:
        serving = self._nearest(i, self.layout.cells(SERVING))
        return Task("deliver", "soup", serving) if serving else self._hand_over(i, "soup")

    def _with_dish(self, i: int) -> Task:
        reachable = [pot for pot in self.plan.soups if self._reach(i, pot)]
        if reachable:
            pot = min(reachable, key=lambda pot: (max(self.plan.soups[pot], self._cost(i, pot)), pot))
            del self.plan.soups[pot]
            return Task("plate", "soup", pot)
        nearly = [pot for pot, wanted in self.plan.onions.items() if wanted <= 1 and self._reach(i, pot)]
        if nearly:
            return self.aside(i, nearly[0])
        if not any(self._reach(i, pot) for pot in self.pots):
            self._promise_dish()
            return self._hand_over(i, "dish")
        return self._put_down(i, "dish") if self.plan.onions else self.aside(i)

    def _with_onion(self, i: int) -> Task:
        feeds = self._feeds(i)
        if feeds and (counter := self._free_counter(i)) is not None:
            return Task("put", "onion", counter)
        reachable = [pot for pot, wanted in self.plan.onions.items() if wanted > 0 and self._reach(i, pot)]
        if reachable:
            pot = min(reachable, key=lambda pot: (self._cost(i, pot) + 3 * self.plan.onions[pot], pot))
            self.plan.onions[pot] -= 1
            return Task("add", "onion", pot)
        if not any(self._reach(i, pot) for pot in self.pots):
            return self._hand_over(i, "onion")
        if self._lacks_dishes(i):
            return self._put_down(i, "onion")
        pot = min((p for p in self.pots if self._reach(i, p)), key=lambda p: (self.plan.soups.get(p, 0), p))
        return self.aside(i, pot)

    def _lacks_dishes(self, i: int) -> bool:
        """True if soups wait, nobody brings a dish and the other cook cannot."""
        other = self.cooks[1 - i]
        busy = other.held is not None and other.held.kind == "onion"
        return bool(self.plan.soups) and busy and self._reach_any(i, DISHES) and self._prefers_dishes() == i

    # ---- empty hands -------------------------------------------------------------------------------------

    def _with_nothing(self, i: int) -> Task:
        for soup in self._loose(i, "soup"):
            if self._reach_any(i, SERVING):
                return self._take(soup, "soup")
        dish = self._dish_task(i)
        if dish is not None:
            return dish
        onion = self._onion_task(i)
        return onion if onion is not None else self.aside(i)

    def _dish_task(self, i: int) -> Task | None:
        """Fetches a dish if a soup will want one that nobody brings."""
        reaches_soups = [pot for pot in self.plan.soups if self._reach(i, pot)]
        other = self.plan.tasks[1 - i]
        if not reaches_soups:
            feeder = not any(self._reach(i, pot) for pot in self.pots)
            soon = self.plan.soups or any(wanted <= 1 for wanted in self.plan.onions.values())
            if feeder and soon and self._reach_any(i, DISHES) and not self._dish_on_its_way(i):
                return self._take(self._source(i, DISHES), "dish")
            return None
        if other is not None and other.kind == "dish" and len(self.plan.soups) <= 1:
            return None
        source = self._dish_source(i)
        if source is None:
            return None
        pot = min(reaches_soups, key=lambda pot: (self.plan.soups[pot], pot))
        if self._prefers_dishes() != i and other is None and self.plan.soups[pot] > 0:
            return None
        way = self._cost(i, source) + self.routes.leg(source, pot) + 1
        early = self.plan.soups[pot] - way
        if early > 2 * self._onion_round(i) and any(self.plan.onions.values()):
            return None
        del self.plan.soups[pot]
        return self._take(source, "dish")

    def _onion_task(self, i: int) -> Task | None:
        stock = sum(item.kind == "onion" for item in self.loose.values())
        if self._feeds(i):
            room = stock < min(_STOCK, len(self.passing))
            return self._take(self._source(i, ONIONS), "onion") if room and self._reach_any(i, ONIONS) else None
        sources = self._loose(i, "onion")
        if self._reach_any(i, ONIONS):
            sources = [*sources, *self.layout.cells(ONIONS)]
        sources = [cell for cell in sources if self._reach(i, cell)]
        pots = [pot for pot in self.pots if self._reach(i, pot)]
        if not sources or not pots:
            return None
        wanted = sum(self.plan.onions.get(pot, 0) for pot in pots)
        if wanted <= 0 and (self._onions_held() >= 1 or not self._soup_soon()):
            return None
        source = min(sources, key=lambda c: (self._cost(i, c) + min(self.routes.leg(c, pot) for pot in pots), c))
        pot = min(pots, key=lambda p: (-self.plan.onions.get(p, 0), p))
        if self.plan.onions.get(pot, 0) > 0:
            self.plan.onions[pot] -= 1
        return self._take(source, "onion")

    def aside(self, i: int, near: Cell | None = None) -> Task:
        """Waits in nobody's way, perhaps near a place: on floor beside few things that others want to use."""
        other = self.cooks[1 - i].cell
        used = [cell for kind in (POT, ONIONS, DISHES, SERVING) for cell in self.layout.cells(kind)]

        def key(cell: Cell) -> tuple[int, int, Cell]:
            """The less the better: near the place that it waits for, short ways, and few things beside the cell."""
            nuisance = sum(_apart(cell, thing) == 1 for thing in used)
            way = self._cost(i, cell)
            if near is None:
                return nuisance, way, cell
            return int(_apart(cell, near) == 1), way + 2 * _apart(cell, near) + nuisance, cell

        floor = [cell for cell in self.layout.cells(FLOOR) if self._reach(i, cell) and cell != other]
        return Task("wait", "", min(floor, key=key))

    # ---- small questions ---------------------------------------------------------------------------------

    def _cost(self, i: int, cell: Cell) -> int:
        return self.routes.cost(self.cooks[i].cell, self.cooks[i].facing, cell)

    def _reach(self, i: int, cell: Cell) -> bool:
        return self._cost(i, cell) < UNREACHABLE

    def _reach_any(self, i: int, kind: int) -> bool:
        return any(self._reach(i, cell) for cell in self.layout.cells(kind))

    def _nearest(self, i: int, cells: Iterable[Cell]) -> Cell | None:
        reached = [cell for cell in cells if self._reach(i, cell)]
        return min(reached, key=lambda cell: (self._cost(i, cell), cell), default=None)

    def _source(self, i: int, kind: int) -> Cell:
        source = self._nearest(i, self.layout.cells(kind))
        assert source is not None
        return source

    def _loose(self, i: int, kind: str) -> list[Cell]:
        cells = [c for c, item in self.loose.items() if item.kind == kind and c not in self.plan.taken]
        return sorted((c for c in cells if self._reach(i, c)), key=lambda c: (self._cost(i, c), c))

    def _take(self, cell: Cell, kind: str) -> Task:
        if self.layout.kind(cell) == COUNTER:
            self.plan.taken.add(cell)
        return Task("take", kind, cell)

    def _dish_source(self, i: int) -> Cell | None:
        sources = self._loose(i, "dish")
        if self._reach_any(i, DISHES):
            sources = [*sources, self._source(i, DISHES)]
        return self._nearest(i, sources)

    def _dish_on_its_way(self, i: int) -> bool:
        held: Item | None = self.cooks[1 - i].held
        waiting = sum(item.kind == "dish" for item in self.loose.values())
        return waiting + (held is not None and held.kind == "dish") >= max(1, len(self.plan.soups))

    def _promise_dish(self) -> None:
        """The soup that is ready first gets the dish that is being handed over."""
        if self.plan.soups:
            self.plan.soups.pop(min(self.plan.soups, key=lambda pot: (self.plan.soups[pot], pot)))

    def _onions_held(self) -> int:
        return sum(cook.held is not None and cook.held.kind == "onion" for cook in self.cooks)

    def _soup_soon(self) -> bool:
        return any(pot in self.items for pot in self.pots)

    def _feeds(self, i: int) -> bool:
        """True if a cook hands onions over instead of bringing them itself."""
        if not self.passing:
            return False
        if not any(self._reach(i, pot) for pot in self.pots):
            return True
        if not any(self._reach(1 - i, pot) for pot in self.pots):
            return False
        crates = self.layout.cells(ONIONS)
        mine, theirs = (min(self._cost(k, crate) for crate in crates) for k in (i, 1 - i))
        return mine < theirs or (mine == theirs and i == 0)

    def _free_counter(self, i: int) -> Cell | None:
        free = [c for c in self.passing if c not in self.items and c not in self.plan.taken]
        return self._nearest(i, free)

    def _hand_over(self, i: int, kind: str) -> Task:
        counter = self._free_counter(i)
        if counter is None:
            return self.aside(i)
        self.plan.taken.add(counter)
        return Task("put", kind, counter)

    def _put_down(self, i: int, kind: str) -> Task:
        free = [c for c in self.layout.cells(COUNTER) if c not in self.items and c not in self.plan.taken]
        counter = self._nearest(i, free)
        return Task("put", kind, counter) if counter else self.aside(i)

    def _onion_round(self, i: int) -> int:
        """Actions for bringing one more onion."""
        pots = [pot for pot in self.pots if self._reach(i, pot)]
        crates = [crate for crate in self.layout.cells(ONIONS) if self._reach(i, crate)]
        if not pots or not crates:
            return UNREACHABLE
        return min(self._cost(i, crate) + self.routes.leg(crate, pot) + 2 for crate in crates for pot in pots)

    def _prefers_dishes(self) -> int:
        """Index of the cook that is better at soups than at onions, compared with the other."""
        return min(range(2), key=self._for_a_dish)

    def _for_a_dish(self, i: int) -> float:
        source = self._nearest(i, self.layout.cells(DISHES))
        pots = [pot for pot in self.pots if self._reach(i, pot)]
        serving = [cell for cell in self.layout.cells(SERVING) if self._reach(i, cell)]
        if source is None or not pots or not serving:
            return UNREACHABLE
        way = self._cost(i, source) + min(
            self.routes.leg(source, pot) + self.routes.leg(pot, out) for pot in pots for out in serving
        )
        return way - min(self._onion_round(i), UNREACHABLE) * 0.5

    def _to_pots(self, i: int) -> int:
        return min((self._cost(i, pot) for pot in self.pots), default=UNREACHABLE)


def _apart(first: Cell, second: Cell) -> int:
    return abs(first[0] - second[0]) + abs(first[1] - second[1])


class ScriptedCooks:
    """Plays for both cooks: the planner's tasks, carried out by walkers. Plans anew whenever a task is done.

    Args:
        kitchen: The game.
        seed: Seed of the random steps of cooks that block each other.
    """

    def __init__(self, kitchen: SoupKitchen, seed: int = 0) -> None:
        self.kitchen = kitchen
        self._walkers = [CookWalker(kitchen, i, np.random.default_rng([seed, i])) for i in range(2)]

    def actions(self) -> tuple[int, int]:
        """The next primitive actions of both."""
        first, second = plan(self.kitchen)
        return self._walkers[0].action(first.cell), self._walkers[1].action(second.cell)


# ---- the walker --------------------------------------------------------------------------------------

PATIENCE = 4
_LONGEST_DETOUR = 3
_YIELDS = 0.5


class CookWalker:
    """Takes a cook to goal cells, one primitive action at a time.

    The way is a shortest one around the other cook, or, if there is none, as if it were not there; it is kept as long
    as it is free. A cook that could not move waits for a step with probability 1/2, so that of two that want the same
    cell one gets it. A cook that has come no nearer for `PATIENCE` steps (two cooks that block each other, or that turn
    around together again and again) takes up to three random steps, drawn from its own generator.

    Args:
        kitchen: The game.
        player: 0 or 1.
        rng: Draws the random steps; one that always draws the same by default.
    """

    def __init__(self, kitchen: SoupKitchen, player: int, rng: np.random.Generator | None = None) -> None:
        self._kitchen, self._player = kitchen, player
        self._routes = routes_of(kitchen.layout)
        self.reset(rng or np.random.default_rng(0))

    def reset(self, rng: np.random.Generator) -> None:
        """Begins an episode; `rng` draws the random steps."""
        self._rng = rng
        self._goal: Cell | None = None
        self._way: tuple[int, ...] = ()
        self._expected: tuple[Cell, int] | None = None
        self._before: tuple[Cell, int] | None = None
        self._nearest, self._waited, self._detour = 0, 0, 0

    def arrived(self, goal: Cell) -> bool:
        """True if the cook stands on a goal, or beside it and faces it."""
        cook = self._kitchen.cook(self._player)
        return self._routes.cost(cook.cell, cook.facing, goal) == 0

    def useful(self, goal: Cell) -> bool:
        """True if using a goal would do something now."""
        return effect(self._kitchen, self._kitchen.cook(self._player).held, goal) != NONE

    def action(self, goal: Cell) -> int:
        """The next primitive action towards a goal.

        A goal that cannot be reached, or floor that is reached, gives `STAY`; a faced cell that is no floor `INTERACT`.
        """
        cook = self._kitchen.cook(self._player)
        cost = self._routes.cost(cook.cell, cook.facing, goal)
        if goal != self._goal:
            self._goal, self._way, self._expected, self._before = goal, (), None, None
            self._nearest, self._waited, self._detour = cost, 0, 0
        if cost == UNREACHABLE:
            return STAY
        if cost == 0:
            self._nearest, self._waited, self._detour = cost, 0, 0
            return STAY if self._kitchen.layout.kind(goal) == FLOOR else INTERACT
        if cost < self._nearest:
            self._nearest, self._waited = cost, 0
        elif self._waited >= PATIENCE:
            self._detour, self._waited, self._nearest = int(self._rng.integers(1, _LONGEST_DETOUR + 1)), 0, cost
        self._waited += 1
        if self._detour:
            self._detour -= 1
            self._way = ()
            return self._random_step(cook.cell)
        if (cook.cell, cook.facing) == self._before and self._rng.random() < _YIELDS:
            return STAY
        self._before = (cook.cell, cook.facing)
        return self._along(cook.cell, cook.facing, goal)

    def _along(self, cell: Cell, facing: int, goal: Cell) -> int:
        other = self._kitchen.cook(1 - self._player).cell
        pose = (cell, facing)
        if not self._way or pose != self._expected or self._crosses(pose, other):
            way = self._routes.path(pose, goal, frozenset({other}))
            self._way = self._routes.path(pose, goal) or () if way is None else way
        move = self._way[0]
        self._expected = self._routes.after(pose, move)
        self._way = self._way[1:]
        return move

    def _crosses(self, pose: tuple[Cell, int], other: Cell) -> bool:
        for move in self._way:
            pose = self._routes.after(pose, move)
            if pose[0] == other:
                return True
        return False

    def _random_step(self, cell: Cell) -> int:
        other = self._kitchen.cook(1 - self._player).cell
        free = [m for m in range(4) if self._routes.after((cell, 0), m, frozenset({other}))[0] != cell]
        return int(self._rng.choice([*free, STAY]))


def goal_places(layout: Layout) -> list[Cell]:
    """The cells that are no floor and that a cook can use, row by row: goals for agents that choose among phrases."""
    routes = routes_of(layout)
    reachable = np.logical_or(*(routes.reachable(start) for start in layout.starts))
    numbers: Sequence[int] = np.flatnonzero(reachable & (layout.terrain != FLOOR)).tolist()
    return [(number % layout.width, number // layout.width) for number in numbers]
