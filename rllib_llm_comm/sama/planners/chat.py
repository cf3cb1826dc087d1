"""The planner that asks a chat model for a goal, for its subgoals, and for who gets which (SAMA Section 3.2).

Its variants are named by their settings: `chat` asks for each in turn and lists what is possible; `sama` asks for goal
and subgoals at once, in the model's own words; `deps` asks for the whole sequence of goals first. With `ahead` one
question asks for everything, and the model is asked again only when a plan no longer holds.

Names, fields and descriptions of the forms are part of the prompts: they stand in the JSON schemas. A docstring is the
description unless `json_schema_extra` has one.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import permutations
from typing import Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, create_model, field_validator

from rllib_llm_comm.chat.answers import AnswerError, UnusableError, ask_for, read_answer
from rllib_llm_comm.chat.chat_model import ChatModel, QuestionLocks, count_scope, others_go_on
from rllib_llm_comm.core.errors import LARGEST, UserError
from rllib_llm_comm.envs.interface import MAX_SUBGOAL
from rllib_llm_comm.language.prompts import fill
from rllib_llm_comm.sama.manuals.manual import ManualShown, read_manual
from rllib_llm_comm.sama.planners.deps import GoalSequence
from rllib_llm_comm.sama.planners.matching import (
    Nearest,
    NearestByEmbedding,
    NearestByModel,
    assigned,
    assignments,
    can_be_shared_out,
    failed_assignments,
    made_possible,
)
from rllib_llm_comm.sama.planning_game import OURS, PAPER, PlanningGame, PromptsOf, examples_in, worded
from rllib_llm_comm.sama.plans import (
    BY_RULES,
    DONE,
    ERROR,
    MENU,
    RULES,
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
_NO_REASON = "the game does not take it"


class Objects(BaseModel):
    """The things of a game that matter."""

    objects: list[str] = Field(min_length=1, max_length=40)


class Goal(BaseModel):
    """A goal, after thinking."""

    thoughts: str = ""
    goal: str = Field(min_length=1, max_length=MAX_SUBGOAL)


class ProposedSubgoal(BaseModel):
    """A subgoal with its reason."""

    subgoal: str = Field(min_length=1, max_length=MAX_SUBGOAL)
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


class Proposal(Goal):
    """A goal and subgoals for all agents, after thinking."""

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


@lru_cache(maxsize=64)
def with_entries(form: type[Answer], name: str, count: int) -> type[Answer]:
    """A form whose list must have so many entries, so that the model reads the number in the schema."""
    entries: Any = (form.model_fields[name].annotation, Field(min_length=count, max_length=count))
    return _with_fields(form, **{name: entries})


def _with_fields(form: type[Answer], **fields: Any) -> type[Answer]:
    """A form with other fields, under the same name and with the same docstring, which stand in the schema."""
    made: type[Answer] = create_model(form.__name__, __base__=form, __doc__=form.__doc__, **fields)
    return made


def assigned_way(answer: Assignment, agents: Sequence[str], subgoals: Sequence[ProposedSubgoal]) -> dict[str, str]:
    """A subgoal per agent, in the agents' order.

    Args:
        subgoals: In the order of their numbers.

    Raises:
        UnusableError: If not each agent gets one, and each subgoal is given.
    """
    numbers = {agent: one.number for agent, one in _by_agent(answer.assignment, agents).items()}
    if sorted(numbers.values()) != list(range(1, len(subgoals) + 1)):
        raise UnusableError(f"each of the numbers 1 to {len(subgoals)} must be given to one agent")
    return {agent: subgoals[number - 1].subgoal for agent, number in numbers.items()}


def _by_agent(entries: Sequence[Any], agents: Sequence[str]) -> dict[str, Any]:
    """Entries of an answer by their `agent`, in the agents' order; each has to have one."""
    named = {one.agent.strip().lower(): one for one in entries}
    if len(entries) != len(agents) or set(named) != {agent.lower() for agent in agents}:
        raise UnusableError(f"each of {', '.join(agents)} must be named once")
    return {agent: named[agent.lower()] for agent in agents}


def same_words(text: str) -> str:
    """A text without what does not change its meaning: case, spaces, the last full stop."""
    return " ".join(text.lower().split()).rstrip(".")


