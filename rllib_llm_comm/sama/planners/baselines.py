"""Planners that ask no language model: rules, random draws, and what disturbs or blinds another planner."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.files import read_foreign_json
from rllib_llm_comm.core.places import local_path
from rllib_llm_comm.core.settings import Settings
from rllib_llm_comm.sama.planners.matching import NearestByEmbedding, assigned, failed_assignments, made_possible
from rllib_llm_comm.sama.planning_game import PlanningGame, State
from rllib_llm_comm.sama.plans import (
    MENU,
    RANDOM,
    RULES,
    AssignedSubgoal,
    PhaseAnswers,
    Plan,
    Planner,
    PlanRequest,
    Refusal,
    made_plan,
)
from rllib_llm_comm.sama.skill_graph import share_out

_MOST_BYTES = 64 * 2**20
MADE_BY = "make one with a stage `run: collect_subgoals`"


def read_record(path: str | os.PathLike[str]) -> tuple[dict[str, Any], list[str]]:
    """A data set of subgoals.

    Args:
        path: A file that `SubgoalDataset.to_json` has written.

    Returns:
        Its record, and its subgoals in words, at least one.

    Raises:
        UserError: If there is no such file, or it is none.
    """
    named = f"`subgoals` is {str(path)!r}"
    file = local_path(path, "subgoals")
    try:
        record = read_foreign_json(file, _MOST_BYTES)
        texts = [str(entry["subgoal"]) for entry in record["subgoals"]]
    except OSError as error:
        raise UserError(f"{named}, which cannot be read ({error.strerror}); {MADE_BY}.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{named}, which is no data set of subgoals ({type(error).__name__}); {MADE_BY}.") from error
    if not texts:
        raise UserError(f"{named}, which has no subgoals; {MADE_BY}.")
    return record, texts


class _RulePlanner(Planner):
    """Base class of planners by rules: after failures the subgoals that were not done are replaced."""

    answerers = (RULES, MENU)
    stands_in = "rules, no language model"

    def __init__(self) -> None:
        self._nearest = NearestByEmbedding()

    def _made(self, request: PlanRequest, goal: str, way: dict[str, str], reasons: dict[str, str]) -> Plan:
        refused: list[Refusal] = []
        possible = made_possible(request, way, self._nearest, refused)
        return Plan(
            goal=goal,
            subgoals=assigned(possible, reasons, dict.fromkeys(possible.values(), RULES), refused),
            refused=refused,
            planner=self.name,
            answered_by=PhaseAnswers.all_by(RULES),
        )


class ScriptedPlanner(_RulePlanner):
    """The game's own rules: no network, no model, the same plan for the same moment."""

    name = "scripted"

    def plan(self, request: PlanRequest) -> Plan:
        """Plan by the game's own rules.

        Raises:
            UserError: If the game has no rules to plan by.
        """
        goal, way = request.game.scripted(request.state)
        return self._made(request, goal, way, {})


class Plan4MCPlanner(_RulePlanner):
    """Searches backwards on the game's skill graph, from what is wanted to what can be done now."""

    name = "plan4mc"

    def plan(self, request: PlanRequest) -> Plan:
        """Plan by a backward search on the skill graph.

        Raises:
            UserError: If the game has no skill graph.
        """
        goal, way, reasons = share_out(request.game.skills(request.state), request.game.agents)
        in_order = {agent: way[agent] for agent in request.game.agents}
        return self._made(request, goal, in_order, reasons)


DRAWN = "drawn at random"
"""The reason of a subgoal that nobody has thought of."""


class DrawSettings(Settings):
    """Settings of planners that draw."""

    seed: int = Field(default=0, ge=0)
    """Of the draws, until the games' seeds fix them."""


class RandomSettings(DrawSettings):
    """Settings of the planner `random`."""

    subgoals: str | SkipJsonSchema[Path] = ""
    """Path of a data set of subgoals: only these are drawn, as far as an agent can set about one of them (SAMA trains
    on a data set); empty: all."""


class RandomPlanner(Planner):
    """Gives each agent any subgoal that it can set about now, each as likely; who is not done yet goes on.

    Args:
        **settings: Those of `RandomSettings`.

    Raises:
        UserError: If a setting is not allowed.
    """

    name, settings_model = "random", RandomSettings
    answerers = (RANDOM,)

    def __init__(self, **settings: Any) -> None:
        chosen = self.settings_model(**settings)
        self._rng = np.random.default_rng(chosen.seed)
        self.subgoals = str(chosen.subgoals)
        self._among = frozenset(read_record(self.subgoals)[1] if self.subgoals else ())

    def reseed(self, seed: int) -> None:
        """Begins a new series of draws."""
        self._rng = np.random.default_rng(seed)

    def draw_also(self, texts: Iterable[str]) -> None:
        """Draws other subgoals, too; who draws all that there are leaves it."""
        if self.subgoals:
            self._among |= frozenset(texts)

    def plan(self, request: PlanRequest) -> Plan:
        """Plan of random subgoals that the agents can set about now."""
        given: dict[str, str] = {}
        for agent in request.game.agents:
            where = self._rng.random()
            given[agent] = _going_on(request, agent) or _draw(request, agent, given, where, self._among)
        subgoals = [_random(agent, given[agent]) for agent in given]
        by = PhaseAnswers.all_by(RANDOM)
        return Plan(goal="do anything", subgoals=subgoals, planner=self.name, answered_by=by)


class AroundSettings(DrawSettings):
    """Settings of a planner around another one."""

    planner: str | Mapping[str, Any] | SkipJsonSchema[Planner] = "scripted"
    """The other planner: its name, or a mapping with `name` and its settings."""


