"""The planner that asks a chat model, in three variants (SAMA Section 3.2).

`chat` asks for a goal, then for subgoals, then for who gets which, from the list of those that are possible. `deps`
(arXiv 2302.01560) asks for the whole sequence of goals at once, and anew after a failure. `sama` reads translated
states and proposes goal and subgoals in one free answer, which the game then checks.

Names, fields and descriptions of the forms are part of the prompts: they stand in the JSON schemas. A docstring is the
description unless `json_schema_extra` has one.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from itertools import permutations
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, Field, create_model, field_validator

from rllib_llm_comm.chat.answers import AnswerError, UnusableError, ask_for, read_answer
from rllib_llm_comm.chat.chat_model import PLAN, ChatModel, asking_for, count_scope
from rllib_llm_comm.chat.thoughts import without_thoughts
from rllib_llm_comm.chat.turns import QuestionLocks, others_go_on
from rllib_llm_comm.core.errors import UserError, require_choice, require_whole
from rllib_llm_comm.language.prompt_files import fill, template
from rllib_llm_comm.sama.manuals.manual import read_manual
from rllib_llm_comm.sama.planners.matching import (
    Nearest,
    NearestByEmbedding,
    NearestByModel,
    assigned,
    assignments,
    can_be_shared_out,
    failed_assignments,
    made_possible,
    refusal_for_all,
)
from rllib_llm_comm.sama.planning_game import BETWEEN_EXAMPLES
from rllib_llm_comm.sama.plans import (
    BY_RULES,
    DONE,
    ERROR,
    FALLBACKS,
    LOST,
    MENU,
    NONE,
    RULES,
    STUCK,
    WAITED,
    Answerer,
    AssignedSubgoal,
    Outcome,
    Phase,
    PhaseAnswers,
    Plan,
    Planner,
    PlanRequest,
    Refusal,
    answerer_of,
    answerers_of,
    gave_up,
    source_of,
    told_failures,
)
from rllib_llm_comm.sama.rewards.sandbox import RefusedCodeError
from rllib_llm_comm.sama.translation import read_translator

Answer = TypeVar("Answer", bound=BaseModel)
_NAMES = re.compile(r"\s*\(\w+(?: or \w+)*\)$")


class Objects(BaseModel):
    """The things of a game that matter."""

    objects: list[str] = Field(min_length=1, max_length=40)


class Goal(BaseModel):
    """A goal, after thinking."""

    thoughts: str = ""
    goal: str = Field(min_length=1, max_length=300)


class ProposedSubgoal(BaseModel):
    """A subgoal with its reason."""

    subgoal: str = Field(min_length=1, max_length=300)
    reason: str = ""

    @field_validator("subgoal")
    @classmethod
    def _without_names(cls, subgoal: str) -> str:
        """Line of the menu without names behind it, which a model may have copied too: "... (alice or bob)"."""
        return _NAMES.sub("", subgoal)


class Decomposition(BaseModel):
    """Subgoals for all agents, after thinking."""

    thoughts: str = ""
    subgoals: list[ProposedSubgoal]


class AgentsNumber(BaseModel):
    """Number of the subgoal that an agent gets."""

    model_config = ConfigDict(json_schema_extra={"description": "Which subgoal an agent gets."})

    agent: str
    number: int = Field(description="number of the subgoal")
    reason: str = ""


class Assignment(BaseModel):
    """Assignment of subgoals to agents, after thinking."""

    model_config = ConfigDict(json_schema_extra={"description": "Who gets which subgoal, after thinking."})

    thoughts: str = ""
    assignment: list[AgentsNumber]


class Blame(BaseModel):
    """Cause of a failure, after thinking."""

    model_config = ConfigDict(title="Reflection", json_schema_extra={"description": "What went wrong, after thinking."})

    thoughts: str = ""
    phase: Phase
    why: str


def ask_leniently(
    model: ChatModel,
    prompt: str,
    form: type[Answer],
    check: Callable[[Answer], None],
    least: Callable[[Answer], object],
) -> tuple[Answer, AnswerError | None]:
    """The first of two answers that fits, or else the second one with its error, if it has at least the right form.

    Args:
        model: The chat model.
        prompt: The question.
        form: Of the answer.
        check: See `rllib_llm_comm.chat.answers.ask_for`.
        least: The check of an answer that has at least the right form.

    Raises:
        AnswerError: If the second one has not.
        ChatError: If a request failed for good.
        UserError: If the budget is spent or the key is missing.
    """
    try:
        return ask_for(model, prompt, form, check=check), None
    except AnswerError as error:
        try:
            return read_answer(error.answer, form, least), error
        except UnusableError:
            raise error from None


@lru_cache(maxsize=64)
def with_entries(form: type[Answer], name: str, count: int) -> type[Answer]:
    """A form whose list must have so many entries, so that the model reads the number in the schema.

    Args:
        form: `Decomposition` or `Assignment`.
        name: Of the list.
        count: Number.
    """
    entries: Any = (form.model_fields[name].annotation, Field(min_length=count, max_length=count))
    made: type[Answer] = create_model(form.__name__, __base__=form, **{name: entries})
    made.__doc__ = form.__doc__  # it stands in the schema
    return made


def check_count(answer: Decomposition, count: int) -> None:
    """Refuses a decomposition that is not one different subgoal per agent.

    Args:
        answer: The decomposition.
        count: Number of agents.

    Raises:
        UnusableError: If it is not.
    """
    if len(answer.subgoals) != count or len({same_words(one.subgoal) for one in answer.subgoals}) != count:
        raise UnusableError(f"there must be {count} different subgoals, one for each agent")


def assigned_way(answer: Assignment, agents: Sequence[str], subgoals: Sequence[ProposedSubgoal]) -> dict[str, str]:
    """A subgoal per agent, in the agents' order.

    Args:
        answer: The numbers of the agents' subgoals.
        agents: All agents.
        subgoals: In the order of their numbers.

    Raises:
        UnusableError: If not each agent gets one, and each subgoal is given.
    """
    numbers = {one.agent.strip().lower(): one.number for one in answer.assignment}
    if len(answer.assignment) != len(agents) or set(numbers) != {agent.lower() for agent in agents}:
        raise UnusableError(f"each of {', '.join(agents)} must be named once")
    if sorted(numbers.values()) != list(range(1, len(subgoals) + 1)):
        raise UnusableError(f"each of the numbers 1 to {len(subgoals)} must be given to one agent")
    return {agent: subgoals[numbers[agent.lower()] - 1].subgoal for agent in agents}


def same_words(text: str) -> str:
    """A text without what does not change its meaning: case, spaces, the last full stop.

    Args:
        text: Any words.
    """
    return " ".join(text.lower().split()).rstrip(".")


@dataclass(frozen=True)
class ChatPlanSettings:
    """Settings of a chat model's planning.

    Attributes:
        examples: Worked examples of the game in each question: 0, 1 or 3.
        irrelevant_examples: Worked examples of something else that has nothing to do with the game (a library, a
            harbour, a theatre), after those of the game: 0, 1 or 3. For experiments.
        objects: Whether the things that matter are taken from the manual first, and goals are made of them.
        menu: Subgoals on the list: "possible" (those that somebody can do now) or "library" (all there are).
        nearest: Finder of the nearest subgoal to one that is refused twice: "embedding" or "model".
        text_encoder: For "embedding": see `rllib_llm_comm.language.text_encoder.load_text_encoder`.
        manual: Path of a manual, such as `rllib manual` makes, in place of the game's own; what holds for the scenario
            only (`PlanningGame.scenario`) is added. Empty: the game's own.
        fallback: Reaction to a second unusable answer (ours; the paper is silent). "rules": an impossible
            subgoal becomes the nearest possible one, subgoals are given out with the least effort, and reflection
            blames by rules; all of it is counted under their names. "none": there is no such plan, or no reflection and
            the failed attempt stands. "error": the run ends. A goal has no substitute: with "rules", too, there is no
            plan without one.
    """

    examples: int = 1
    irrelevant_examples: int = 0
    objects: bool = True
    menu: str = "possible"
    nearest: str = "embedding"
    text_encoder: str = "embedded"
    manual: str = ""
    fallback: str = BY_RULES

    menus: ClassVar[tuple[str, ...]] = ("possible", "library")

    def __post_init__(self) -> None:
        """Refuses what is not allowed."""
        if not isinstance(self.manual, str):
            raise UserError(f"`manual` is {self.manual!r} but must be the path of a text file.")
        require_choice("examples", self.examples, (0, 1, 3))
        require_choice("irrelevant_examples", self.irrelevant_examples, (0, 1, 3))
        require_choice("objects", self.objects, (False, True))
        require_choice("menu", self.menu, self.menus)
        require_choice("nearest", self.nearest, ("embedding", "model"))
        require_choice("fallback", self.fallback, FALLBACKS)
        if not isinstance(self.text_encoder, str):
            raise UserError(f"`text_encoder` is {self.text_encoder!r} but must be the name of an encoder or a folder.")


class ChatPlanner(Planner):
    """Asks three questions per plan; each answer is checked against the game.

    What is unknown or impossible is refused with the reasons and asked once more. What happens to what is still so then
    is told by `ChatPlanSettings.fallback`, and who answered in the end by the plan's `answered_by`.

    Args:
        model: The chat model.
        settings: The settings.
    """

    name = "chat"
    slow = True

    def __init__(self, model: ChatModel, settings: ChatPlanSettings = ChatPlanSettings()) -> None:  # noqa: B008
        self.model, self.how = model, settings
        by_embedding = NearestByEmbedding(settings.text_encoder)
        self.nearest: Nearest = NearestByModel(model, by_embedding) if settings.nearest == "model" else by_embedding
        self._objects: dict[str, list[str]] = {}
        self._manuals = QuestionLocks()
        self._manual = read_manual(settings.manual) if settings.manual else ""
        self._by: dict[Phase, Answerer] = {}  # who answered last in each phase
        substitutes: tuple[Answerer, ...] = (RULES, MENU) if settings.fallback == BY_RULES else ()
        self.answerers = tuple(dict.fromkeys((*answerers_of(model), *substitutes)))

    def settings(self) -> dict[str, Any]:
        """Model and settings that identify this planner, JSON-able."""
        return {"name": self.name, **asdict(self.how)}

    def plan(self, request: PlanRequest) -> Plan:
        """Plan made by the chat model."""
        try:
            return self._planned(request)
        except AnswerError as error:
            if self.how.fallback == ERROR:
                raise gave_up(error) from error
            raise

    def _planned(self, request: PlanRequest) -> Plan:
        refused: list[Refusal] = []
        context = self.context(request)
        kept = request.failed[-1].plan if request.redo != "goal" else None
        by: dict[Phase, Answerer] = {}
        if kept is not None:
            goal, reason, by["goal"] = kept.goal, kept.reason, kept.answered_by.goal
        else:
            with self._asking("goal", by):
                goal, reason = self.goal(request, context)
        if request.redo == "assignment" and kept is not None:
            subgoals = [ProposedSubgoal(subgoal=one.subgoal, reason=one.reason) for one in kept.subgoals]
            by["decomposition"] = kept.answered_by.decomposition
            authors = {one.subgoal: one.answered_by for one in kept.subgoals}
        else:
            with self._asking("decomposition", by):
                subgoals = self._decompose(request, context, goal, refused)
            authors = {one.subgoal: by["decomposition"] for one in subgoals}
        with self._asking("assignment", by):
            way, reasons = self._assign(request, context, goal, subgoals, refused)
        if way is None:
            # Subgoals that the model gives out wrongly in two tries are given out as well as possible.
            by["assignment"] = RULES
            way = assignments(request, [one.subgoal for one in subgoals])[0]
        whys = {one.subgoal: one.reason for one in subgoals}
        reasons = {agent: reasons.get(agent) or whys.get(way[agent], "") for agent in way}
        made = made_possible(request, way, self.nearest, refused)
        return Plan(
            goal=goal,
            reason=reason,
            subgoals=assigned(made, reasons, authors, refused),
            refused=refused,
            planner=self.name,
            answered_by=PhaseAnswers(**by),
            fallback=self.how.fallback,
            source=source_of(self.model),
        )

    @contextmanager
    def _asking(self, phase: Phase, by: dict[Phase, Answerer]) -> Iterator[None]:
        """Notes who answers the question of a phase; if nothing is asked, it is who was asked last."""
        with count_scope() as asked:
            yield
        if phase not in self._by or asked.requests or asked.cached:
            self._by = {**self._by, phase: answerer_of(self.model, asked)}  # planners beside this one have their own
        by[phase] = self._by[phase]

    # ---- what all questions begin with -------------------------------------------------------------------

    def context(self, request: PlanRequest) -> str:
        """The game, its objects, the moment and what went before, in words.

        Args:
            request: The moment.
        """
        game, state = request.game, request.state
        manual = f"{self._manual}\n{game.scenario()}".strip() if self._manual else game.manual()
        lines = [outcome.sentence() for outcome in request.outcomes]
        lines += [f"{agent} is still to {subgoal}." for agent, subgoal in request.current.items() if subgoal]
        objects = f"\nThings that matter: {', '.join(self.objects(manual))}.\n" if self.how.objects else ""
        return fill(
            __package__,
            "plan_context",
            count=len(game.agents),
            agents=", ".join(game.agents),
            manual=manual,
            objects=objects,
            situation=game.situation(state),
            status=" ".join(game.situation_of(state, agent) for agent in game.agents),
            history="\nWhat was done before:\n" + "\n".join(lines) + "\n" if lines else "",
        )

    def objects(self, manual: str) -> list[str]:
        """The things of a game that matter; asked once per manual.

        Args:
            manual: The game in words.
        """
        if manual not in self._objects:
            with others_go_on(), self._manuals.hold(manual):  # planners beside this one wait for the answer
                if manual not in self._objects:
                    found = ask_for(self.model, fill(__package__, "plan_objects", manual=manual), Objects)
                    self._objects[manual] = list(dict.fromkeys(found.objects))
        return self._objects[manual]

    def examples(self, request: PlanRequest, phase: Phase) -> str:
        """Examples of plans, as many as wanted.

        Args:
            request: For its game.
            phase: Of planning.
        """
        shown = list(request.game.examples(phase))[: self.how.examples]
        others = template(__package__, f"example_irrelevant_{phase}").split(BETWEEN_EXAMPLES)
        shown += [example.strip() for example in others[: self.how.irrelevant_examples]]
        return "".join(f"\nAn example.\n{example}\n" for example in shown)

    def described(self, plan: Plan, outcomes: Sequence[Outcome]) -> str:
        """The ends of a plan's subgoals, as reflection is told of them.

        Args:
            plan: The plan.
            outcomes: The ends.
        """
        return "\n".join(outcome.sentence() for outcome in outcomes)

    # ---- the three questions -----------------------------------------------------------------------------

    def goal(self, request: PlanRequest, context: str) -> tuple[str, str]:
        """The next goal, with the thoughts behind it.

        Args:
            request: The moment.
            context: Result of `context`.
        """
        failed = [attempt.plan.goal for attempt in request.failed if attempt.guilty == "goal"]

        def check(answer: Goal) -> None:
            if same_words(answer.goal) in map(same_words, failed):
                raise UnusableError(f"the goal {answer.goal!r} has failed from here already")

        prompt = fill(
            __package__,
            "plan_goal",
            context=context,
            examples=self.examples(request, "goal"),
            failed=told_failures(request.failed),
            with_objects=", made of the things that matter" if self.how.objects else "",
        )
        answer = ask_for(self.model, prompt, Goal, check=check)
        return answer.goal, answer.thoughts

    def _decompose(
        self, request: PlanRequest, context: str, goal: str, refused: list[Refusal]
    ) -> list[ProposedSubgoal]:
        game = request.game
        failed = [sorted(way.values()) for way in failed_assignments(request)] if request.redo != "assignment" else []

        def check(answer: Decomposition) -> None:
            problems = {one.subgoal: why for one in answer.subgoals if (why := refusal_for_all(request, one.subgoal))}
            _note(refused, "decomposition", problems)
            if problems:
                raise UnusableError(*problems.values())
            check_count(answer, len(game.agents))
            known = [str(game.parse(one.subgoal)) for one in answer.subgoals]
            if sorted(known) in failed:
                raise UnusableError("these subgoals have failed from here already")
            if not can_be_shared_out(request, known):
                raise UnusableError("there is no way to give each agent one of these that it can do now")

        prompt = fill(
            __package__,
            "plan_decomposition",
            context=context,
            examples=self.examples(request, "decomposition"),
            failed=told_failures(request.failed),
            goal=goal,
            count=len(game.agents),
            menu=self._menu(request),
        )
        form = with_entries(Decomposition, "subgoals", len(game.agents))
        found, wrong = ask_leniently(self.model, prompt, form, check, lambda answer: None)
        if wrong is not None and self.how.fallback != BY_RULES:
            raise wrong
        known: list[ProposedSubgoal] = []
        for one in found.subgoals:
            known.append(self._known(request, one, found, refused, [other.subgoal for other in known]))
        return known

    def _known(
        self,
        request: PlanRequest,
        one: ProposedSubgoal,
        found: Decomposition,
        refused: list[Refusal],
        before: Sequence[str],
    ) -> ProposedSubgoal:
        """A subgoal in the game's words; one that nobody can do, or that was said before, becomes the nearest other."""
        known = str(request.game.parse(one.subgoal))
        why = refusal_for_all(request, one.subgoal) or ("it is there twice" if known in before else "")
        if not why:
            return ProposedSubgoal(subgoal=known, reason=one.reason)
        taken = {*before, *(request.game.parse(other.subgoal) for other in found.subgoals)}
        options = [option for option in _possible(request) if option not in taken]
        nearest = self.nearest(one.subgoal, options or _possible(request))
        by = self.nearest.by
        refused.append(Refusal(phase="decomposition", subgoal=one.subgoal, reason=why, instead=nearest, chosen_by=by))
        return ProposedSubgoal(subgoal=nearest, reason=one.reason)

    def assignment_prompt(
        self, request: PlanRequest, context: str, goal: str, subgoals: Sequence[str], failed: str
    ) -> str:
        """The question of who gets which of a goal's subgoals, behind the plans that have failed."""
        return fill(
            __package__,
            "plan_assignment",
            context=context,
            examples=self.examples(request, "assignment"),
            failed=failed,
            goal=goal,
            subgoals="\n".join(f"{number}. {text}" for number, text in enumerate(subgoals, 1)),
        )

    def _assign(
        self,
        request: PlanRequest,
        context: str,
        goal: str,
        subgoals: Sequence[ProposedSubgoal],
        refused: list[Refusal],
    ) -> tuple[dict[str, str] | None, dict[str, str]]:
        """A subgoal and a reason per agent; without a usable answer nothing, if rules may take over."""
        game = request.game

        def check(answer: Assignment) -> None:
            way = assigned_way(answer, game.agents, subgoals)
            problems = {way[agent]: why for agent in way if (why := game.refusal(request.state, agent, way[agent]))}
            _note(refused, "assignment", problems)
            if problems:
                raise UnusableError(*problems.values())
            if way in failed_assignments(request):
                raise UnusableError("this assignment has failed from here already")

        texts = [one.subgoal for one in subgoals]
        prompt = self.assignment_prompt(request, context, goal, texts, told_failures(request.failed))
        form = with_entries(Assignment, "assignment", len(game.agents))
        try:
            answer, wrong = ask_leniently(
                self.model, prompt, form, check, lambda answer: assigned_way(answer, game.agents, subgoals)
            )
            if wrong is not None:
                raise wrong
        except AnswerError:
            if self.how.fallback != BY_RULES:
                raise
            return None, {}
        return assigned_way(answer, game.agents, subgoals), {one.agent: one.reason for one in answer.assignment}

    def _menu(self, request: PlanRequest) -> str:
        game = request.game
        lists = {
            agent: game.possible(request.state, agent) if self.how.menu == "possible" else game.library(agent)
            for agent in game.agents
        }
        who: dict[str, list[str]] = {}
        for agent, subgoals in lists.items():
            for subgoal in subgoals:
                who.setdefault(subgoal, []).append(agent)
        return "\n".join(f"- {subgoal} ({' or '.join(agents)})" for subgoal, agents in who.items())


