"""The textual kitchen as planners know it: they see all of it, and the order whoever is told it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.overcooked_text import observation_text
from rllib_llm_comm.envs.overcooked_text.cooks import Saying, choose
from rllib_llm_comm.envs.overcooked_text.layouts import SIZE, recipe_foods
from rllib_llm_comm.envs.overcooked_text.observation_text import BOWL, SeenItem, dish_name, item_words
from rllib_llm_comm.envs.overcooked_text.rules import DISTANCE, KitchenMoment, moment
from rllib_llm_comm.envs.told_to import ALL, NAMES, PLANNER
from rllib_llm_comm.sama.planning_game import PlanningGame, RulePlayer

WAIT, BRING, CHOP, SERVE = "wait", "bring", "chop", "serve"


@dataclass(frozen=True)
class FollowingSaladCooks(RulePlayer):
    """Chooses by the rules of the scripted cook as if its subgoal were all that is ordered; sees the whole kitchen.

    It knows nothing of the order. What is chopped already it puts into a bowl if no board is free. Without a subgoal it
    waits where it is, and nobody gets out of another one's way; so each needs a room of its own.

    Raises:
        UserError: If the kitchen has primitive actions, or cooks share a room.
    """

    game: SaladPlanning

    def __post_init__(self) -> None:
        """Refuses what the rules cannot play."""
        kitchen = self.game.env.unwrapped.kitchen
        if kitchen.map_name != "B" or kitchen.num_agents > 2:
            raise UserError(
                f"`map_name` is {kitchen.map_name!r} and `num_agents` {kitchen.num_agents}, but the cooks that follow "
                "subgoals by rules do not get out of each other's way; take map 'B' with two cooks, or give a "
                "checkpoint."
            )
        if self.game.env.unwrapped.runner.level != "macro":
            raise UserError(
                "`action_level` is 'primitive' but the cooks that follow subgoals by rules choose among macro-actions; "
                "set it to 'macro', or give a checkpoint."
            )

    def action(self, agent: str, seen: Mapping[str, Any]) -> int:
        """The next action of a cook."""
        subgoal = str(seen["subgoal"])
        verb, things = self.game.meant(subgoal) if subgoal else (WAIT, ())
        if verb == WAIT:
            return 0
        runner, i = self.game.env.unwrapped.runner, NAMES.index(agent)
        allowed = observation_text.wording(runner, i).mask.nonzero()[0].tolist()
        found = [observation_text.option(runner, i, runner.preview(i, action)) for action in allowed]
        view = observation_text.view(runner, i, everything=True)
        done = [name for name, food in runner.kitchen.foods.items() if food.chopped]
        view = replace(view, dish=tuple(sorted({*things, *done})) if verb == CHOP else things)
        asked = [Saying(BRING, thing) for thing in things] if verb == BRING else []
        return allowed[choose(view, found, asked)]


_VERBS = {
    BRING: r"bring|pass|fetch|get|carry|hand over",
    CHOP: r"chop|cut|slice",
    SERVE: r"serve|deliver",
}
_WAITS = re.compile(r"(?:wait|stay|do nothing|stand still)(?: here| there)?")
_WALL_COLUMN = 3
_SALADS = ["tomato salad", "lettuce salad", "onion salad"]


class SaladPlanning(PlanningGame):
    """Shows planners an `OvercookedText`.

    Subgoals are to bring a food or a bowl over the counter between the rooms (where there is one), to chop a food, to
    serve a dish, and to wait. A food may be chopped as soon as the cook could reach a board, wherever the food lies.
    """

    scenarios: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "told_to_planner": {"map_name": "B", "recipe": _SALADS, "told_to": PLANNER},
        "two_foods": {"map_name": "B", "recipe": "lettuce-tomato salad"},
    }
    played_with: ClassVar[Mapping[str, Any]] = {"observe": ["text"]}

    def __init__(self, env: Any) -> None:
        """Lets the kitchen keep its moments."""
        super().__init__(env)
        env.unwrapped.watched = True

    # ---- moments -----------------------------------------------------------------------------------------

    def state(self) -> KitchenMoment:
        """All that is in the kitchen now, with the order."""
        passed: list[KitchenMoment] = self.env.unwrapped.passed
        return passed[-1] if passed else moment(self.env.unwrapped.kitchen)

    def passed(self) -> list[KitchenMoment]:
        """Moments before the last step and after each of its game steps."""
        return list(self.env.unwrapped.passed) or [self.state()]

    def supposed(self, state: KitchenMoment) -> list[KitchenMoment]:
        """The same moment with each dish that may be ordered, unless every cook is told the order."""
        if self.env.unwrapped.settings["told_to"] == ALL:
            return [state]
        return [state._replace(order=dish) for dish in self.env.unwrapped.facts]

    # ---- words -------------------------------------------------------------------------------------------

    def manual(self) -> str:
        """Rules of the kitchen."""
        return f"{self.env.unwrapped.brief} The task: {self.env.unwrapped.task}."

    def situation(self, state: KitchenMoment) -> str:
        """The order, and the place of every food and bowl."""
        return self.situation_for(state, self.agents)

    def situation_for(self, state: KitchenMoment, agents: Sequence[str]) -> str:
        """The same, without the order for who plans for cooks alone that are not told it."""
        told = self.env.unwrapped.kitchen.told
        order = len(agents) == len(self.agents) or any(told(self._number(agent)) for agent in agents)
        ordered = f"The order is a {_dish(state.order)}." if order else "You do not know the order."
        things = [f"The {self._words(state, name)} is {self._where(state, name)}." for name in sorted(state.cells)]
        return " ".join([f"Game step {state.time}.", ordered, *things])

    def situation_of(self, state: KitchenMoment, agent: str) -> str:
        """Room and hands of a cook."""
        i = self._number(agent)
        rooms = {-1: "the left room", 0: "the gap of the counter", 1: "the right room"}
        room = "the kitchen" if self._map == "A" else rooms[_side(state.cooks[i])]
        held = state.held[i]
        holds = f"the {self._words(state, held)}" if held else "nothing"
        return f"{agent.capitalize()} is in {room} and holds {holds}."

    def plain(self, state: KitchenMoment) -> Mapping[str, Any]:
        """Time, order, foods, bowls and cooks."""
        foods, bowls = sorted(set(state.cells) - set(state.contents)), sorted(state.contents)
        return {
            "time": state.time,
            "order": state.order,
            "served": state.served,
            "foods": {
                name: {"chopped": name in state.chopped, "where": self._where(state, name), "cell": _cell(state, name)}
                for name in foods
            },
            "bowls": [
                {"foods": list(state.contents[name]), "where": self._where(state, name), "cell": _cell(state, name)}
                for name in bowls
            ],
            "cooks": {
                agent: {"cell": list(divmod(cell, SIZE)), "holds": self._words(state, held) if held else None}
                for agent, cell, held in zip(self.agents, state.cooks, state.held, strict=True)
            },
        }

    # ---- subgoals ----------------------------------------------------------------------------------------

    def library(self, agent: str) -> list[str]:
        """To bring and to chop each food, to serve each dish, and to wait."""
        foods = list(self.env.unwrapped.kitchen.foods)
        brought = [] if self._map == "A" else [f"{BRING} the {thing}" for thing in (*foods, BOWL)]
        served = [f"{SERVE} the {_dish(dish)}" for dish in self.env.unwrapped.facts]
        return [*brought, *(f"{CHOP} the {food}" for food in foods), *served, WAIT]

    def parse(self, words: str) -> str | None:
        """Subgoal of the one verb and the things that a text names; `None` if there is no such subgoal."""
        plain = " ".join(re.findall("[a-z]+", words.lower()))
        if _WAITS.fullmatch(plain):
            return WAIT
        verbs = [verb for verb, pattern in _VERBS.items() if re.search(rf"\b(?:{pattern})\b", plain)]
        if len(verbs) != 1:
            return None
        named = {word for word in plain.split() if word in (*self.env.unwrapped.kitchen.foods, BOWL)}
        library = self.library(self.agents[0])
        return next((one for one in library if one.startswith(verbs[0]) and _things(one) == named), None)

    def forms(self) -> str:
        """All subgoals."""
        return "; ".join(self.library(self.agents[0]))

    def meant(self, subgoal: str) -> tuple[str, tuple[str, ...]]:
        """Verb of a subgoal, and the foods or the bowl that it names."""
        return subgoal.split()[0], tuple(sorted(_things(subgoal)))

    def refusal(self, state: KitchenMoment, agent: str, subgoal: str) -> str:
        """Reason for which a cook cannot set about a subgoal, as it is done or its room lacks what is needed."""
        verb, things = self.meant(subgoal)
        if verb == WAIT:
            return ""
        room = 0 if self._map != "B" else _side(state.cooks[self._number(agent)])
        if verb == BRING:
            if room < 0:
                return f"{agent} cannot {subgoal}, as the shelves are in the other room"
            return self._not_to_bring(state, agent, things[0])
        if room > 0:
            return f"{agent} cannot {subgoal}, as boards and delivery are in the other room"
        if verb == CHOP:
            return f"the {things[0]} is chopped already" if things[0] in state.chopped else ""
        raw = [food for food in things if food not in state.chopped]
        return f"{agent} cannot {subgoal}, as the {raw[0]} is not chopped" if raw else ""

    def _not_to_bring(self, state: KitchenMoment, agent: str, thing: str) -> str:
        names = list(state.contents) if thing == BOWL else [thing]
        if any(_side(state.cells[name]) <= 0 for name in names):
            return f"the {thing} is there already"
        others = [other for other, held in zip(self.agents, state.held, strict=True) if held in names]
        taken = [other for other in others if other != agent]
        return f"{taken[0]} has the {thing} already" if taken and agent not in others else ""

    def done(self, before: KitchenMoment, after: KitchenMoment, agent: str, subgoal: str) -> bool:
        """True if a cook has just brought, chopped or served what its subgoal names."""
        verb, things = self.meant(subgoal)
        i = self._number(agent)
        if verb == BRING:
            held = before.held[i]
            fits = held is not None and (held in before.contents if things[0] == BOWL else held == things[0])
            return fits and held is not None and _side(before.cells[held]) > 0 >= _side(after.cells[held])
        if verb == CHOP:
            return f"chopped {things[0]}" in after.events[i]
        foods = tuple(sorted(recipe_foods(before.order)))
        return verb == SERVE and foods == things and "correct_delivery" in after.events[i]

    def waits(self, state: KitchenMoment, agent: str, subgoal: str) -> bool:
        """True if a subgoal is to wait."""
        return subgoal == WAIT

    def effort(self, state: KitchenMoment, agent: str, subgoal: str) -> float:
        """Manhattan distance to what a subgoal names; from the boards for a dish."""
        verb, things = self.meant(subgoal)
        if verb in (WAIT, SERVE):
            return 0.0
        here = state.cooks[self._number(agent)]
        names = list(state.contents) if things[0] == BOWL else list(things)
        return float(min(DISTANCE[here][state.cells[name]] for name in names))

    # ---- planners and players by rules -------------------------------------------------------------------

    def scripted(self, state: KitchenMoment) -> tuple[str, dict[str, str]]:
        """Plan by rules: foods of the order are brought and chopped, then a bowl is brought and the dish served."""
        foods = sorted(recipe_foods(state.order))
        goal = f"serve a {_dish(state.order)}"
        way = dict.fromkeys(self.agents, WAIT)
        rooms = {agent: _side(cell) for agent, cell in zip(self.agents, state.cooks, strict=True)}
        apart = self._map == "B" and len(set(rooms.values())) > 1
        left = [agent for agent in self.agents if not apart or rooms[agent] < 0]
        tasks = {f"{CHOP} the {food}": food for food in foods if food not in state.chopped}
        self._share(state, left, tasks or {f"{SERVE} the {_dish(state.order)}": BOWL}, way)
        fetched = {
            f"{BRING} the {thing}": thing for thing in [*foods, BOWL] if not self._not_to_bring(state, "", thing)
        }
        self._share(state, [agent for agent in self.agents if agent not in left], fetched, way)
        return goal, way

    def _share(self, state: KitchenMoment, cooks: Sequence[str], tasks: Mapping[str, str], way: dict[str, str]) -> None:
        """Gives tasks to cooks, those first whose hands hold what a task is about."""
        free, open_tasks = list(cooks), dict(tasks)
        for agent in cooks:
            held = state.held[self._number(agent)]
            about = BOWL if held in state.contents else held
            task = next((task for task, thing in open_tasks.items() if thing == about), None)
            if task is not None:
                way[agent] = task
                free.remove(agent)
                del open_tasks[task]
        way.update(zip(free, open_tasks, strict=False))

    def player(self) -> FollowingSaladCooks:
        """Cooks that follow their subgoals; on map B with two cooks and macro-actions only."""
        return FollowingSaladCooks(self)

    # ---- things in words ---------------------------------------------------------------------------------

    @property
    def _map(self) -> str:
        return str(self.env.unwrapped.kitchen.map_name)

    def _number(self, agent: str) -> int:
        return NAMES.index(agent)

    def _words(self, state: KitchenMoment, name: str) -> str:
        bowl = name in state.contents
        inside = tuple(sorted(state.contents[name])) if bowl else ()
        return item_words(SeenItem(BOWL if bowl else name, name in state.chopped, inside))

    def _where(self, state: KitchenMoment, name: str) -> str:
        holder = [agent for agent, held in zip(self.agents, state.held, strict=True) if held == name]
        if holder:
            return f"in the hands of {holder[0]}"
        if any(name in inside for inside in state.contents.values()):
            return "in a bowl"
        if name in state.boards:
            return "on a board"
        if self._map == "A":
            return "on a counter"
        return ("on the counter between the rooms", "on a shelf of the right room", "on a shelf of the left room")[
            _side(state.cells[name])
        ]


def _side(cell: int) -> int:
    """-1 for a cell of the left room, 0 for the counter between the rooms, 1 for the right room."""
    column = cell % SIZE
    return (column > _WALL_COLUMN) - (column < _WALL_COLUMN)


def _cell(state: KitchenMoment, name: str) -> list[int]:
    return list(divmod(state.cells[name], SIZE))


def _dish(recipe: str) -> str:
    return dish_name(sorted(recipe_foods(recipe)))


def _things(subgoal: str) -> set[str]:
    return set(subgoal.split()[1:]) - {"the", "salad"}
