"""The skill graph of the onion-soup kitchen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rllib_llm_comm.envs.overcooked_ai.effects import ADD, DELIVER, PLATE, PUT, TAKE
from rllib_llm_comm.envs.overcooked_ai.layouts import COUNTER, DISHES, FLOOR, ONIONS, POT, SERVING, Cell, Layout
from rllib_llm_comm.envs.overcooked_ai.names import COOKS, Places, places_of
from rllib_llm_comm.envs.overcooked_ai.recipes import FULL
from rllib_llm_comm.envs.overcooked_ai.routes import routes_of
from rllib_llm_comm.envs.overcooked_ai.rules import Kitchen
from rllib_llm_comm.envs.overcooked_ai.subgoals import GO, Subgoal, library, subgoal_text
from rllib_llm_comm.sama.planning_game import PlanningGame, State
from rllib_llm_comm.sama.skill_graph import Skill, SkillProblem, own

TARGET = "a delivered soup"
_HANDS, _FREE = "free hands", "a free counter"
_SOURCES = {"onion": ONIONS, "dish": DISHES}


def kitchen_skills(game: PlanningGame, kitchen: Kitchen, state: State) -> SkillProblem:
    """A moment of a kitchen as a search problem.

    Things: what each cook holds ("alice: onion", "alice: free hands"), what lies on counters that both can use ("an
    onion on a counter"), free ones of these, and per pot its onions, the room for more, and a soup that cooks or is
    ready. A pot of three onions cooks by itself.

    Args:
        game: Tells which subgoals are possible, and how far they are.
        kitchen: The kitchen in this moment.
        state: The moment.
    """
    places = places_of(kitchen.layout)
    skills = [skill for i in range(2) for skill in _Cook(game, kitchen, state, i).skills()]
    for pot in places.fixtures[POT]:
        name = places.names[pot]
        skills.append(Skill(f"{name} cooks", {_onions(name): FULL}, {_soup(name): 1}, cost=1.0))
    idle = {name: subgoal_text(kitchen.layout, Subgoal(GO, "", _aside(kitchen, i))) for i, name in enumerate(COOKS)}
    engaged = frozenset(name for i, name in enumerate(COOKS) if kitchen.cook(i).held is not None)
    return SkillProblem(skills, _have(kitchen, places), (TARGET,), idle, engaged)


def _aside(kitchen: Kitchen, player: int) -> Cell:
    """Floor where a cook is in nobody's way: beside few things that are used, and near."""
    layout, cook, other = kitchen.layout, kitchen.cook(player), kitchen.cook(1 - player).cell
    used = [cell for kind in (POT, ONIONS, DISHES, SERVING) for cell in layout.cells(kind)]

    def key(cell: Cell) -> tuple[int, int, Cell]:
        nuisance = sum(abs(cell[0] - x) + abs(cell[1] - y) == 1 for x, y in used)
        return nuisance, routes_of(layout).cost(cook.cell, cook.facing, cell), cell

    reach = places_of(layout).reachable(cook.cell)
    return min((cell for cell in layout.cells(FLOOR) if cell in reach and cell != other), key=key)


def _onions(pot: str) -> str:
    return f"onions in {pot}"


def _room(pot: str) -> str:
    return f"room in {pot}"


def _soup(pot: str) -> str:
    return f"soup in {pot}"


def _lying(kind: str) -> str:
    return f"{kind} on a counter"


def _exchange(layout: Layout) -> tuple[Cell, ...]:
    """The counters that both cooks can use."""
    places = places_of(layout)
    reach = [places.reachable(start) for start in layout.starts]
    return tuple(cell for cell in places.fixtures[COUNTER] if cell in reach[0] and cell in reach[1])


def _have(kitchen: Kitchen, places: Places) -> Counter[str]:
    have: Counter[str] = Counter()
    for i, name in enumerate(COOKS):
        held = kitchen.cook(i).held
        have[own(name, _HANDS if held is None else held.kind)] += 1
    for cell in _exchange(kitchen.layout):
        item = kitchen.item(cell)
        have[_FREE if item is None else _lying(item.kind)] += 1
    for cell in places.fixtures[POT]:
        soup, pot = kitchen.item(cell), places.names[cell]
        onions = 0 if soup is None else soup.onions
        have[_soup(pot)] = int(soup is not None and soup.tick >= 0)
        have[_onions(pot)] = 0 if have[_soup(pot)] else onions
        have[_room(pot)] = FULL - onions
    return have


class _Cook:
    """Skills of one cook."""

    def __init__(self, game: PlanningGame, kitchen: Kitchen, state: State, player: int) -> None:
        self._game, self._kitchen, self._state, self._name = game, kitchen, state, COOKS[player]
        self._library = library(kitchen.layout, player)
        self._exchange = frozenset(_exchange(kitchen.layout))
        self._possible = frozenset(game.possible(state, self._name))

    def skills(self) -> list[Skill]:
        layout, names = self._kitchen.layout, places_of(self._kitchen.layout).names
        hands = self._own(_HANDS)
        skills = []
        for kind in ("onion", "dish", "soup"):
            lying, mine = {_lying(kind): 1}, self._own(kind)
            if kind in _SOURCES:
                source = self._at(TAKE, kind, lambda cell, kind=kind: layout.kind(cell) == _SOURCES[kind])
                skills.append(self._skill(f"fetch {kind}", hands, mine, source))
            counters = self._at(TAKE, kind, self._exchange.__contains__)
            skills.append(self._skill(f"pick up {kind}", {**hands, **lying}, {**mine, _FREE: 1}, counters))
            counters = self._at(PUT, kind, self._exchange.__contains__)
            skills.append(self._skill(f"put down {kind}", {**mine, _FREE: 1}, {**hands, **lying}, counters))
        for subgoal in self._library:
            pot = names[subgoal.cell]
            if subgoal.verb == ADD:
                uses = {**self._own("onion"), _room(pot): 1}
                skills.append(self._skill(f"fill {pot}", uses, {**hands, _onions(pot): 1}, [subgoal]))
            elif subgoal.verb == PLATE:
                uses, brings = {**self._own("dish"), _soup(pot): 1}, {**self._own("soup"), _room(pot): FULL}
                skills.append(self._skill(f"empty {pot}", uses, brings, [subgoal]))
        serving = self._at(DELIVER, "soup", lambda cell: layout.kind(cell) == SERVING)
        skills.append(self._skill("deliver", self._own("soup"), {**hands, TARGET: 1}, serving))
        return [skill for skill in skills if skill is not None]

    def _own(self, thing: str) -> dict[str, int]:
        return {own(self._name, thing): 1}

    def _at(self, verb: str, kind: str, here: object) -> list[Subgoal]:
        return [s for s in self._library if s.verb == verb and s.kind == kind and here(s.cell)]  # type: ignore[operator]

    def _skill(
        self, name: str, uses: dict[str, int], brings: dict[str, int], subgoals: Sequence[Subgoal]
    ) -> Skill | None:
        """A skill that is done by one of some subgoals, the nearest first; `None` if there are none."""
        layout = self._kitchen.layout
        words = [subgoal_text(layout, subgoal) for subgoal in subgoals]
        if not words:
            return None
        efforts = {text: self._game.effort(self._state, self._name, text) for text in words}
        now = [text for text in words if text in self._possible]
        ordered = tuple(sorted(now, key=lambda text: efforts[text]))
        return Skill(f"{self._name}: {name}", uses, brings, self._name, ordered, 1.0 + min(efforts.values()))
