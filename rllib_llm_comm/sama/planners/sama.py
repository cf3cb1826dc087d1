"""SAMA's planner (Section 3.2): translated states, and goal and subgoals in one free answer, which the game checks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any, Literal

from pydantic import Field

from rllib_llm_comm.chat.answers import UnusableError, ask_for
from rllib_llm_comm.chat.chat_model import ChatModel
from rllib_llm_comm.core.errors import LARGEST, UserError
from rllib_llm_comm.language.prompts import fill
from rllib_llm_comm.sama.planners.chat import (
    ChatPlanner,
    ChatPlanSettings,
    Goal,
    ProposedSubgoal,
    require_new_goal,
    with_entries,
)
from rllib_llm_comm.sama.planners.matching import failed_assignments
from rllib_llm_comm.sama.planning_game import OURS, PromptsOf, worded
from rllib_llm_comm.sama.plans import (
    DONE,
    WAITED,
    Answerer,
    Outcome,
    Phase,
    Plan,
    Planner,
    PlanRequest,
    Refusal,
    told_failures,
)
from rllib_llm_comm.sama.rewards.sandbox import RefusedCodeError
from rllib_llm_comm.sama.translation import read_translator

_NO_REASON = "the game does not take it"


class Proposal(Goal):
    """A goal and subgoals for all agents, after thinking."""

    subgoals: list[ProposedSubgoal]


class SamaPlanSettings(ChatPlanSettings):
    """Settings of SAMA's planner."""

    menu: Literal["none", "possible", "library"] = "none"  # type: ignore[assignment]
    """Subgoals that are listed in the question; "none" (SAMA): proposals are free and checked by the game."""
    fallback: Literal["none", "error"] = "none"  # type: ignore[assignment]
    """"none" (default): no plan, or no reflection and the failed attempt stands. "error": the run ends. Nothing ever
    takes a model's place here."""
    translation: str = ""
    """Path of a translator, as a stage `run: translate` writes it (SAMA); empty: the game's own words."""
    prompts: PromptsOf = OURS
    """"paper": the questions of SAMA's listings in place of ours, in our own words: the same roles, slots, order and
    worked examples (goal with subgoals, assignment, reflection). Answers keep our forms."""
    history: bool = True
    """Whether outcomes of the rounds before are told (ours; the paper is silent)."""
    memory: Literal["round", "episode"] = "episode"
    """Failed plans that are told: those from this very situation, or those of the whole game, too (SAMA)."""
    experience: int = Field(default=0, ge=0, le=LARGEST)
    """Worked examples from rounds of earlier games that went well (SAMA tells some; the number is ours)."""
    reasons: bool = True
    """Whether the model is told why the game refuses a proposal when it is asked again (SAMA); else it is asked again
    without them. For experiments."""


