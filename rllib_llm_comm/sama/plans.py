"""Plans: a goal, a subgoal for each agent, and what planners are told when they make one."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, Field

from rllib_llm_comm.chat.client import ChatError
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.sama.answer_authors import ANSWERERS, OWN, Answerer, PhaseAnswers
from rllib_llm_comm.sama.planning_game import PlanningGame, State

DONE, WAITED, STUCK, LOST = "done", "waited", "stuck", "lost"
"""Ends of a subgoal: done; waited as told; not done for too long; or no longer possible."""
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
    """

    goal: str
    reason: str = ""
    subgoals: list[AssignedSubgoal]
    refused: list[Refusal] = []
    planner: str = ""
    answered_by: PhaseAnswers = PhaseAnswers()
    fallback: str = ""
    source: str = ""

    def of(self, agent: str) -> str:
        """An agent's subgoal.

        Args:
            agent: Its name.
        """
        return self.by_agent()[agent]

    def by_agent(self) -> dict[str, str]:
        """All subgoals by agent."""
        return {assigned.agent: assigned.subgoal for assigned in self.subgoals}


@dataclass(frozen=True)
class Outcome:
    """End of an agent's subgoal.

    Attributes:
        agent: Its name.
        subgoal: The subgoal.
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
        plan: The plan.
        guilty: The phase that was at fault, and is planned anew.
        why: Reason.
        undone: The agents that did not get their subgoals done.
    """

    plan: Plan
    guilty: Phase
    why: str
    undone: tuple[str, ...] = ()


def told_failures(failed: Sequence[FailedAttempt], when: str = "from here") -> str:
    """Attempts that failed, in words.

    Args:
        failed: The attempts.
        when: Time of the attempts, in words.
    """
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
        game: The game.
        state: The moment to plan for.
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
    """Error for an episode that cannot be played for want of a plan.

    Args:
        error: The last failure.
    """
    why = " ".join(str(error).split()).rstrip(".")
    return UserError(
        f"The planner made no plan, so that the episode does not count ({why}); see that the chat model's server "
        "runs and that `base_url` and `model` are right, or give another model or planner."
    )


class Planner(ABC):
    """Makes plans. One planner serves one environment.

    Attributes:
        name: Its name in settings.
        slow: Whether it may wait for a server; the environments of a runner do not wait for such a planner.
        answerers: All whom its plans may name in `answered_by`; decides the names of the metrics.
        stands_in: What it is, if it stands in for a language model; empty for a language model, and for baselines.
    """

    name: str = ""
    stands_in: ClassVar[str] = ""
    slow: bool = False
    answerers: tuple[Answerer, ...] = ANSWERERS

    def begin(self) -> None:
        """Begins an episode."""
        return

    def reseed(self, seed: int) -> None:
        """Fixes what is random in this planner from here on.

        Args:
            seed: Any number from 0 up.
        """
        return

    def beside(self) -> Planner:
        """A planner like this one, which can be asked while this one waits for an answer; what is known is shared."""
        return copy.copy(self)

    @abstractmethod
    def plan(self, request: PlanRequest) -> Plan:
        """Makes a plan whose subgoals all are possible at the moment of the request.

        Args:
            request: The moment.

        Raises:
            ChatError: If a language model gave no usable answer; the agents then keep their subgoals.
            UserError: If the user has to do something first.
        """

    def went_well(self, request: PlanRequest, plan: Plan) -> None:
        """Told of each round that stands and whose subgoals all were done.

        Args:
            request: The moment at its start.
            plan: Its plan.
        """
        return

    def settings(self) -> dict[str, Any]:
        """Properties that identify this planner, JSON-able."""
        return {"name": self.name}