class AgentsWork(BaseModel):
    """What one agent does, one thing after the other."""

    agent: str
    subgoals: list[ProposedSubgoal] = Field(min_length=1)


class TeamPlan(Goal):
    """A goal and the work of each agent, after thinking."""

    agents: list[AgentsWork]


@lru_cache(maxsize=64)
def team_plan(agents: int, ahead: int) -> type[TeamPlan]:
    """The form of a plan for all agents, with at most `ahead` subgoals of each."""
    several: Any = (list[ProposedSubgoal], Field(min_length=1, max_length=ahead))
    work = _with_fields(AgentsWork, subgoals=several)
    entries: Any = (list[work], Field(min_length=agents, max_length=agents))  # type: ignore[valid-type]
    return _with_fields(TeamPlan, agents=entries)


def work_by_agent(answer: TeamPlan, agents: Sequence[str]) -> dict[str, list[ProposedSubgoal]]:
    """What each agent is to do, in the agents' order.

    Raises:
        UnusableError: If not each agent is named once.
    """
    return {agent: list(one.subgoals) for agent, one in _by_agent(answer.agents, agents).items()}


MOST_AHEAD = 8


class QuestionSettings(ManualShown):
    """Settings of a planner that asks a chat model: what its variants narrow down."""

    planner: ClassVar[str] = ""
    """The variant's name."""
    slow: ClassVar[bool] = True
    """As of `Planner`."""

    examples: Literal[0, 1, 3] = 1
    """Worked examples of the game in each question."""
    irrelevant_examples: Literal[0, 1, 3] = 0
    """Worked examples of something else that has nothing to do with the game (a library, a harbour, a theatre), after
    those of the game. For experiments."""
    objects: bool = True
    """Whether the things that matter are taken from the manual first, and goals are made of them."""
    menu: Literal["none", "possible", "library"] = "possible"
    """Subgoals that are listed in the question: none, those that somebody can do now, or all there are."""
    nearest: Literal["embedding", "model"] = "embedding"
    """Finder of the nearest subgoal to one that is refused twice."""
    text_encoder: str = "embedded"
    """For `nearest: embedding`: see `rllib_llm_comm.language.text_encoder.load_text_encoder`."""
    ahead: int = Field(default=0, ge=0, le=MOST_AHEAD)
    """0: goal, subgoals and assignment are questions of their own, and each plan is for one subgoal per agent (ours).
    1 to 8: one question asks for all of it, with up to so many subgoals per agent, to be done one after the other. The
    plan is kept while it holds: the model is asked again when an agent has no more of them, could not do one, or cannot
    set about the next one. SAMA has 10 to 20 questions a game; with 8 it is 9 to 15 in five kitchens, where rules
    answer."""
    opening: int = Field(default=0, ge=0, le=LARGEST)
    """Plans that are asked for in a game, those in place of failed ones left out. When the last of them no longer
    holds, the agents get no subgoal any more and act on their own (SAMA's "NA" in MiniRTS). 1 with `ahead`: one
    question a game. 0: no bound."""
    view: Literal["fog", "truth"] = "fog"
    """What the planner reads of a game with fog (MiniRTS). "fog" (ours): what the team sees or remembers. "truth"
    (SAMA): all units of the enemy, too."""
    translation: str = ""
    """Path of a translator, as a stage `run: translate` writes it (SAMA); empty: the game's own words."""
    history: bool = True
    """Whether outcomes of the rounds before are told (ours; the paper is silent)."""
    memory: Literal["round", "episode"] = "round"
    """Failed plans that are told: those from this very situation, or those of the whole game, too (SAMA)."""
    experience: int = Field(default=0, ge=0, le=LARGEST)
    """Worked examples from rounds of earlier games that went well (SAMA tells some; the number is ours)."""
    reasons: bool = True
    """Whether the model is told why the game refuses a proposal when it is asked again (SAMA); else it is asked again
    without them. For experiments."""
    prompts: PromptsOf = OURS
    """"paper": the questions of SAMA's listings in place of ours, in our own words: the same roles, slots, order and
    worked examples (goal with subgoals, assignment, reflection). Answers keep our forms."""
    fallback: Literal["rules", "none", "error"] = "rules"
    """Reaction to a second unusable answer (ours; the paper is silent). "rules": an impossible subgoal becomes the
    nearest possible one, subgoals are given out with the least effort, and reflection blames by rules; all of it is
    counted under their names. "none": there is no such plan, or no reflection and the failed attempt stands. "error":
    the run ends. A goal has no substitute: with "rules", too, there is no plan without one."""