class DisturbedSettings(AroundSettings):
    """Settings of the planner `disturbed`."""

    share: float = Field(default=0.5, ge=0, le=1)
    """Probability with which a new subgoal is replaced."""


class AroundPlanner(Planner):
    """Another planner, whose plans or moments are changed by draws.

    Args:
        planner: The other planner.
        **settings: The other fields of `settings_model`.

    Raises:
        UserError: If a setting is not allowed.
    """

    settings_model: ClassVar[type[AroundSettings]] = AroundSettings

    def __init__(self, planner: Planner, **settings: Any) -> None:
        self.chosen: Any = self.settings_model(planner=planner, **settings)
        self.planner, self.slow, self.answerers = planner, planner.slow, planner.answerers
        self._rng = np.random.default_rng(self.chosen.seed)

    def reseed(self, seed: int) -> None:
        """Begins a new series of draws, here and in the other planner."""
        self.planner.reseed(seed)
        self._rng = np.random.default_rng(seed)

    def beside(self) -> Planner:
        """A planner like this one, around one like the one below."""
        other = copy.copy(self)
        other.planner = self.planner.beside()
        return other

    def check_game(self, game: PlanningGame) -> None:
        """As of the other planner."""
        self.planner.check_game(game)


class DisturbedPlanner(AroundPlanner):
    """Another planner, some of whose subgoals are replaced by random ones (SAMA's test of whether agents do as told).

    Each new subgoal is replaced with a given probability by one that the agent can set about now, each as likely. A
    subgoal that was replaced stays so until it has ended. With the same seed a larger probability replaces all that a
    smaller one replaces, as long as the game goes the same way.

    Args:
        planner: The other planner.
        **settings: The other fields of `DisturbedSettings`.

    Attributes:
        share: The probability.
        replaced: Subgoals that were replaced since `begin`.
    """

    name, settings_model = "disturbed", DisturbedSettings

    def __init__(self, planner: Planner, **settings: Any) -> None:
        super().__init__(planner, **settings)
        self.share: float = self.chosen.share
        self.answerers = tuple(dict.fromkeys((*planner.answerers, RANDOM)))
        self.begin()

    def begin(self) -> None:
        """Forgets the last episode, here and in the other planner."""
        self.planner.begin()
        self.replaced = 0
        self._drawn: dict[str, str] = {}

    def plan(self, request: PlanRequest) -> Plan:
        """Plan of the other planner with some random subgoals in place of its own."""
        made = made_plan(self.planner, request)
        if made.alone:  # nobody is told anything, so nothing can be replaced
            return made
        given: dict[str, str] = {}
        subgoals = []
        for one in made.subgoals:
            chance, where = self._rng.random(2)
            kept = _going_on(request, one.agent)
            if kept and self._drawn.get(one.agent) == kept:
                one = _random(one.agent, kept)
            elif kept != one.subgoal:
                self._drawn.pop(one.agent, None)
                if chance < self.share:
                    drawn = self._drawn[one.agent] = _draw(request, one.agent, given, where)
                    self.replaced += 1
                    one = _random(one.agent, drawn)
            given[one.agent] = one.subgoal
            subgoals.append(one)
        return made.model_copy(update={"subgoals": subgoals})


class GuessingPlanner(AroundPlanner):
    """Another planner that is not shown what the game hides from agents, but guesses it: the control of what it knows.

    The guess is drawn for each episode among all that may be, each as likely, and independent of the truth; subgoals
    are as sensible as those of the other planner otherwise.
    """

    name = "guessing"
    _guess = 0.0

    def begin(self) -> None:
        """Begins an episode, with a new guess."""
        self.planner.begin()
        self._guess = float(self._rng.random())

    def plan(self, request: PlanRequest) -> Plan:
        """Plan of the other planner for the moment with the guess in place of the truth.

        Raises:
            UserError: If the game hides nothing from its agents.
        """
        moments = hidden_moments(request.game, request.state)
        made = made_plan(self.planner, replace(request, state=moments[int(self._guess * len(moments))]))
        return made.model_copy(update={"planner": self.name})


def hidden_moments(game: PlanningGame, state: State) -> Sequence[State]:
    """The moments that one may be for who knows nothing of what agents are not told, two or more.

    Raises:
        UserError: If the game hides nothing from its agents.
    """
    moments = game.supposed(state)
    if len(moments) < 2:
        raise UserError(
            f"`planner` is {GuessingPlanner.name!r} but the game hides nothing from its agents that could be guessed; "
            "let it, such as by `told_to: planner` in the textual kitchen, or use another planner."
        )
    return moments


def thinker(planner: Planner) -> Planner:
    """The planner that makes the plans, below those that disturb it or guess."""
    return thinker(planner.planner) if isinstance(planner, AroundPlanner) else planner


def _random(agent: str, subgoal: str) -> AssignedSubgoal:
    return AssignedSubgoal(agent=agent, subgoal=subgoal, reason=DRAWN, answered_by=RANDOM)


def _going_on(request: PlanRequest, agent: str) -> str:
    """Running subgoal of an agent if it is still possible; else empty."""
    current = request.current.get(agent, "")
    return "" if current and request.game.refusal(request.state, agent, current) else current


def _draw(request: PlanRequest, agent: str, given: dict[str, str], where: float, among: Set[str] = frozenset()) -> str:
    """Any subgoal that an agent can set about now; one with which all has failed from here only if there is no other.

    Args:
        given: Subgoals of the agents before it.
        where: From 0 to 1: which of those that there are.
        among: Only these are drawn, if the agent can set about one of them; none: all.
    """
    options = request.game.possible(request.state, agent)
    options = [option for option in options if option in among] or options
    fresh = [option for option in options if {**given, agent: option} not in failed_assignments(request)]
    return (fresh or options)[int(where * len(fresh or options))]
