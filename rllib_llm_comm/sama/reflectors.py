"""Reflectors: the phase of planning that is to blame for a failed round, found by rules or by a chat model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from rllib_llm_comm.chat.answers import AnswerError, ask_for
from rllib_llm_comm.chat.purposes import REFLECTION
from rllib_llm_comm.chat.usage import count_scope
from rllib_llm_comm.language.prompt_files import fill
from rllib_llm_comm.sama.answer_authors import (
    BY_RULES,
    ERROR,
    NONE,
    RULES,
    Answerer,
    answerer_of,
    answerers_of,
    gave_up,
)
from rllib_llm_comm.sama.attempts import Reflection
from rllib_llm_comm.sama.chat_planner import ChatPlanner
from rllib_llm_comm.sama.planner_forms import Blame
from rllib_llm_comm.sama.plans import LOST, STUCK, Outcome, Plan, PlanRequest


class Reflector(Protocol):
    """Finds the phase of planning that is to blame for a failure."""

    def __call__(self, request: PlanRequest, plan: Plan, outcomes: list[Outcome]) -> Reflection:
        """The phase, and why.

        Args:
            request: The planner's request.
            plan: Its plan.
            outcomes: Ends of the subgoals.
        """


def reflect_by_rules(request: PlanRequest, plan: Plan, outcomes: list[Outcome]) -> Reflection:
    """Blames the assignment if another agent could have done it with less effort, else the decomposition.

    Args:
        request: See `rllib_llm_comm.sama.reflectors.Reflector`.
        plan: See `rllib_llm_comm.sama.reflectors.Reflector`.
        outcomes: See `rllib_llm_comm.sama.reflectors.Reflector`.
    """
    game, state = request.game, request.state
    why = " ".join(outcome.sentence() for outcome in outcomes if outcome.how in (STUCK, LOST))
    for outcome in outcomes:
        if outcome.how not in (STUCK, LOST):
            continue
        effort = game.effort(state, outcome.agent, outcome.subgoal)
        others = [agent for agent in game.agents if agent != outcome.agent]
        able = [agent for agent in others if not game.refusal(state, agent, outcome.subgoal)]
        if any(game.effort(state, agent, outcome.subgoal) < effort for agent in able):
            return Reflection(phase="assignment", why=why, answered_by=RULES)
    return Reflection(phase="decomposition", why=why, answered_by=RULES)


@dataclass(frozen=True)
class ChatReflector:
    """Asks the planner's chat model; what happens without a usable answer is told by the planner's `fallback`.

    Attributes:
        planner: The planner of the plans.
    """

    planner: ChatPlanner

    def __call__(self, request: PlanRequest, plan: Plan, outcomes: list[Outcome]) -> Reflection:
        """Reflection of the chat model on an attempt.

        Raises:
            AnswerError: If there is no usable answer and `fallback` is "none".
            ChatError: If a request failed for good.
            UserError: If the budget is spent, the key is missing, or there is no usable answer and `fallback` is
                "error".
        """
        earlier = [f"- the {attempt.guilty} was blamed: {attempt.why}" for attempt in request.failed]
        prompt = fill(
            __package__,
            "reflect",
            context=self.planner.context(request),
            goal=plan.goal,
            subgoals="; ".join(one.words for one in plan.subgoals),
            assignment="; ".join(f"{one.agent}: {one.words}" for one in plan.subgoals),
            description=self.planner.described(plan, outcomes),
            earlier="Plans from here that failed before:\n" + "\n".join(earlier) + "\n\n" if earlier else "",
        )
        try:
            with count_scope() as asked:
                blame = ask_for(self.planner.model, prompt, Blame, purpose=REFLECTION)
        except AnswerError as error:
            if self.planner.how.fallback == ERROR:
                raise gave_up(error) from error
            if self.planner.how.fallback == NONE:
                raise
            return reflect_by_rules(request, plan, outcomes)
        return Reflection(**blame.model_dump(), answered_by=answerer_of(self.planner.model, asked))

    @property
    def answerers(self) -> tuple[Answerer, ...]:
        """All whom its reflections may name in `answered_by`."""
        substitute = (RULES,) if self.planner.how.fallback == BY_RULES else ()
        return tuple(dict.fromkeys((*answerers_of(self.planner.model), *substitute)))