class ChatPlanSettings(QuestionSettings):
    """Asks a chat model for a goal, for subgoals from a list, and for who gets which."""

    planner = "chat"
    menu: Literal["possible", "library"] = "possible"
    """Subgoals on the list: those that somebody can do now, or all there are."""
    prompts: Literal["ours"] = OURS
    """Wording of the questions; those of SAMA's listings are for `sama`."""


class SamaPlanSettings(QuestionSettings):
    """SAMA's planner: goal and subgoals in one question, in the model's own words, which the game checks."""

    planner = "sama"
    menu: Literal["none", "possible", "library"] = "none"
    """Subgoals that are listed in the question; "none" (SAMA): proposals are free and checked by the game."""
    fallback: Literal["none", "error"] = "none"
    """"none" (default): no plan, or no reflection and the failed attempt stands. "error": the run ends. Nothing ever
    takes a model's place here."""
    memory: Literal["round", "episode"] = "episode"
    """Failed plans that are told: those from this very situation, or those of the whole game, too (SAMA)."""


class DepsPlanSettings(ChatPlanSettings):
    """DEPS' planner: asks for the whole sequence of goals at once, and anew after a failure."""

    planner = "deps"
    ahead: Literal[0] = 0
    """DEPS has its own sequence: of goals, each split and shared out when it is its turn."""


