"""DEPS' goals (Wang et al. 2023, arXiv 2302.01560): the whole sequence at once, and anew after a failure."""

from __future__ import annotations

from pydantic import BaseModel, Field

from rllib_llm_comm.chat.answers import ask_for
from rllib_llm_comm.chat.chat_model import PLAN, ChatModel, asking_for
from rllib_llm_comm.chat.thoughts import without_thoughts
from rllib_llm_comm.language.prompts import fill
from rllib_llm_comm.sama.plans import LOST, STUCK, Plan, PlanRequest

MOST_REPLANS = 12
_MOST_GOALS = 30
_MOST_TOLD = 3


class Goals(BaseModel):
    """A whole sequence of goals, after thinking."""

    thoughts: str = ""
    goals: list[str] = Field(min_length=1, max_length=_MOST_GOALS)


class GoalSequence:
    """The goals of one game: asked for once; the next one's turn comes when the subgoals of one are done.

    When a subgoal fails, it tells what happened (by the game's own words), lets the model explain it, and asks for the
    whole sequence anew, with the dialogue so far; at most `MOST_REPLANS` times per game, and then it goes on with the
    goals that are left. A sequence that is used up is asked for anew, which is no failure. `ChatPlanner` splits goals
    and shares them out, as in SAMA's comparison.

    Attributes:
        replans: Sequences that were asked for after a failure.
    """

    def __init__(self) -> None:
        self.replans = 0
        self._goals: list[str] = []
        self._thoughts = ""
        self._dialogue: list[str] = []

    def next(
        self, model: ChatModel, request: PlanRequest, standing: Plan | None, context: str, examples: str
    ) -> tuple[str, str]:
        """The next goal, with the thoughts behind the sequence.

        Args:
            standing: The latest plan.
            context: What each question begins with.
            examples: Worked examples of goals.
        """
        if standing is not None and self._goals:
            description = self._failure(request, standing)
            if description and self.replans < MOST_REPLANS:
                self._explain(model, context, description)
                self.replans += 1
                self._goals = []
            elif not any(request.current.values()) or description:
                self._goals.pop(0)
        if not self._goals:
            told = "".join(self._dialogue)
            before = f"\n\nWhat you planned before did not work out:{told}" if told else ""
            prompt = fill(__package__, "plan_goals", context=context, examples=examples, dialogue=before)
            answer = ask_for(model, prompt, Goals)
            self._goals, self._thoughts = list(answer.goals), answer.thoughts
        return self._goals[0], self._thoughts

    def _failure(self, request: PlanRequest, standing: Plan) -> str:
        """Failure of the last plan, in words; empty if it did not fail."""
        if request.failed:
            attempt = request.failed[-1]
            return f"The goal was to {attempt.plan.goal}. It failed: {attempt.why}"
        told, latest = standing.by_agent(), {outcome.agent: outcome for outcome in request.outcomes}
        bad = [
            outcome.sentence()
            for agent, outcome in latest.items()
            if outcome.how in (STUCK, LOST) and told.get(agent) == outcome.subgoal and not request.current.get(agent)
        ]
        return f"The goal was to {self._goals[0]}. {' '.join(bad)}" if bad else ""

    def _explain(self, model: ChatModel, context: str, description: str) -> None:
        goals = "\n".join(f"{number}. {goal}" for number, goal in enumerate(self._goals, 1))
        prompt = fill(__package__, "plan_explain", context=context, goals=goals, description=description)
        with asking_for(PLAN):
            why = without_thoughts(model.complete(prompt))
        self._dialogue.append(f"\n{description}\nWhy it did not work out: {why}")
        del self._dialogue[:-_MOST_TOLD]
