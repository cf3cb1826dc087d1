"""The planner that asks a chat model: for a goal, then for subgoals, then for who gets which (SAMA Section 3.2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from rllib_llm_comm.chat.answers import AnswerError, UnusableError, ask_for
from rllib_llm_comm.chat.chat_model import ChatModel
from rllib_llm_comm.chat.turns import QuestionLocks, others_go_on
from rllib_llm_comm.chat.usage import count_scope
from rllib_llm_comm.core.errors import UserError, require_choice
from rllib_llm_comm.language.prompt_files import fill, template
from rllib_llm_comm.sama.answer_authors import (
    BY_RULES,
    ERROR,
    FALLBACKS,
    MENU,
    RULES,
    Answerer,
    PhaseAnswers,
    answerer_of,
    answerers_of,
    gave_up,
    source_of,
)
from rllib_llm_comm.sama.manuals.manual import read_manual
from rllib_llm_comm.sama.matching import (
    assigned,
    assignments,
    can_be_shared_out,
    failed_assignments,
    made_possible,
    refusal_for_all,
)
from rllib_llm_comm.sama.nearest import Nearest, NearestByEmbedding, NearestByModel
from rllib_llm_comm.sama.planner_forms import (
    Assignment,
    Decomposition,
    Goal,
    Objects,
    ProposedSubgoal,
    ask_leniently,
    assigned_way,
    check_count,
    same_words,
    with_entries,
)
from rllib_llm_comm.sama.planning_game import BETWEEN_EXAMPLES
from rllib_llm_comm.sama.plans import Outcome, Phase, Plan, Planner, PlanRequest, Refusal, told_failures


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
