"""SAMA's planner: it reads translated states, and proposes goals and subgoals freely, which the game then checks.

Differences from `ChatPlanner`, each with a switch: the moment stands in the words of a translator; goal and
decomposition are one question; no list of possible subgoals is shown; plans that failed earlier in the episode and
rounds of earlier games that went well can be told.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any, ClassVar

from pydantic import BaseModel, Field

from rllib_llm_comm.chat.answers import AnswerError, UnusableError, ask_for
from rllib_llm_comm.chat.chat_model import ChatModel
from rllib_llm_comm.core.errors import UserError, require_choice, require_whole
from rllib_llm_comm.language.prompt_files import fill
from rllib_llm_comm.sama.answer_authors import ERROR, NONE, Answerer, PhaseAnswers, answerers_of, gave_up, source_of
from rllib_llm_comm.sama.chat_planner import ChatPlanner, ChatPlanSettings
from rllib_llm_comm.sama.planner_forms import Assignment, ProposedSubgoal, assigned_way, same_words, with_entries
from rllib_llm_comm.sama.plans import (
    DONE,
    WAITED,
    AssignedSubgoal,
    Outcome,
    Phase,
    Plan,
    Planner,
    PlanRequest,
    Refusal,
    told_failures,
)
from rllib_llm_comm.sama.rewards.sandbox import RefusedCodeError
from rllib_llm_comm.sama.state_translator import read_translator

ROUND, EPISODE = "round", "episode"
NO_MENU = "none"
_NO_REASON = "the game does not take it"


class Proposal(BaseModel):
    """A goal and subgoals for all agents, after thinking."""

    thoughts: str = ""
    goal: str = Field(min_length=1, max_length=300)
    subgoals: list[ProposedSubgoal]


@dataclass(frozen=True)
class SamaPlanSettings(ChatPlanSettings):
    """Settings of SAMA's planner.

    Attributes:
        menu: Subgoals that are listed in the question: "none" (SAMA; proposals are free and checked by the game),
            "possible" or "library".
        fallback: "none" (default): no plan, or no reflection and the failed attempt stands. "error": the run ends.
            Nothing ever takes a model's place here.
        translation: Path of a translator, as a stage `run: translate` writes it (SAMA); empty: the game's own words.
        history: Whether outcomes of the rounds before are told (ours; the paper is silent).
        memory: Failed plans that are told: "round" (those from this very situation) or "episode" (SAMA: those of the
            whole game, too).
        experience: Worked examples from rounds of earlier games that went well, 0 or more (SAMA tells some; the number
            is ours).
        reasons: Whether the model is told why the game refuses a proposal when it is asked again (SAMA); else it is
            asked again without them. For experiments.
    """

    menu: str = NO_MENU
    fallback: str = NONE
    translation: str = ""
    history: bool = True
    memory: str = EPISODE
    experience: int = 0
    reasons: bool = True

    menus: ClassVar[tuple[str, ...]] = (NO_MENU, *ChatPlanSettings.menus)

    def __post_init__(self) -> None:
        """Refuses what is not allowed."""
        super().__post_init__()
        require_choice("fallback", self.fallback, (NONE, ERROR))
        require_choice("history", self.history, (False, True))
        require_choice("reasons", self.reasons, (False, True))
        require_choice("memory", self.memory, (ROUND, EPISODE))
        require_whole("experience", self.experience, 0)
        if not isinstance(self.translation, str):
            raise UserError(f"`translation` is {self.translation!r} but must be the path of a translator's file.")


@dataclass
class _Parts:
    """The parts of a plan while it is made."""

    goal: str
    reason: str
    subgoals: list[ProposedSubgoal]
    refused: list[Refusal] = field(default_factory=list)


class SamaPlanner(ChatPlanner):
    """Two questions per plan: for a goal with its subgoals, and for the assignment; each answer is checked by the game.

    What is unknown or impossible is refused with the reasons and asked once more. A second unusable answer makes no
    plan.

    Args:
        model: The chat model.
        settings: The settings.
    """

    name = "sama"

    def __init__(self, model: ChatModel, settings: SamaPlanSettings = SamaPlanSettings()) -> None:  # noqa: B008
        super().__init__(model, settings)
        self.sama = settings
        self.translator = read_translator(settings.translation) if settings.translation else None
        self.answerers = answerers_of(model)
        self._lived: deque[str] = deque(maxlen=max(1, settings.experience))  # of earlier games
        self._living: list[str] = []  # of this game

    def begin(self) -> None:
        """Begins an episode: what went well in the last one may be told from now on."""
        self._lived.extend(self._living)
        self._living = []

    def plan(self, request: PlanRequest) -> Plan:
        """Plan made by the chat model."""
        try:
            return self._made(request)
        except AnswerError as error:
            if self.how.fallback == ERROR:
                raise gave_up(error) from error
            raise

    def went_well(self, request: PlanRequest, plan: Plan) -> None:
        """Keeps a round all of whose subgoals were done, as a worked example for later games.

        Args:
            request: The moment at its start.
            plan: Its plan.
        """
        if self.sama.experience:
            told = "; ".join(f"{one.agent}: {one.words}" for one in plan.subgoals)
            situation = self.situation(request)
            self._living.append(f"In an earlier game. {situation}\nGoal: {plan.goal}\nSubgoals: {told}")

    # ---- the questions -----------------------------------------------------------------------------------

    def _made(self, request: PlanRequest) -> Plan:
        context, by = self.context(request), dict[Phase, Answerer]()
        kept = request.failed[-1].plan if request.redo != "goal" else None
        if kept is not None and request.redo == "assignment":
            said = [ProposedSubgoal(subgoal=one.words, reason=one.reason) for one in kept.subgoals]
            parts = _Parts(kept.goal, kept.reason, said)
            by["goal"] = by["decomposition"] = kept.answered_by.decomposition
        else:
            with self._asking("decomposition", by):
                parts = self._proposed(request, context, kept.goal if kept is not None else "")
            by["goal"] = by["decomposition"]
        with self._asking("assignment", by):
            way, reasons = self._given_out(request, context, parts)
        whys = {one.subgoal: one.reason for one in parts.subgoals}
        author = by["decomposition"]
        subgoals = [
            AssignedSubgoal(
                agent=agent,
                subgoal=self._resolved(request, agent, text),
                said=text,
                reason=reasons.get(agent) or whys[text],
                answered_by=author,
            )
            for agent, text in way.items()
        ]
        return Plan(
            goal=parts.goal,
            reason=parts.reason,
            subgoals=subgoals,
            refused=parts.refused,
            planner=self.name,
            answered_by=PhaseAnswers(**by),
            fallback=self.how.fallback,
            source=source_of(self.model),
        )

    def situation(self, request: PlanRequest) -> str:
        """The moment in words: the translator's, or the game's own.

        Args:
            request: The moment.
        """
        game, state = request.game, request.state
        if self.translator is None:
            agents = " ".join(game.situation_of(state, agent) for agent in game.agents)
            return f"{game.situation(state)} {agents}"
        try:
            return self.translator.words(game, state)
        except RefusedCodeError as error:
            raise UserError(
                f"The translator {self.sama.translation!r} does not work for a state ({error.reason}); have it written "
                "anew, or leave `translation` away."
            ) from error

    def context(self, request: PlanRequest) -> str:
        """The game, its objects and the moment in words, and what the settings add."""
        game = request.game
        manual = f"{self._manual}\n{game.scenario()}".strip() if self._manual else game.manual()
        lines = [outcome.sentence() for outcome in request.outcomes] if self.sama.history else []
        lines += [f"{agent} is still to {subgoal}." for agent, subgoal in request.current.items() if subgoal]
        objects = f"\nThings that matter: {', '.join(self.objects(manual))}.\n" if self.how.objects else ""
        return fill(
            __package__,
            "sama_context",
            count=len(game.agents),
            agents=", ".join(game.agents),
            manual=manual,
            objects=objects,
            situation=self.situation(request),
            history="\nWhat was done before:\n" + "\n".join(lines) + "\n" if lines else "",
        )

    def examples(self, request: PlanRequest, phase: Phase) -> str:
        """Worked examples of the game, and of earlier games."""
        lived = "".join(f"\nAn example.\n{example}\n" for example in self._lived) if self.sama.experience else ""
        return super().examples(request, phase) + lived

    def described(self, plan: Plan, outcomes: Sequence[Outcome]) -> str:
        """The ends of a plan's subgoals, in the planner's own words."""
        done = {outcome.agent for outcome in outcomes if outcome.how in (DONE, WAITED)}
        return "\n".join(
            f"{one.agent} was told to {one.words}: {'done' if one.agent in done else 'not done in time'}."
            for one in plan.subgoals
        )

    def _proposed(self, request: PlanRequest, context: str, goal: str) -> _Parts:
        """A goal and its subgoals; with a given goal that one."""
        count, refused = len(request.game.agents), list[Refusal]()
        failed = [same_words(one.plan.goal) for one in request.failed if one.guilty == "goal"]

        def check(answer: Proposal) -> None:
            if not goal and same_words(answer.goal) in failed:
                raise UnusableError(f"the goal {answer.goal!r} has failed from here already")
            problems = {one.subgoal: why for one in answer.subgoals if (why := self._refusal(request, one.subgoal))}
            for subgoal, reason in problems.items():
                refused.append(Refusal(phase="decomposition", subgoal=subgoal, reason=reason))
            if problems:
                raise UnusableError(*problems.values())
            if not self._ways(request, [one.subgoal for one in answer.subgoals]):
                raise UnusableError(
                    "there is no way to give each agent one of these that it can do now and that has not failed from "
                    "here already"
                )

        prompt = fill(
            __package__,
            "sama_plan",
            context=context,
            examples=self.examples(request, "goal"),
            failed=self._failures(request),
            kept=f"\nThe goal stays as it is: {goal}\n" if goal else "",
            count=count,
            with_objects=", made of the things that matter" if self.how.objects else "",
            forms=request.game.forms(),
            menu=f"\nTake subgoals from this list, word for word:\n{self._menu(request)}"
            if self.how.menu != NO_MENU
            else "",
        )
        form = with_entries(Proposal, "subgoals", count)
        answer = ask_for(self.model, prompt, form, check=self._refusing(check))
        return _Parts(goal or answer.goal, answer.thoughts, answer.subgoals, refused)

    def _given_out(self, request: PlanRequest, context: str, parts: _Parts) -> tuple[dict[str, str], dict[str, str]]:
        """The subgoal in the model's words, and a reason, per agent; equal subgoals need no question."""
        game, texts = request.game, [one.subgoal for one in parts.subgoals]
        if len({same_words(text) for text in texts}) == 1:
            return dict(zip(game.agents, texts, strict=True)), {}

        def check(answer: Assignment) -> None:
            way = assigned_way(answer, game.agents, parts.subgoals)
            problems = {text: why for agent, text in way.items() if (why := self._against(request, agent, text))}
            for subgoal, reason in problems.items():
                parts.refused.append(Refusal(phase="assignment", subgoal=subgoal, reason=reason))
            if problems:
                raise UnusableError(*problems.values())
            if list(way.values()) not in self._ways(request, texts):
                raise UnusableError("this assignment has failed from here already")

        prompt = self.assignment_prompt(request, context, parts.goal, texts, self._failures(request))
        form = with_entries(Assignment, "assignment", len(game.agents))
        answer = ask_for(self.model, prompt, form, check=self._refusing(check))
        return assigned_way(answer, game.agents, parts.subgoals), {one.agent: one.reason for one in answer.assignment}

    def _refusing(self, check: Callable[[Any], None]) -> Callable[[Any], None]:
        """A check of answers whose reasons the model is told, or not."""
        if self.sama.reasons:
            return check

        def silent(answer: Any) -> None:
            try:
                check(answer)
            except UnusableError:
                raise UnusableError(_NO_REASON) from None

        return silent

    def _failures(self, request: PlanRequest) -> str:
        earlier = request.earlier if self.sama.memory == EPISODE else ()
        return told_failures(request.failed) + told_failures(earlier, "earlier in this game")

    # ---- what the game says of free proposals ------------------------------------------------------------

    def _resolved(self, request: PlanRequest, agent: str, text: str) -> str:
        return request.game.resolve(request.state, agent, text) or ""

    def _against(self, request: PlanRequest, agent: str, text: str) -> str:
        """Reason why an agent cannot set about a proposal now; empty if it can."""
        known = self._resolved(request, agent, text)
        if not known:
            return f"{text!r} is none of the subgoals of this game, or more than one"
        return request.game.refusal(request.state, agent, known)

    def _refusal(self, request: PlanRequest, text: str) -> str:
        """Reasons why no agent can set about a proposal now; empty if one can."""
        reasons = list(dict.fromkeys(self._against(request, agent, text) for agent in request.game.agents))
        return "; ".join(reasons) if all(reasons) else ""

    def _ways(self, request: PlanRequest, texts: Sequence[str]) -> list[list[str]]:
        """The orders in which agents can get proposals that all are possible for them, failed ones left out."""
        agents, failed = request.game.agents, [attempt.plan.by_agent() for attempt in request.failed]
        found = []
        for order in permutations(texts):
            if any(self._against(request, agent, text) for agent, text in zip(agents, order, strict=True)):
                continue
            way = {a: self._resolved(request, a, text) for a, text in zip(agents, order, strict=True)}
            if way not in failed:
                found.append(list(order))
        return found


def remembers_games(planner: Planner) -> bool:
    """True if a planner tells of earlier games, so that these have to be played one after the other.

    Args:
        planner: The planner.
    """
    return isinstance(planner, SamaPlanner) and planner.sama.experience > 0
