"""Plans: what planners are told, what they answer, by whom, and what came of it.

A language model's answer that cannot be used twice has to be replaced or given up. Neither happens silently: `fallback`
chooses, `answered_by` names whoever answered in the end, and `AnswerCounts` counts them.
"""

from __future__ import annotations

import copy
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal

from pydantic import BaseModel, Field

from rllib_llm_comm.chat.answers import AnswerError
from rllib_llm_comm.chat.cassettes import Cassette
from rllib_llm_comm.chat.chat_model import ChatCounters, ChatError, ChatModel
from rllib_llm_comm.core.errors import UserError, did_you_mean
from rllib_llm_comm.envs.interface import MAX_SUBGOAL
from rllib_llm_comm.sama.planning_game import PlanningGame, State

Answerer = Literal["model", "cassette", "rules", "menu", "random", "own"]
MODEL: Final = "model"
CASSETTE: Final = "cassette"
RULES: Final = "rules"
MENU: Final = "menu"
RANDOM: Final = "random"
OWN: Final = "own"
ANSWERERS: tuple[Answerer, ...] = (MODEL, CASSETTE, RULES, MENU, RANDOM, OWN)
"""A language model; a recording of one; rules; the nearest entry on the list of possible subgoals; a random draw; a
planner or reflector of the user's own that names nobody."""
RULES_MODEL: Final = "rules (no language model)"
"""The name of chat models that answer by rules, also in their recordings."""
NOBODY = "nobody"
"""Judged a step in place of a judge that gave no answer: the subgoal counts as not done."""

BY_RULES, NONE, ERROR = RULES, "none", "error"
"""The meaning of `fallback` where a language model's answer cannot be used twice: rules take over; nothing does, and
there is no such plan or reflection; or the run ends."""


class PhaseAnswers(BaseModel):
    """The author of each phase of a plan."""

    goal: Answerer = OWN
    decomposition: Answerer = OWN
    assignment: Answerer = OWN

    @classmethod
    def all_by(cls, who: Answerer) -> PhaseAnswers:
        """One author of all phases."""
        return cls(goal=who, decomposition=who, assignment=who)


def answerer_of(model: ChatModel, asked: ChatCounters) -> Answerer:
    """The author of an answer that a chat model has just given.

    Args:
        asked: Counts while it answered; they tell whether a recording that is still growing knew the answer.
    """
    if not isinstance(model, Cassette):
        return _by(model.model, MODEL)
    if model.client is not None and (asked.requests or not asked.cached):
        return answerer_of(model.client, asked)
    return _by(model.header.get("model"), CASSETTE)


def answerers_of(model: ChatModel) -> tuple[Answerer, ...]:
    """All whom `answerer_of` may name."""
    if not isinstance(model, Cassette):
        return (_by(model.model, MODEL),)
    played = (_by(model.header.get("model"), CASSETTE),)
    return played if model.client is None else tuple(dict.fromkeys((*played, *answerers_of(model.client))))


def _by(model: object, author: Answerer) -> Answerer:
    return RULES if model == RULES_MODEL else author


def source_of(model: ChatModel) -> str:
    """Name of whoever gave the last answer, for pages and records: a model, or a recording with its author and day."""
    if not isinstance(model, Cassette) or model.client is not None:
        return model.model
    author = model.last or model.header.get("model", "")
    return f"recording {model.path.name} ({author}, {model.header.get('made', '')})"


def gave_up(error: AnswerError) -> UserError:
    """The end of a run whose `fallback` is "error"."""
    return UserError(
        f"{str(error).rstrip('.')}, and `fallback` is {ERROR!r}; set `fallback` to {BY_RULES!r} or {NONE!r}, or give "
        "another model."
    )


DONE, WAITED, STUCK, LOST = "done", "waited", "stuck", "lost"
"""Ends of a subgoal: done; waited as told; not done for too long; or no longer possible."""


def subgoal_figures(given: int, ends: Counter[str]) -> dict[str, float]:
    """Counts of an episode's subgoals, by their names in `episode_metrics`.

    Args:
        given: Number of subgoals that were given out.
        ends: Number of those with each end. Both `STUCK` and `LOST` count as stuck.
    """
    return {
        "subgoals_given": float(given),
        "subgoals_completed": float(ends[DONE]),
        "subgoals_waited": float(ends[WAITED]),
        "subgoals_stuck": float(ends[STUCK] + ends[LOST]),
        "subgoals_lost": float(ends[LOST]),
        "subgoals_share": ends[DONE] / max(1, given),
    }