class ChatPlanner(Planner):
    """Asks for a goal, for its subgoals, and for who gets which; each answer is checked against the game.

    What is unknown or impossible is refused with the reasons and asked once more. What happens to what is still so then
    is told by `QuestionSettings.fallback`, and who answered in the end by the plan's `answered_by`.

    Args:
        model: Whom it asks.
        settings: Those of `chat`, `sama` (`SamaPlanSettings`) or `deps` (`DepsPlanSettings`); by default of `chat`.

    Attributes:
        free: Whether subgoals are proposed in the model's own words, which the game resolves for each agent (SAMA).
        sequence: DEPS' goals; `None` of other variants.
    """

    settings_model: ClassVar[type[QuestionSettings]] = ChatPlanSettings

    def __init__(self, model: ChatModel, settings: QuestionSettings | None = None) -> None:
        self.model = model
        self.how = settings = self.settings_model() if settings is None else settings
        self.name = self.name or settings.planner
        self.slow = settings.slow
        self.remembers_games = settings.experience > 0
        self.free = isinstance(settings, SamaPlanSettings)
        self.sequence = GoalSequence() if isinstance(settings, DepsPlanSettings) else None
        by_embedding = NearestByEmbedding(settings.text_encoder)
        self.nearest: Nearest = NearestByModel(model, by_embedding) if settings.nearest == "model" else by_embedding
        self._objects: dict[str, list[str]] = {}
        self._manuals = QuestionLocks()
        self._manual = read_manual(settings.manual) if settings.manual else ""
        self._translator = read_translator(settings.translation) if settings.translation else None
        self._by: dict[Phase, Answerer] = {}  # who answered last in each phase
        self._standing: Plan | None = None  # the latest plan, whose subgoals are followed by those of `_ahead`
        self._ahead: dict[str, list[ProposedSubgoal]] = {}
        self._asked = 0  # plans of this game, those in place of failed ones left out
        self._past_examples: deque[str] = deque(maxlen=settings.experience)  # of earlier games
        self._new_examples: list[str] = []  # of this game
        substitutes: tuple[Answerer, ...] = (RULES, MENU) if settings.fallback == BY_RULES else ()
        self.answerers = tuple(dict.fromkeys((*answerers_of(model), *substitutes)))

    def check_game(self, game: PlanningGame) -> None:
        """Refuses `view: truth` in a game that hides nothing that could be told.

        Raises:
            UserError: If it is such.
        """
        game.check_view(self.how.view)

    def begin(self) -> None:
        """Begins an episode: nothing stands yet, and what went well in the last one may be told from now on."""
        self._standing, self._ahead, self._asked = None, {}, 0
        if self.sequence is not None:
            self.sequence = GoalSequence()
        self._past_examples.extend(self._new_examples)
        self._new_examples = []

    def went_well(self, request: PlanRequest, plan: Plan) -> None:
        """Keeps a round all of whose subgoals were done, as a worked example for later games."""
        if self.how.experience and not plan.alone:
            told = "; ".join(f"{one.agent}: {one.words}" for one in plan.subgoals)
            situation = self.situation(request)
            self._new_examples.append(f"In an earlier game. {situation}\nGoal: {plan.goal}\nSubgoals: {told}")

    def plan(self, request: PlanRequest) -> Plan:
        """Plan made by the chat model, or the next part of the one that stands."""
        try:
            made = self._next_part(request) if self.how.ahead else None
            if made is None and not request.failed:
                if 0 < self.how.opening <= self._asked:
                    return self._left_alone(request)
                self._asked += 1
            if made is None:
                made = self._planned_ahead(request) if self.how.ahead else self._planned(request)
            self._standing = made
            return made
        except AnswerError as error:
            if self.how.fallback == ERROR:
                raise gave_up(error) from error
            raise

    # ---- one question for all, and plans that are kept -----------------------------------------------------

    def _next_part(self, request: PlanRequest) -> Plan | None:
        before = self._standing
        if before is None or request.failed:
            return None
        ends = {outcome.agent: outcome for outcome in request.outcomes}
        given: list[AssignedSubgoal] = []
        for last in before.subgoals:
            if request.current.get(last.agent) == last.subgoal:  # not ended yet
                given.append(last)
                continue
            end, ahead = ends.get(last.agent), self._ahead.get(last.agent)
            if end is None or end.subgoal != last.subgoal or end.how not in (DONE, WAITED) or not ahead:
                return None
            if self._refusal(request, last.agent, ahead[0].subgoal):
                return None
            known = self._meant(request, last.agent, ahead[0].subgoal) or ""
            said = ahead[0].subgoal if self.free else ""
            author = before.answered_by.decomposition
            given.append(
                AssignedSubgoal(agent=last.agent, subgoal=known, said=said, reason=ahead[0].reason, answered_by=author)
            )
        self._ahead = {
            one.agent: self._ahead.get(one.agent, [])[one is not last :]
            for one, last in zip(given, before.subgoals, strict=True)
        }
        return before.model_copy(update={"subgoals": given, "refused": [], "kept": True})

    def _left_alone(self, request: PlanRequest) -> Plan:
        before = self._standing
        return Plan(
            goal="none: the opening is over, all act on their own",
            subgoals=[AssignedSubgoal(agent=agent, subgoal="") for agent in request.game.agents],
            planner=self.name,
            answered_by=before.answered_by if before is not None else PhaseAnswers(),
            fallback=self.how.fallback,
            source=source_of(self.model),
            kept=True,
            alone=True,
        )

    def _planned_ahead(self, request: PlanRequest) -> Plan:
        """A plan from one question, with what is to be done after its subgoals."""
        game, refused, by = request.game, list[Refusal](), dict[Phase, Answerer]()
        failed = failed_assignments(request)
        goal = request.failed[-1].plan.goal if request.redo != "goal" else ""

        def check(answer: TeamPlan) -> None:
            if not goal:
                require_new_goal(request, answer.goal)
            work = work_by_agent(answer, game.agents)
            problems: dict[str, str] = {}
            for agent, subgoals in work.items():
                first, *later = (one.subgoal for one in subgoals)
                if why := self._refusal(request, agent, first):
                    problems[first] = why
                unknown = f"is none of the subgoals of this game that {agent} has, or more than one"
                problems |= {one: f"{one!r} {unknown}" for one in later if not self._meant(request, agent, one)}
            _note(refused, "decomposition", problems)
            if {agent: self._meant(request, agent, one[0].subgoal) for agent, one in work.items()} in failed:
                raise UnusableError("these first subgoals have failed from here already")

        prompt = fill(
            __package__,
            worded(self.how.prompts, "plan_ahead"),
            agents=", ".join(game.agents),
            advice=game.advice(),
            context=self.context(request),
            examples=self.examples(request, "goal"),
            failed=self.failures(request),
            kept=f"\nThe goal stays as it is: {goal}\n" if goal else "",
            ahead=self.how.ahead,
            with_objects=", made of the things that matter" if self.how.objects else "",
            listed=self._listed(request),
        )
        form = team_plan(len(game.agents), self.how.ahead)
        with self._asking("decomposition", by):
            answer = self._ask(prompt, form, check, lambda answer: work_by_agent(answer, game.agents))
        work = work_by_agent(answer, game.agents)
        by["assignment"] = by["decomposition"]
        by["goal"] = request.failed[-1].plan.answered_by.goal if goal else by["decomposition"]
        first = {agent: subgoals[0] for agent, subgoals in work.items()}
        reasons = {agent: one.reason for agent, one in first.items()}
        authors = {one.subgoal: by["decomposition"] for one in first.values()}
        given = self._given(request, {agent: one.subgoal for agent, one in first.items()}, reasons, authors, refused)
        replaced = {one.agent for one in given if not self.free and game.parse(first[one.agent].subgoal) != one.subgoal}
        # What was to follow a subgoal that was replaced follows nothing.
        self._ahead = {agent: [] if agent in replaced else subgoals[1:] for agent, subgoals in work.items()}
        return self._made(goal or answer.goal, answer.thoughts, given, refused, by)

    def _listed(self, request: PlanRequest) -> str:
        """The subgoals that there are, for the question that asks for everything."""
        now = f"What can be done now, and by whom:\n{self._menu(request)}"
        if self.how.menu == "none":
            return f"Its forms are: {request.game.forms()}."
        if self.how.menu == "library":
            return f"Take subgoals from this list, word for word:\n{self._menu(request)}"
        return f"Its forms are: {request.game.forms()}.\n{now}"

    def _planned(self, request: PlanRequest) -> Plan:
        refused, by = list[Refusal](), dict[Phase, Answerer]()
        context = self.context(request)
        kept = request.failed[-1].plan if request.redo != "goal" else None
        if kept is not None and request.redo == "assignment":
            goal, reason = kept.goal, kept.reason
            subgoals = [ProposedSubgoal(subgoal=one.words, reason=one.reason) for one in kept.subgoals]
            by["goal"], by["decomposition"] = kept.answered_by.goal, kept.answered_by.decomposition
            authors = {one.words: one.answered_by for one in kept.subgoals}
        else:
            goal, reason, subgoals = self._propose(request, context, kept, by, refused)
            authors = {one.subgoal: by["decomposition"] for one in subgoals}
        with self._asking("assignment", by):
            way, reasons = self._assign(request, context, goal, subgoals, refused)
        if way is None:
            # Subgoals that the model gives out wrongly in two tries are given out as well as possible.
            by["assignment"] = RULES
            way = assignments(request, [one.subgoal for one in subgoals])[0]
        whys = {one.subgoal: one.reason for one in subgoals}
        reasons = {agent: reasons.get(agent) or whys.get(way[agent], "") for agent in way}
        return self._made(goal, reason, self._given(request, way, reasons, authors, refused), refused, by)

    def _given(
        self,
        request: PlanRequest,
        way: dict[str, str],
        reasons: Mapping[str, str],
        authors: dict[str, Answerer],
        refused: list[Refusal],
    ) -> list[AssignedSubgoal]:
        """The subgoals of a plan in the game's words; those from its lists are replaced where they are impossible."""
        if not self.free:
            authors = authors | {str(request.game.parse(text)): who for text, who in authors.items()}
            return assigned(made_possible(request, way, self.nearest, refused), reasons, authors, refused)
        return [
            AssignedSubgoal(
                agent=agent,
                subgoal=self._meant(request, agent, said) or "",
                said=said,
                reason=reasons[agent],
                answered_by=authors[said],
            )
            for agent, said in way.items()
        ]

    def _ask(
        self,
        prompt: str,
        form: type[Answer],
        check: Callable[[Answer], None],
        usable: Callable[[Answer], object] | None = None,
    ) -> Answer:
        """An answer that passes a check; where rules may mend it, also one that has at least the right form."""
        try:
            return ask_for(self.model, prompt, form, check=self._told(check))
        except AnswerError as error:
            if self.how.fallback != BY_RULES:
                raise
            try:
                return read_answer(error.answer, form, usable)
            except UnusableError:
                raise error from None

    def _made(
        self,
        goal: str,
        reason: str,
        given: list[AssignedSubgoal],
        refused: list[Refusal],
        by: dict[Phase, Answerer],
    ) -> Plan:
        return Plan(
            goal=goal,
            reason=reason,
            subgoals=given,
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
        """The game, its objects, the moment and what went before, in words."""
        game, state = request.game, request.state
        manual = f"{self._manual}\n{game.scenario()}".strip() if self._manual else game.manual()
        lines = [outcome.sentence() for outcome in request.outcomes] if self.how.history else []
        lines += [f"{agent} is still to {subgoal}." for agent, subgoal in request.current.items() if subgoal]
        objects = f"\nThings that matter: {', '.join(self.objects(manual))}.\n" if self.how.objects else ""
        truth = f" {game.truth(state)}" if self.how.view == "truth" else ""
        apart = not self.free and self._translator is None  # the agents, from the rest of the moment
        return fill(
            __package__,
            "plan_context",
            count=len(game.agents),
            agents=", ".join(game.agents),
            manual=manual,
            objects=objects,
            situation=(game.situation(state) if apart else self.situation(request)) + truth,
            status=f"\n\nThe agents now:\n{_agents_now(request)}" if apart else "",
            history="\nWhat was done before:\n" + "\n".join(lines) + "\n" if lines else "",
        )

    def situation(self, request: PlanRequest) -> str:
        """The moment in words: the translator's, or the game's own.

        Raises:
            UserError: If the translator does not work for this state.
        """
        game, state = request.game, request.state
        if self._translator is None:
            return f"{game.situation(state)} {_agents_now(request)}"
        try:
            return self._translator.words(game, state)
        except RefusedCodeError as error:
            raise UserError(
                f"The translator {self.how.translation!r} does not work for a state ({error.reason}); have it written "
                "anew, or omit `translation`."
            ) from error

    def objects(self, manual: str) -> list[str]:
        """The things of a game that matter; asked once per manual."""
        if manual not in self._objects:
            with others_go_on(), self._manuals.hold(manual):  # planners beside this one wait for the answer
                if manual not in self._objects:
                    prompt = fill(__package__, worded(self.how.prompts, "plan_objects"), manual=manual)
                    found = ask_for(self.model, prompt, Objects)
                    self._objects[manual] = list(dict.fromkeys(found.objects))
        return self._objects[manual]

    def examples(self, request: PlanRequest, phase: Phase) -> str:
        """Examples of plans, as many as wanted, and of earlier games."""
        game = request.game
        known = game.paper_examples(phase) if self.how.prompts == PAPER else game.examples(phase)
        shown = list(known)[: self.how.examples]
        shown += examples_in(__package__, f"example_irrelevant_{phase}")[: self.how.irrelevant_examples]
        return "".join(f"\nAn example.\n{example}\n" for example in [*shown, *self._past_examples])

    def failures(self, request: PlanRequest) -> str:
        """The plans that failed from here and, with `memory: episode`, earlier in this game, in words."""
        earlier = request.earlier if self.how.memory == "episode" else ()
        return told_failures(request.failed) + told_failures(earlier, "earlier in this game")

    def described(self, plan: Plan, outcomes: Sequence[Outcome]) -> str:
        """The ends of a plan's subgoals, as reflection is told of them: free ones in the planner's own words."""
        if not self.free:
            return "\n".join(outcome.sentence() for outcome in outcomes)
        done = {outcome.agent for outcome in outcomes if outcome.how in (DONE, WAITED)}
        return "\n".join(
            f"{one.agent} was told to {one.words}: {'done' if one.agent in done else 'not done in time'}."
            for one in plan.subgoals
        )

    # ---- the questions -----------------------------------------------------------------------------------

    def _propose(
        self,
        request: PlanRequest,
        context: str,
        kept: Plan | None,
        by: dict[Phase, Answerer],
        refused: list[Refusal],
    ) -> tuple[str, str, list[ProposedSubgoal]]:
        """A goal, the thoughts behind it, and its subgoals; the goal of `kept` stays."""
        if self.free:
            with self._asking("decomposition", by):
                answer = self._goal_with_subgoals(request, context, kept.goal if kept is not None else "", refused)
            by["goal"] = by["decomposition"]
            return kept.goal if kept is not None else answer.goal, answer.thoughts, answer.subgoals
        if kept is not None:
            goal, reason, by["goal"] = kept.goal, kept.reason, kept.answered_by.goal
        else:
            with self._asking("goal", by):
                goal, reason = self._goal(request, context)
        with self._asking("decomposition", by):
            return goal, reason, self._decompose(request, context, goal, refused)

    def _goal_with_subgoals(self, request: PlanRequest, context: str, goal: str, refused: list[Refusal]) -> Proposal:
        """SAMA's question: for a goal, unless there is one, and for its subgoals, at once."""
        game, failed = request.game, failed_assignments(request)

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
            worded(self.how.prompts, "sama_plan"),
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
        return self._ask(prompt, with_entries(Proposal, "subgoals", len(game.agents)), check)

    def _goal(self, request: PlanRequest, context: str) -> tuple[str, str]:
        """The next goal, with the thoughts behind it."""
        examples = self.examples(request, "goal")
        if self.sequence is not None:
            return self.sequence.next(self.model, request, self._standing, context, examples)
        prompt = fill(
            __package__,
            "plan_goal",
            context=context,
            examples=examples,
            failed=self.failures(request),
            with_objects=", made of the things that matter" if self.how.objects else "",
        )
        check = self._told(lambda answer: require_new_goal(request, answer.goal))
        answer = ask_for(self.model, prompt, Goal, check=check)
        return answer.goal, answer.thoughts

    def _decompose(
        self, request: PlanRequest, context: str, goal: str, refused: list[Refusal]
    ) -> list[ProposedSubgoal]:
        game, count = request.game, len(request.game.agents)
        failed = [sorted(way.values()) for way in failed_assignments(request)]

        def check(answer: Decomposition) -> None:
            self._require_possible(request, answer.subgoals, refused)
            if len(answer.subgoals) != count or len({same_words(one.subgoal) for one in answer.subgoals}) != count:
                raise UnusableError(f"there must be {count} different subgoals, one for each agent")
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
            failed=self.failures(request),
            goal=goal,
            count=count,
            menu=self._menu(request),
        )
        found = self._ask(prompt, with_entries(Decomposition, "subgoals", count), check)
        taken = {game.parse(one.subgoal) for one in found.subgoals}
        known: list[ProposedSubgoal] = []
        for one in found.subgoals:
            subgoal, before = str(game.parse(one.subgoal)), [other.subgoal for other in known]
            why = self._refusal_for_all(request, one.subgoal) or ("it is there twice" if subgoal in before else "")
            if why:  # it becomes the nearest other one that somebody can do
                possible = list(
                    dict.fromkeys(text for agent in game.agents for text in game.possible(request.state, agent))
                )
                options = [option for option in possible if option not in {*before, *taken}]
                subgoal = self.nearest(one.subgoal, options or possible)
                refused.append(
                    Refusal(
                        phase="decomposition",
                        subgoal=one.subgoal,
                        reason=why,
                        instead=subgoal,
                        chosen_by=self.nearest.by,
                    )
                )
            known.append(ProposedSubgoal(subgoal=subgoal, reason=one.reason))
        return known

    def _assign(
        self,
        request: PlanRequest,
        context: str,
        goal: str,
        subgoals: Sequence[ProposedSubgoal],
        refused: list[Refusal],
    ) -> tuple[dict[str, str] | None, dict[str, str]]:
        """A subgoal, in the model's words, and a reason per agent; without a usable answer nothing, if rules take over.

        Of free proposals equal ones need no question.
        """
        agents, texts = request.game.agents, [one.subgoal for one in subgoals]
        if self.free and len({same_words(text) for text in texts}) == 1:
            return dict(zip(agents, texts, strict=True)), {}

        def check(answer: Assignment) -> None:
            way = assigned_way(answer, agents, subgoals)
            problems = {text: why for agent, text in way.items() if (why := self._refusal(request, agent, text))}
            _note(refused, "assignment", problems)
            if {agent: self._meant(request, agent, text) for agent, text in way.items()} in failed_assignments(request):
                raise UnusableError("this assignment has failed from here already")

        prompt = fill(
            __package__,
            worded(self.how.prompts, "plan_assignment"),
            context=context,
            examples=self.examples(request, "assignment"),
            failed=self.failures(request),
            goal=goal,
            subgoals="\n".join(f"{number}. {text}" for number, text in enumerate(texts, 1)),
        )
        form = with_entries(Assignment, "assignment", len(agents))
        try:
            answer = ask_for(self.model, prompt, form, check=self._told(check))
        except AnswerError:
            if self.how.fallback != BY_RULES:
                raise
            return None, {}
        return assigned_way(answer, agents, subgoals), {one.agent: one.reason for one in answer.assignment}

    def _told(self, check: Callable[[Any], None]) -> Callable[[Any], None]:
        """The check of an answer, whose reasons the model is told, or not."""
        if self.how.reasons:
            return check

        def silent(answer: Any) -> None:
            try:
                check(answer)
            except UnusableError:
                raise UnusableError(_NO_REASON) from None

        return silent

    def _menu(self, request: PlanRequest) -> str:
        game = request.game
        who: dict[str, list[str]] = {}
        for agent in game.agents:
            listed = game.possible(request.state, agent) if self.how.menu == "possible" else game.library(agent)
            for subgoal in listed:
                who.setdefault(subgoal, []).append(agent)
        return "\n".join(f"- {subgoal} ({' or '.join(agents)})" for subgoal, agents in who.items())

    # ---- what the game says of proposals -----------------------------------------------------------------

    def _meant(self, request: PlanRequest, agent: str, text: str) -> str | None:
        """The game's subgoal that a proposal means for an agent."""
        game = request.game
        return game.resolve(request.state, agent, text) if self.free else game.parse(text)

    def _refusal(self, request: PlanRequest, agent: str, text: str) -> str:
        """Reason why an agent cannot set about a proposal now; empty if it can."""
        known = self._meant(request, agent, text)
        if not known:
            return f"{text!r} is none of the subgoals of this game, or more than one"
        return request.game.refusal(request.state, agent, known)

    def _refusal_for_all(self, request: PlanRequest, text: str) -> str:
        """Reasons why no agent can set about a proposal now; empty if one can."""
        reasons = list(dict.fromkeys(self._refusal(request, agent, text) for agent in request.game.agents))
        return "; ".join(reasons) if all(reasons) else ""

    def _require_possible(
        self, request: PlanRequest, proposed: Sequence[ProposedSubgoal], refused: list[Refusal]
    ) -> None:
        problems = {one.subgoal: self._refusal_for_all(request, one.subgoal) for one in proposed}
        _note(refused, "decomposition", {text: why for text, why in problems.items() if why})


def _agents_now(request: PlanRequest) -> str:
    return " ".join(request.game.situation_of(request.state, agent) for agent in request.game.agents)


def _note(refused: list[Refusal], phase: Phase, problems: dict[str, str]) -> None:
    """Notes refused subgoals with their reasons.

    Raises:
        UnusableError: If there are any.
    """
    for subgoal, reason in problems.items():
        noted = Refusal(phase=phase, subgoal=subgoal, reason=reason)
        if noted not in refused:
            refused.append(noted)
    if problems:
        raise UnusableError(*problems.values())


def require_new_goal(request: PlanRequest, goal: str) -> None:
    """Refuses a goal that has failed from this situation.

    Raises:
        UnusableError: If it has.
    """
    failed = [same_words(attempt.plan.goal) for attempt in request.failed if attempt.guilty == "goal"]
    if same_words(goal) in failed:
        raise UnusableError(f"the goal {goal!r} has failed from here already")
