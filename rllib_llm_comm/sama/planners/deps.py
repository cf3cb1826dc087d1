"""DEPS' planner (Wang et al. 2023, arXiv 2302.01560): the whole sequence of goals at once, and anew after a failure."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from rllib_llm_comm.chat.answers import ask_for
from rllib_llm_comm.chat.chat_model import PLAN, ChatModel, asking_for
from rllib_llm_comm.chat.thoughts import without_thoughts
from rllib_llm_comm.language.prompts import fill
from rllib_llm_comm.sama.planners.chat import ChatPlanner, ChatPlanSettings
from rllib_llm_comm.sama.plans import LOST, STUCK, PlanRequest

MOST_REPLANS = 12
_MOST_GOALS = 30
_MOST_TOLD = 3


class DepsPlanSettings(ChatPlanSettings):
    """Settings of DEPS' planner."""

    ahead: Literal[0] = 0  # type: ignore[assignment]
    """DEPS has its own sequence: of goals, each split and shared out when it is its turn."""


class Goals(BaseModel):
    """A whole sequence of goals, after thinking."""

    thoughts: str = ""
    goals: list[str] = Field(min_length=1, max_length=_MOST_GOALS)


class DepsPlanner(ChatPlanner):
    """Asks for the whole sequence of goals once, and goes on to the next when the subgoals of one are done.

    When a subgoal fails, it tells what happened (by the game's own words), lets the model explain it, and asks for the
    whole sequence anew, with the dialogue so far; at most `MOST_REPLANS` times per episode, and then it goes on with
    the goals that are left. A sequence that is used up is asked for anew, which is no failure. Goals are split and
    shared out as by `ChatPlanner`, as in SAMA's comparison.
    """

    name, settings_model = "deps", DepsPlanSettings

    def __init__(self, model: ChatModel, settings: ChatPlanSettings | None = None) -> None:
        super().__init__(model, settings)
        self.begin()

    def begin(self) -> None:
        """Forgets the sequence and the dialogue."""
        super().begin()
        self.goals: list[str] = []
        self.replans = 0
        self._thoughts = ""
        self._dialogue: list[str] = []

    def goal(self, request: PlanRequest, context: str) -> tuple[str, str]:
        """The next goal of the sequence; see `rllib_llm_comm.sama.planners.chat.ChatPlanner`."""
        if self._standing is not None and self.goals:
            description = self._failure(request)
            if description and self.replans < MOST_REPLANS:
                self._explain(context, description)
                self.replans += 1
                self.goals = []
            elif not any(request.current.values()) or description:
                self.goals.pop(0)
        if not self.goals:
            self._ask_for_goals(request, context)
        return self.goals[0], self._thoughts

    def _failure(self, request: PlanRequest) -> str:
        """Failure of the last plan, in words; empty if it did not fail."""
        if request.failed:
            attempt = request.failed[-1]
            return f"The goal was to {attempt.plan.goal}. It failed: {attempt.why}"
        told = self._standing.by_agent() if self._standing is not None else {}
        latest = {outcome.agent: outcome for outcome in request.outcomes}
        bad = [
            outcome.sentence()
            for agent, outcome in latest.items()
            if outcome.how in (STUCK, LOST) and told.get(agent) == outcome.subgoal and not request.current.get(agent)
        ]
        return f"The goal was to {self.goals[0]}. {' '.join(bad)}" if bad else ""

    def _explain(self, context: str, description: str) -> None:
        goals = "\n".join(f"{number}. {goal}" for number, goal in enumerate(self.goals, 1))
        prompt = fill(__package__, "plan_explain", context=context, goals=goals, description=description)
        with asking_for(PLAN):
            why = without_thoughts(self.model.complete(prompt))
        self._dialogue.append(f"\n{description}\nWhy it did not work out: {why}")
        del self._dialogue[:-_MOST_TOLD]

    def _ask_for_goals(self, request: PlanRequest, context: str) -> None:
        before = "\n\nWhat you planned before did not work out:" + "".join(self._dialogue) if self._dialogue else ""
        shown = self.examples(request, "goal")
        prompt = fill(__package__, "plan_goals", context=context, examples=shown, dialogue=before)
        answer = ask_for(self.model, prompt, Goals)
        self.goals, self._thoughts = list(answer.goals), answer.thoughts