REMEMBERED = 8
"""Number of the last outcomes that planners are told."""

Phase = Literal["goal", "decomposition", "assignment"]


class Refusal(BaseModel):
    """A subgoal that a planner proposed and that was not taken."""

    phase: Phase
    subgoal: str
    reason: str
    instead: str = Field(
        default="", description="what was taken in its place in the end; empty if the planner chose anew"
    )
    chosen_by: str = Field(default="", description="who chose that: the text encoder (embedding) or the model")


class AssignedSubgoal(BaseModel):
    """The subgoal of one agent, with its reason and its author.

    Attributes:
        agent: Its name.
        subgoal: In the game's words.
        reason: Reason.
        answered_by: Author.
        said: In the planner's own words, if it proposes freely; empty: as `subgoal`.
    """

    agent: str
    subgoal: str
    reason: str = ""
    answered_by: Answerer = OWN
    said: str = ""

    @property
    def words(self) -> str:
        """The subgoal in the planner's own words."""
        return self.said or self.subgoal


class Plan(BaseModel):
    """A goal of the team and a subgoal for each agent.

    Attributes:
        goal: Goal of the team.
        reason: Reason.
        subgoals: One per agent, in the game's words.
        refused: Refused proposals.
        planner: Name of the planner that made it.
        answered_by: The author of each phase: a planner may have asked a model and taken rules in the end.
        fallback: Substitute for a language model's unusable answer; empty for planners that ask none.
        source: Name of the model or the recording, of planners that ask one.
        kept: True if it goes on with the plan before, so that nobody was asked.
        alone: True if the agents are left to themselves from here on: their subgoals are empty.
    """

    goal: str
    reason: str = ""
    subgoals: list[AssignedSubgoal]
    refused: list[Refusal] = []
    planner: str = ""
    answered_by: PhaseAnswers = PhaseAnswers()
    fallback: str = ""
    source: str = ""
    kept: bool = False
    alone: bool = False

    def of(self, agent: str) -> str:
        """An agent's subgoal."""
        return self.by_agent()[agent]

    def by_agent(self) -> dict[str, str]:
        """All subgoals by agent."""
        return {assigned.agent: assigned.subgoal for assigned in self.subgoals}


@dataclass(frozen=True)
class Outcome:
    """End of an agent's subgoal.

    Attributes:
        how: `DONE`, `WAITED`, `STUCK` or `LOST`.
        game_step: In which game step of the last `step`, counted from 0.
    """

    agent: str
    subgoal: str
    how: str
    game_step: int = 0

    def sentence(self) -> str:
        """The outcome in words."""
        ends = {
            DONE: "has done this",
            WAITED: "has waited there",
            STUCK: "could not get this done in the time given",
            LOST: "could not do this any more",
        }
        return f"{self.agent} was told to {self.subgoal} and {ends[self.how]}."


@dataclass(frozen=True)
class FailedAttempt:
    """A plan that did not work out, from the same situation, and what was thought of it.

    Attributes:
        guilty: The phase that was at fault, and is planned anew.
        undone: The agents that did not get their subgoals done.
    """

    plan: Plan
    guilty: Phase
    why: str
    undone: tuple[str, ...] = ()


def told_failures(failed: Sequence[FailedAttempt], when: str = "from here") -> str:
    """Attempts that failed, in words."""
    lines = []
    for attempt in failed:
        subgoals = "; ".join(f"{one.agent}: {one.words}" for one in attempt.plan.subgoals)
        lines.append(f"- goal: {attempt.plan.goal}; {subgoals}. The mistake was in the {attempt.guilty}: {attempt.why}")
    told = f"\nThis was tried {when} and failed; do not answer the same again:\n" + "\n".join(lines) + "\n"
    return told if lines else ""


