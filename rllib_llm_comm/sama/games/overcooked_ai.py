"""The onion-soup kitchen as planners know it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.overcooked_ai.checker import check_sentence
from rllib_llm_comm.envs.overcooked_ai.layouts import LAYOUT_NAMES, POT, Layout
from rllib_llm_comm.envs.overcooked_ai.manual import manual, map_facts
from rllib_llm_comm.envs.overcooked_ai.names import COOKS, places_of
from rllib_llm_comm.envs.overcooked_ai.plain_state import plain_state
from rllib_llm_comm.envs.overcooked_ai.planner import Task, plan
from rllib_llm_comm.envs.overcooked_ai.routes import routes_of
from rllib_llm_comm.envs.overcooked_ai.rules import Kitchen
from rllib_llm_comm.envs.overcooked_ai.subgoals import (
    GO,
    PLATE,
    TAKE,
    Subgoal,
    all_subgoals,
    completed,
    library,
    parse_subgoal,
    possible,
    possible_subgoals,
    subgoal_text,
    task_subgoal,
)
from rllib_llm_comm.envs.overcooked_ai.text import cook_sentences, state_sentences
from rllib_llm_comm.envs.overcooked_ai.walking_distances import FAR, distances_of
from rllib_llm_comm.language.prompt_files import template
from rllib_llm_comm.sama.games.overcooked_ai_player import FollowingCooks
from rllib_llm_comm.sama.games.overcooked_ai_skills import kitchen_skills
from rllib_llm_comm.sama.games.overcooked_ai_words import FORMS, plain_words, without_places
from rllib_llm_comm.sama.planning_game import BETWEEN_EXAMPLES, PlanningGame
from rllib_llm_comm.sama.skill_graph import SkillProblem


@dataclass(frozen=True, eq=False)
class Moment:
    """A moment of a kitchen.

    Attributes:
        state: `Kitchen.state`.
        soups: Soups delivered before it.
    """

    state: np.ndarray
    soups: int


class KitchenPlanning(PlanningGame):
    """Shows planners an `OvercookedAI`.

    Args:
        env: The environment, also wrapped.

    Raises:
        UserError: If its settings are such that subgoals cannot be told or followed.
    """

    scenarios: ClassVar[Mapping[str, Mapping[str, Any]]] = {name: {"layout": name} for name in LAYOUT_NAMES}
    played_with: ClassVar[Mapping[str, Any]] = {"action_level": "goal_cell", "observe": ["entities"]}

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        game = env.unwrapped
        if game.settings["dynamics"] != "old":
            raise UserError(
                "`dynamics` is 'new', in which pots have to be started, but no subgoal says so; use `dynamics='old'`."
            )
        if game.settings["swap_roles"]:
            raise UserError(
                "`swap_roles` is true, but plans name the cooks, of which the first is alice; use `swap_roles=False`."
            )
        if game.settings["wanted"] is not None:
            raise UserError(
                f"`wanted` is {game.settings['wanted']!r}, but plans and subgoals do not know of it; leave it away."
            )
        game.kitchen.layout.require_classic("Plans")
        self._layout: Layout = game.kitchen.layout

    def state(self) -> Moment:
        """Copy of the present state, and the soups delivered."""
        game = self.env.unwrapped
        return Moment(game.kitchen.state.copy(), game.soups)

    def passed(self) -> list[Moment]:
        """Moments of all steps since the last decision."""
        game = self.env.unwrapped
        return [Moment(state, game.soups) for state in game.passed]

    def kitchen(self, state: Moment) -> Kitchen:
        """A kitchen in this moment, to look at.

        Args:
            state: The moment.
        """
        kitchen = copy.copy(self.env.unwrapped.kitchen)
        kitchen.state = state.state
        return kitchen

    def manual(self) -> str:
        """Rules of the game and map of the kitchen."""
        return " ".join(manual(self._layout))

    def scenario(self) -> str:
        """Map of the kitchen."""
        return " ".join(map_facts(self._layout))

    def situation(self, state: Moment) -> str:
        """Pots, counters, time and soups."""
        return " ".join(state_sentences(self.kitchen(state), state.soups))

    def situation_of(self, state: Moment, agent: str) -> str:
        """Place, direction and hands of a cook."""
        return " ".join(cook_sentences(self.kitchen(state), COOKS.index(agent)))

    def plain(self, state: Moment) -> Mapping[str, Any]:
        """State of the kitchen as plain values."""
        return plain_state(self.kitchen(state))

    def holds(self, state: Moment, sentence: str) -> bool | None:
        """True if the kitchen's checker proves a sentence, false if it disproves it."""
        return check_sentence(self.kitchen(state), sentence, soups=state.soups)

    def examples(self, phase: str) -> Sequence[str]:
        """Worked examples of a phase, from a template file."""
        text = template("rllib_llm_comm.sama", f"example_overcooked_ai_{phase}")
        return [part.strip() for part in text.split(BETWEEN_EXAMPLES)]

    def library(self, agent: str) -> list[str]:
        """All subgoals of a cook, in words."""
        return [subgoal_text(self._layout, subgoal) for subgoal in library(self._layout, COOKS.index(agent))]

    def parse(self, text: str) -> str | None:
        """Subgoal that a text names, in the words of the library; `None` if it names none."""
        found = parse_subgoal(self._layout, text)
        return None if found is None else subgoal_text(self._layout, found)

    def resolve(self, state: Moment, agent: str, text: str) -> str | None:
        """Subgoal that a text means for a cook: without a place the nearest possible one; to wait is to go nowhere."""
        if (known := self.parse(text)) is not None:
            return known
        words, player = plain_words(text), COOKS.index(agent)
        if words == "wait":
            return subgoal_text(self._layout, Subgoal(GO, "", self.kitchen(state).cook(player).cell))
        meant = [one for one in library(self._layout, player) if words in without_places(one)]
        if not meant:
            return None
        options = [subgoal_text(self._layout, one) for one in meant]
        return min(options, key=lambda one: (bool(self.refusal(state, agent, one)), self.effort(state, agent, one)))

    def forms(self) -> str:
        """The verbs, things and places of subgoals."""
        return FORMS

    def refusal(self, state: Moment, agent: str, subgoal: str) -> str:
        """Reason against a subgoal of a cook now; to go to its own cell is to wait, and always possible."""
        kitchen, player, meant = self.kitchen(state), COOKS.index(agent), self.meant(subgoal)
        if possible(kitchen, player, meant) or self.waits(state, agent, subgoal):
            return ""
        if meant not in library(self._layout, player):
            return f"{agent} can never {subgoal}, as the place or the thing is out of {agent}'s reach"
        if meant.verb == GO:
            return f"{agent} cannot {subgoal} now, as somebody stands there"
        wanted = {TAKE: "nothing", PLATE: "a dish"}.get(meant.verb, f"the {meant.kind}")
        held = kitchen.cook(player).held
        holds = "nothing" if held is None else held.kind
        if holds != wanted.rpartition(" ")[2]:
            return f"{agent} cannot {subgoal} now, as for this {agent} must hold {wanted} but holds {holds}"
        return f"{agent} cannot {subgoal} now, as {self._there(kitchen, meant)}"

    def possible(self, state: Moment, agent: str) -> list[str]:
        """All subgoals that a cook can set about now, found in one pass, as they are asked for often."""
        kitchen, player = self.kitchen(state), COOKS.index(agent)
        here = Subgoal(GO, "", kitchen.cook(player).cell)
        found = {*possible_subgoals(kitchen, player), here}
        return [subgoal_text(self._layout, one) for one in library(self._layout, player) if one in found]

    def done(self, before: Moment, after: Moment, agent: str, subgoal: str) -> bool:
        """True if a cook has done a subgoal in one game step."""
        return completed(before.state, after.state, COOKS.index(agent), self.meant(subgoal))

    def waits(self, state: Moment, agent: str, subgoal: str) -> bool:
        """True if a cook is told to go to its own cell."""
        meant = self.meant(subgoal)
        return meant.verb == GO and self.kitchen(state).cook(COOKS.index(agent)).cell == meant.cell

    def effort(self, state: Moment, agent: str, subgoal: str) -> float:
        """Steps to the place of a subgoal, the other cook left out."""
        cook = self.kitchen(state).cook(COOKS.index(agent))
        return float(min(FAR, distances_of(self._layout).from_cook(cook, self.meant(subgoal).cell)))

    def judge_own_subgoals(self, done: Callable[[Moment, Moment, str, str], bool]) -> None:
        """Lets another test judge the subgoals that the kitchen gives itself."""
        game = self.env.unwrapped
        if not hasattr(game, "subgoal_test"):
            super().judge_own_subgoals(done)

        step: list[Any] = [None, None, None]  # the arrays before a step, and its two moments

        def test(before: np.ndarray, after: np.ndarray, player: int, subgoal: Subgoal) -> bool:
            if step[0] is not before:
                soups = game.soups
                step[:] = before, Moment(before, soups), Moment(after, soups)
            return done(step[1], step[2], COOKS[player], subgoal_text(self._layout, subgoal))

        game.subgoal_test = test

    def scripted(self, state: Moment) -> tuple[str, dict[str, str]]:
        """Tasks of the scripted planner, as subgoals."""
        tasks = plan(self.kitchen(state))
        subgoals = {
            name: subgoal_text(self._layout, task_subgoal(task)) for name, task in zip(COOKS, tasks, strict=True)
        }
        return _goal(tasks), subgoals

    def skills(self, state: Moment) -> SkillProblem:
        """Skill graph of the kitchen at a moment."""
        return kitchen_skills(self, self.kitchen(state), state)

    def player(self) -> FollowingCooks:
        """Cooks that follow their subgoals."""
        return FollowingCooks(self)

    def shared(self) -> Sequence[Any]:
        """Layout and routes."""
        kitchen = self.env.unwrapped.kitchen
        return [kitchen.layout, routes_of(kitchen.layout)]

    def meant(self, subgoal: str) -> Subgoal:
        """A subgoal of the library as the game knows it.

        Args:
            subgoal: In words.
        """
        return _by_text(self._layout)[subgoal]

    def _there(self, kitchen: Kitchen, subgoal: Subgoal) -> str:
        place = places_of(self._layout).phrases[subgoal.cell]
        item = kitchen.item(subgoal.cell)
        if item is None:
            return f"nothing is in {place}" if self._layout.kind(subgoal.cell) == POT else f"nothing lies on {place}"
        if self._layout.kind(subgoal.cell) == POT:
            state = "already has three onions" if item.tick >= 0 else "does not cook yet"
            return f"{place} {state}"
        return f"{place} has {'an' if item.kind == 'onion' else 'a'} {item.kind} on it"


@lru_cache(maxsize=32)
def _by_text(layout: Layout) -> dict[str, Subgoal]:
    return {subgoal_text(layout, subgoal): subgoal for subgoal in all_subgoals(layout)}


def _goal(tasks: Sequence[Task]) -> str:
    """Purpose of the scripted tasks, the most advanced first."""
    verbs = {(task.verb, task.kind) for task in tasks}
    if any(kind == "soup" for _, kind in verbs):
        return "deliver a soup"
    if any(kind == "dish" for _, kind in verbs):
        return "have a dish ready for the soup"
    return "fill a pot with onions" if any(kind == "onion" for _, kind in verbs) else "wait for the soup"