class SamaPlanner(ChatPlanner):
    """Asks for a goal with its subgoals, and for the assignment.

    The moment stands in the words of a translator; no list of possible subgoals is shown; plans that failed earlier in
    the episode and rounds of earlier games that went well can be told. A second unusable answer makes no plan.
    """

    name, settings_model = "sama", SamaPlanSettings
    free = True
    context_prompt = "sama_context"
    how: SamaPlanSettings

    def __init__(self, model: ChatModel, settings: SamaPlanSettings | None = None) -> None:
        super().__init__(model, settings)
        self.worded = self.how.prompts
        self.translator = read_translator(self.how.translation) if self.how.translation else None
        self._past_examples: deque[str] = deque(maxlen=max(1, self.how.experience))  # of earlier games
        self._new_examples: list[str] = []  # of this game

    def begin(self) -> None:
        """Begins an episode: what went well in the last one may be told from now on."""
        super().begin()
        self._past_examples.extend(self._new_examples)
        self._new_examples = []

    def went_well(self, request: PlanRequest, plan: Plan) -> None:
        """Keeps a round all of whose subgoals were done, as a worked example for later games."""
        if self.how.experience and not plan.alone:
            told = "; ".join(f"{one.agent}: {one.words}" for one in plan.subgoals)
            situation = self.situation(request)
            self._new_examples.append(f"In an earlier game. {situation}\nGoal: {plan.goal}\nSubgoals: {told}")

    def context(self, request: PlanRequest) -> str:
        """The game, its objects and the moment in words, and what the settings add."""
        return super().context(request if self.how.history else replace(request, outcomes=()))

    def situation(self, request: PlanRequest) -> str:
        """The moment in words: the translator's, or the game's own."""
        game, state = request.game, request.state
        if self.translator is None:
            agents = " ".join(game.situation_of(state, agent) for agent in game.agents)
            return f"{game.situation(state)} {agents}"
        try:
            return self.translator.words(game, state)
        except RefusedCodeError as error:
            raise UserError(
                f"The translator {self.how.translation!r} does not work for a state ({error.reason}); have it written "
                "anew, or omit `translation`."
            ) from error

    def examples(self, request: PlanRequest, phase: Phase) -> str:
        """Worked examples of the game, and of earlier games."""
        past = self._past_examples if self.how.experience else ()
        return super().examples(request, phase) + "".join(f"\nAn example.\n{example}\n" for example in past)

    def failures(self, request: PlanRequest) -> str:
        """The plans that failed from here and, with `memory: episode`, earlier in this game."""
        earlier = request.earlier if self.how.memory == "episode" else ()
        return super().failures(request) + told_failures(earlier, "earlier in this game")

    def described(self, plan: Plan, outcomes: Sequence[Outcome]) -> str:
        """The ends of a plan's subgoals, in the planner's own words."""
        done = {outcome.agent for outcome in outcomes if outcome.how in (DONE, WAITED)}
        return "\n".join(
            f"{one.agent} was told to {one.words}: {'done' if one.agent in done else 'not done in time'}."
            for one in plan.subgoals
        )

    def propose(
        self,
        request: PlanRequest,
        context: str,
        kept: Plan | None,
        by: dict[Phase, Answerer],
        refused: list[Refusal],
    ) -> tuple[str, str, list[ProposedSubgoal]]:
        """The goal, the thoughts and the subgoals of one question."""
        game, goal = request.game, kept.goal if kept is not None else ""
        failed = failed_assignments(request)

        def check(answer: Proposal) -> None:
            if not goal:
                require_new_goal(request, answer.goal)
            self._require_possible(request, answer.subgoals, refused)
            for order in permutations([one.subgoal for one in answer.subgoals]):
                way = dict(zip(game.agents, order, strict=True))
                if any(self._refusal(request, agent, text) for agent, text in way.items()):
                    continue
                if {agent: self._meant(request, agent, text) for agent, text in way.items()} not in failed:
                    return
            raise UnusableError(
                "there is no way to give each agent one of these that it can do now and that has not failed from here "
                "already"
            )

        listed = f"\nTake subgoals from this list, word for word:\n{self._menu(request)}"
        prompt = fill(
            __package__,
            worded(self.worded, "sama_plan"),
            context=context,
            agents=", ".join(game.agents),
            examples=self.examples(request, "goal"),
            failed=self.failures(request),
            kept=f"\nThe goal stays as it is: {goal}\n" if goal else "",
            count=len(game.agents),
            with_objects=", made of the things that matter" if self.how.objects else "",
            forms=game.forms(),
            menu=listed if self.how.menu != "none" else "",
        )
        form = with_entries(Proposal, "subgoals", len(game.agents))
        with self._asking("decomposition", by):
            answer = ask_for(self.model, prompt, form, check=self.answer_check(check))
        by["goal"] = by["decomposition"]
        return goal or answer.goal, answer.thoughts, answer.subgoals

    def answer_check(self, check: Callable[[Any], None]) -> Callable[[Any], None]:
        """The check of an answer, whose reasons the model is told, or not."""
        if self.how.reasons:
            return check

        def silent(answer: Any) -> None:
            try:
                check(answer)
            except UnusableError:
                raise UnusableError(_NO_REASON) from None

        return silent


def remembers_games(planner: Planner) -> bool:
    """True if a planner tells of earlier games, so that these have to be played one after the other."""
    return isinstance(planner, SamaPlanner) and planner.how.experience > 0