@dataclass(frozen=True)
class PlanRequest:
    """Request to a planner.

    Attributes:
        current: Each agent's subgoal until now that is not ended; empty for the others.
        outcomes: Ends of subgoals in this episode, the latest last; at most `REMEMBERED`.
        failed: Attempts from this very situation, the latest last. If there are any, the phase that the latest one
            names is planned anew, and those after it; what failed is not to be proposed again.
        earlier: Attempts that failed earlier in this episode, from other situations, the latest last.
    """

    game: PlanningGame
    state: State
    current: dict[str, str] = field(default_factory=dict)
    outcomes: tuple[Outcome, ...] = ()
    failed: tuple[FailedAttempt, ...] = ()
    earlier: tuple[FailedAttempt, ...] = ()

    @property
    def redo(self) -> Phase:
        """The first phase that has to be planned."""
        return self.failed[-1].guilty if self.failed else "goal"


def no_plan(error: ChatError) -> UserError:
    """Error for an episode that cannot be played for want of a plan."""
    why = " ".join(str(error).split()).rstrip(".")
    return UserError(
        f"The planner made no plan, so that the episode does not count ({why}); see that the chat model's server "
        "runs and that `base_url` and `model` are right, or give another model or planner."
    )


class Planner(ABC):
    """Makes plans. One planner serves one environment.

    Attributes:
        slow: Whether it may wait for a server; the environments of a runner do not wait for such a planner.
        answerers: All whom its plans may name in `answered_by`; decides the names of the metrics.
        remembers_games: Whether it tells of earlier games, so that these have to be played one after the other.
        stands_in: What it is, if it stands in for a language model; empty for a language model, and for baselines.
    """

    name: str = ""
    stands_in: ClassVar[str] = ""
    slow: bool = False
    remembers_games: bool = False
    answerers: tuple[Answerer, ...] = ANSWERERS

    def begin(self) -> None:
        """Begins an episode."""
        return

    def reseed(self, seed: int) -> None:
        """Fixes what is random in this planner from here on."""
        return

    def beside(self) -> Planner:
        """A planner like this one, which can be asked while this one waits for an answer; what is known is shared."""
        return copy.copy(self)

    @abstractmethod
    def plan(self, request: PlanRequest) -> Plan:
        """Makes a plan whose subgoals all are possible at the moment of the request.

        Raises:
            ChatError: If a language model gave no usable answer; the agents then keep their subgoals.
            UserError: If the user has to do something first.
        """

    def check_game(self, game: PlanningGame) -> None:
        """Refuses a game in which this planner cannot plan, before anything is played.

        Raises:
            UserError: If it is such; planners know all games by default.
        """
        return

    def went_well(self, request: PlanRequest, plan: Plan) -> None:
        """Told of each round that stands and whose subgoals all were done."""
        return


_SHOWN = 8


def made_plan(planner: Planner, request: PlanRequest) -> Plan:
    """A planner's plan, all of whose agents and subgoals the game knows.

    Raises:
        ChatError: As of `Planner.plan`.
        UserError: As of `Planner.plan`; or if an agent can set about nothing, so that nobody is asked; or if the answer
            is no plan, or names an agent or a subgoal that the game does not have.
    """
    for agent in request.game.agents:
        if not request.game.possible(request.state, agent):
            raise UserError(
                f"{agent} can set about none of the {len(request.game.library(agent))} subgoals of "
                f"{type(request.game).__name__} now, so that nobody can plan; let its `library` hold one that is "
                "always possible, such as to wait."
            )
    plan = planner.plan(request)
    who = f"Planner {(planner.name or type(planner).__name__)!r}"
    if not isinstance(plan, Plan):
        raise UserError(
            f"{who} returned a {type(plan).__name__} but must return a `Plan` (`rllib_llm_comm.sama.plans`); "
            "correct its `plan`."
        )
    game = request.game
    if plan.alone and not any(plan.by_agent().values()):
        return plan
    for agent, subgoal in plan.by_agent().items():
        if agent not in game.agents:
            raise UserError(
                f"{who} gave a subgoal to {agent!r} but the agents of this game are {', '.join(game.agents)}; correct "
                f"its `plan`.{did_you_mean(agent, game.agents)}"
            )
        if len(subgoal) > MAX_SUBGOAL:
            raise UserError(
                f"{who} gave {agent} a subgoal of {len(subgoal)} characters but an observation holds {MAX_SUBGOAL} "
                "and subgoals are not cut; name it in fewer words."
            )
        if not (game.parse(subgoal) == subgoal or any(subgoal in game.library(one) for one in game.agents)):
            raise UserError(
                f"{who} gave {agent} the subgoal {subgoal!r} but must give one of this game's, in its words: "
                f"{_listed(request, agent)}; choose among `request.game.possible(request.state, agent)` in its "
                f"`plan`.{did_you_mean(subgoal, game.library(agent))}"
            )
    return plan