def _possible(request: PlanRequest) -> list[str]:
    """Subgoals that any agent can set about now."""
    found = (request.game.possible(request.state, agent) for agent in request.game.agents)
    return list(dict.fromkeys(subgoal for subgoals in found for subgoal in subgoals))


def _note(refused: list[Refusal], phase: Phase, problems: dict[str, str]) -> None:
    for subgoal, reason in problems.items():
        noted = Refusal(phase=phase, subgoal=subgoal, reason=reason, instead="")
        if noted not in refused:
            refused.append(noted)


MOST_REPLANS = 12
_MOST_GOALS = 30
_MOST_TOLD = 3


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

    Args:
        model: The chat model.
        settings: The settings.
    """

    name = "deps"

    def __init__(self, model: ChatModel, settings: ChatPlanSettings = ChatPlanSettings()) -> None:  # noqa: B008
        super().__init__(model, settings)
        self.begin()

    def begin(self) -> None:
        """Forgets the sequence and the dialogue."""
        self.goals: list[str] = []
        self.replans = 0
        self._thoughts = ""
        self._dialogue: list[str] = []
        self._last: Plan | None = None

    def plan(self, request: PlanRequest) -> Plan:
        """Plan made from a description, an explanation of the last failure and a new proposal."""
        made = super().plan(request)
        self._last = made
        return made

    def goal(self, request: PlanRequest, context: str) -> tuple[str, str]:
        """The next goal of the sequence; see `rllib_llm_comm.sama.planners.chat.ChatPlanner`."""
        if self._last is not None and self.goals:
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
        told = self._last.by_agent() if self._last is not None else {}
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