def _listed(request: PlanRequest, agent: str) -> str:
    """The subgoals that an agent can set about, the first few of many."""
    options = request.game.possible(request.state, agent) or request.game.library(agent)
    more = f", ... ({len(options)} are possible now)" if len(options) > _SHOWN else ""
    return ", ".join(map(repr, options[:_SHOWN])) + more


class Reflection(BaseModel):
    """The phase that is to blame for a failure, with the thoughts behind it and their author."""

    thoughts: str = ""
    phase: Phase
    why: str
    answered_by: Answerer = OWN


@dataclass
class Attempt:
    """One plan that was followed, and how it went.

    Attributes:
        start: Steps of the environment before it.
        end: The same after it.
        outcomes: Ends of its subgoals; those that had not ended when the time was over are not in it.
        failed: Whether a subgoal was not done.
        kept: Whether the game went on from it; else it was put back.
        reflection: Reflection on the failure, if there was one.
        unplanned: Reason for which there was no other plan after the failure, so that this attempt stands; else empty.
    """

    plan: Plan
    start: int
    end: int = 0
    outcomes: list[Outcome] = field(default_factory=list)
    returns: dict[str, float] = field(default_factory=dict)
    failed: bool = False
    kept: bool = True
    reflection: Reflection | None = None
    unplanned: str = ""

    def to_json(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {
            **vars(self),
            "plan": self.plan.model_dump(),
            "outcomes": [vars(outcome) for outcome in self.outcomes],
            "reflection": None if self.reflection is None else self.reflection.model_dump(),
        }


_COUNT = re.compile(r"^(plans|assignments|subgoals|reflections|judgements|messages)_by_(\w+)$")


class AnswerCounts:
    """Plans, assignments, subgoals and reflections of an episode by their authors.

    All episodes of a planner have the same names of counts, so that means over episodes are those of all of them.

    Args:
        reflectors: All who may reflect; empty without reflection.
    """

    def __init__(self, planners: Iterable[Answerer], reflectors: Iterable[Answerer] = ()) -> None:
        planners = list(planners)
        whole = [who for who in planners if who != MENU]  # only single subgoals are taken from the menu
        by: dict[str, Sequence[str]] = {
            "plans": whole,
            "assignments": whole,
            "subgoals": planners,
            "reflections": list(reflectors),
        }
        self._counts = {f"{what}_by_{who}": 0 for what, authors in by.items() for who in authors}

    def add_plan(self, plan: Plan) -> None:
        """Counts a plan by the author of its decomposition, its assignment, and each of its subgoals."""
        self._add("plans", plan.answered_by.decomposition)
        self._add("assignments", plan.answered_by.assignment)
        for one in plan.subgoals:
            if one.subgoal:  # those left to themselves are given none
                self._add("subgoals", one.answered_by)

    def add_reflection(self, reflection: Reflection) -> None:
        """Counts a reflection."""
        self._add("reflections", reflection.answered_by)

    def figures(self) -> dict[str, float]:
        """The counts, such as `plans_by_model`, as metrics of an episode."""
        return {name: float(count) for name, count in self._counts.items()}

    def _add(self, what: str, who: str) -> None:
        name = f"{what}_by_{who}"
        self._counts[name] = self._counts.get(name, 0) + 1


def authors_in(metrics: Mapping[str, Any], what: str) -> dict[str, float]:
    """The authors of one kind of answer among metrics, with their counts; those with none are left out.

    Args:
        metrics: Of an episode, or means.
        what: "plans", "assignments", "subgoals", "reflections" or "judgements".
    """
    matches = ((_COUNT.match(name), value) for name, value in metrics.items())
    return {match[2]: float(value) for match, value in matches if match and match[1] == what and value}


def without_empty_counts(names: Iterable[str], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names of metrics without the authors who answered nothing in any row."""
    return [name for name in names if not _COUNT.match(name) or any(row.get(name) for row in rows)]
