"""Self-reflection (SAMA Section 3.4): the blame for a failed round, and a new plan for the phase that is to blame.

An episode is a chain of rounds. If a subgoal of a round was not done, a reflector names the phase of planning that was
at fault, the game is put back to where the round began, and the planner plans that phase anew, told of all that failed
there. Attempts that were put back count for nothing.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rllib_llm_comm.chat.answers import AnswerError, ask_for
from rllib_llm_comm.chat.chat_model import REFLECTION, ChatCounters, count_scope
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.interface import EPISODE_METRICS, secret_of, solved
from rllib_llm_comm.language.prompts import fill
from rllib_llm_comm.policies.decision import Decision, Memory, Policy, Request
from rllib_llm_comm.policies.planning_settings import ALL, PlanningSettings, ReflectionSettings
from rllib_llm_comm.policies.play_loop import PlayedGame
from rllib_llm_comm.sama.planned_env import PATIENCE, SubgoalTeller, SubgoalTracker, cost_figures
from rllib_llm_comm.sama.planners.baselines import thinker
from rllib_llm_comm.sama.planners.chat import Blame, ChatPlanner
from rllib_llm_comm.sama.planning_game import PAPER, planning_game, worded
from rllib_llm_comm.sama.plans import (
    ANSWERERS,
    BY_RULES,
    ERROR,
    LOST,
    NONE,
    RULES,
    STUCK,
    AnswerCounts,
    Answerer,
    Attempt,
    FailedAttempt,
    Outcome,
    Plan,
    Planner,
    PlanRequest,
    Reflection,
    answerer_of,
    answerers_of,
    gave_up,
    made_plan,
    subgoal_figures,
)

SNAPSHOT = "snapshot"

Watch = Callable[[Attempt, PlayedGame, Mapping[Any, Any], Mapping[Any, Decision]], None]
"""Gets the attempt, its game, what all agents see, told their subgoals, and their decisions; none at an attempt's end.

Beside the observers of the game: those know no attempts, and see what it shows, without subgoals."""


def check_recovery(recover: str | None, trials: int | None) -> None:
    """Refuses a way back that is none, or that nobody goes.

    Args:
        recover: As of `ReflectivePlay`; `None`: not set.
        trials: Most reflections per round; `None`: play without rounds.

    Raises:
        UserError: If it is not allowed.
    """
    if recover is None:
        return
    ReflectionSettings.from_mapping({"recover": recover})
    if trials is None:
        raise UserError(
            f"`recover` is {recover!r} but `trials` is not set, and without it nothing is put back; set `trials`, too."
        )


@dataclass(frozen=True)
class RoundStart:
    """All that an attempt changes, as it was at the start of a round.

    Attributes:
        steps: Steps of the environment before the round.
        played: What all agents see.
        outcomes: Outcomes of the subgoals of earlier rounds.
        plain: The game's state as plain values.
    """

    steps: int
    game: Any
    played: PlayedGame
    memory: Any
    outcomes: tuple[Outcome, ...]
    plain: Any


class Rounds:
    """An episode that is played plan by plan, and can be put back to the start of a round.

    Args:
        env: A parallel environment of a game that planners know; not wrapped in `PlannedSubgoals`.
        policy: Follows the subgoals; its memory of an episode can be copied.
        explore: True if actions are sampled.
        patience: Game steps after which a subgoal counts as not done.
        recover: As of `ReflectionSettings`.
        subgoals_to: Agents that are told their subgoals: "all", or names.
        in_vector: True if agents read numbers, see `rllib_llm_comm.sama.planned_env.SubgoalTeller`.
        watch: Called before each step of an attempt and once at its end.

    Attributes:
        tracker: The subgoals that agents have, and their outcomes.

    Raises:
        UserError: If the game does not fit.
    """

    def __init__(
        self,
        env: Any,
        policy: Policy,
        *,
        explore: bool = True,
        patience: int = PATIENCE,
        recover: str = SNAPSHOT,
        subgoals_to: str | Sequence[str] = ALL,
        in_vector: bool = False,
        watch: Watch | None = None,
    ) -> None:
        self._env, self._policy, self._explore = env, policy, explore
        given = PlanningSettings.from_mapping({"patience": patience, "subgoals_to": subgoals_to})
        self.game = planning_game(env)
        self.tracker = SubgoalTracker(self.game, given.patience)
        self._teller = SubgoalTeller(self.game, in_vector, given.subgoals_to)
        self._recover, self._watch = recover, watch

    def begin(self, seed: int) -> None:
        """Begins an episode."""
        self._played = PlayedGame(self._env, seed)
        self._policy.reset(seed=seed)
        self._memory, self._actions = self._policy.begin(seed), list[dict[Any, Any]]()
        self.tracker.begin()

    @property
    def running(self) -> bool:
        """True until the episode is over."""
        return not self._played.over

    @property
    def steps(self) -> int:
        """Steps of the environment, those that were put back left out."""
        return len(self._actions)

    @property
    def success(self) -> bool:
        """True if the task was done (`envs.interface.solved`)."""
        return solved(any(self._played.terminations.values()), self._played.infos)

    @property
    def metrics(self) -> dict[str, float]:
        """The game's own figures."""
        return {
            name: value for info in self._played.infos.values() for name, value in info.get(EPISODE_METRICS, {}).items()
        }

    def attempt(self, plan: Plan) -> Attempt:
        """Follows a plan until all its subgoals have ended, one has failed, or the time is over."""
        attempt = Attempt(plan, len(self._actions), returns={str(agent): 0.0 for agent in self._env.possible_agents})
        self.tracker.ended = set(self.game.agents)
        self.tracker.give(plan)
        while self.running and len(self.tracker.ended) < len(self.game.agents):
            self._step(attempt)
            attempt.failed = any(outcome.how in (STUCK, LOST) for outcome in attempt.outcomes)
            if attempt.failed:
                break
        attempt.end = len(self._actions)
        if self._watch is not None:
            self._watch(attempt, self._played, self._seen(), {})
        return attempt

    def _step(self, attempt: Attempt) -> None:
        played, seen = self._played, self._seen()
        if isinstance(self._memory, Memory):  # of a policy whose messages may be a control
            self._memory.secret = secret_of(played.infos)
        request = Request(self._memory, {agent: seen[agent] for agent in played.asked})
        (decisions,) = self._policy.act_together([request], self._explore)
        if self._watch is not None:
            self._watch(attempt, played, seen, decisions)
        self._actions.append({agent: decision.action for agent, decision in decisions.items()})
        played.step(decisions)
        for agent, reward in played.rewards.items():
            attempt.returns[str(agent)] += float(reward)
        attempt.outcomes += self.tracker.watch(self.game.passed())

    def _seen(self) -> dict[Any, Any]:
        return self._teller.told(self._played.observations, self.tracker.told)

    def save(self) -> RoundStart:
        """All that an attempt changes."""
        return RoundStart(
            steps=len(self._actions),
            game=self.game.save(),
            played=self._played.saved(),
            memory=copy.deepcopy(self._memory),
            outcomes=tuple(self.tracker.outcomes),
            plain=self.game.plain(self.game.state()),
        )

    def restore(self, start: RoundStart) -> None:
        """Puts the episode back to the start of a round.

        Raises:
            UserError: If the same actions after the same reset lead elsewhere.
        """
        del self._actions[start.steps :]
        if self._recover == SNAPSHOT:
            self.game.load(start.game)
            self._played = start.played.saved()
        else:
            self._replay(start)
        self._played.rewards = {}
        self._memory = copy.deepcopy(start.memory)
        self.tracker.outcomes = list(start.outcomes)

    def _replay(self, start: RoundStart) -> None:
        self._played = PlayedGame(self._env, self._played.seed)
        for actions in self._actions:
            self._played.advance(actions)
        if self.game.plain(self.game.state()) != start.plain:
            raise UserError(
                "`recover` is 'replay', but the same actions after the same reset led elsewhere; use 'snapshot', "
                "or seed all that is random in the environment."
            )


Reflector = Callable[[PlanRequest, Plan, list[Outcome]], Reflection]
"""Finds the phase of planning that is to blame for a failure: of a request, its plan, and the ends of its subgoals."""


def reflect_by_rules(request: PlanRequest, plan: Plan, outcomes: list[Outcome]) -> Reflection:
    """Blames the assignment if another agent could have done it with less effort, else the decomposition."""
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
    """Asks the planner's chat model; what happens without a usable answer is told by the planner's `fallback`."""

    planner: ChatPlanner

    def __call__(self, request: PlanRequest, plan: Plan, outcomes: list[Outcome]) -> Reflection:
        """Reflection of the chat model on an attempt.

        Raises:
            AnswerError: If there is no usable answer and `fallback` is "none".
            ChatError: If a request failed for good.
            UserError: If the budget is spent, the key is missing, or there is no usable answer and `fallback` is
                "error".
        """
        planner, earlier = self.planner, [f"- the {one.guilty} was blamed: {one.why}" for one in request.failed]
        if planner.how.prompts == PAPER:
            shown = list(request.game.paper_examples("reflection"))[: planner.how.examples]
            told = "\n" + "\n".join(earlier) if earlier else "none."
        else:
            shown = []
            told = "Plans from here that failed before:\n" + "\n".join(earlier) + "\n\n" if earlier else ""
        prompt = fill(
            __package__,
            worded(planner.how.prompts, "reflect"),
            context=planner.context(request),
            examples="".join(f"\n\nAn example.\n{one}" for one in shown),
            goal=plan.goal,
            subgoals="; ".join(one.words for one in plan.subgoals),
            assignment="; ".join(f"{one.agent}: {one.words}" for one in plan.subgoals),
            description=planner.described(plan, outcomes),
            earlier=told,
        )
        try:
            with count_scope() as asked:
                blame = ask_for(planner.model, prompt, Blame, purpose=REFLECTION)
        except AnswerError as error:
            if planner.how.fallback == ERROR:
                raise gave_up(error) from error
            if planner.how.fallback == NONE:
                raise
            return reflect_by_rules(request, plan, outcomes)
        return Reflection(**blame.model_dump(), answered_by=answerer_of(planner.model, asked))

    @property
    def answerers(self) -> tuple[Answerer, ...]:
        """All whom its reflections may name in `answered_by`."""
        substitute = (RULES,) if self.planner.how.fallback == BY_RULES else ()
        return tuple(dict.fromkeys((*answerers_of(self.planner.model), *substitute)))


MOST_REFLECTIONS = 3
"""Of the attempts from one situation; of those earlier in the episode the last ones, too."""


@dataclass
class ReflectedEpisode:
    """An episode with all its attempts.

    Attributes:
        returns: Return of the attempts that were kept, per agent.
        steps: Steps of the environment, those that were put back left out.
        success: True if the task was done (`envs.interface.solved`).
        rounds: The tree of attempts: per round all attempts from the same situation, the last of them kept.
        cost: Requests to chat models, with their tokens and price.
        answers: Counts of the authors of plans and reflections, also of attempts that were put back.
    """

    seed: int
    returns: dict[str, float] = field(default_factory=dict)
    steps: int = 0
    success: bool = False
    metrics: dict[str, float] = field(default_factory=dict)
    rounds: list[list[Attempt]] = field(default_factory=list)
    cost: ChatCounters = field(default_factory=ChatCounters)
    answers: AnswerCounts = field(default_factory=lambda: AnswerCounts(()))

    def counts(self) -> dict[str, float]:
        """Figures of planning, as of `PlannedSubgoals`; attempts that were put back are in `plans` and costs only."""
        stood = [attempts[-1] for attempts in self.rounds]
        ends = Counter(outcome.how for attempt in stood for outcome in attempt.outcomes)
        given = sum(bool(one.subgoal) for attempt in stood for one in attempt.plan.subgoals)
        return {
            "reflections": float(self.reflections),
            "plans": float(sum(map(len, self.rounds))),
            "plans_kept": float(sum(one.plan.kept for attempts in self.rounds for one in attempts)),
            "plans_failed": float(sum(bool(one.unplanned) for attempts in self.rounds for one in attempts)),
            **self.answers.figures(),
            **subgoal_figures(given, ends),
            "subgoals_refused": float(sum(len(one.plan.refused) for attempts in self.rounds for one in attempts)),
            **cost_figures(self.cost),
        }

    @property
    def reflections(self) -> int:
        """Number of attempts that were put back."""
        return sum(len(attempts) - 1 for attempts in self.rounds)

    def to_json(self) -> dict[str, Any]:
        """All of it as plain values, for a log."""
        rounds = [[attempt.to_json() for attempt in attempts] for attempts in self.rounds]
        own = {"cost": self.cost.to_json(), "answers": self.answers.figures(), "reflections": self.reflections}
        return {**vars(self), "rounds": rounds, **own}


class ReflectivePlay:
    """Plays episodes in rounds, with reflection.

    Args:
        env: A parallel environment of a game that planners know; not wrapped in `PlannedSubgoals`.
        reflector: Names the phase to blame; by default the chat model of a planner that has one, else rules.
        trials: As of `ReflectionSettings`.
        recover: As of `ReflectionSettings`.
        **rounds: The other arguments of `Rounds`.

    Raises:
        UserError: If the game does not fit or a setting is not allowed.
    """

    def __init__(
        self,
        env: Any,
        policy: Policy,
        planner: Planner,
        reflector: Reflector | None = None,
        *,
        trials: int = ReflectionSettings.defaults()["trials"],
        recover: str = SNAPSHOT,
        **rounds: Any,
    ) -> None:
        how = ReflectionSettings.from_mapping({"trials": trials, "recover": recover})
        self._rounds = Rounds(env, policy, recover=how.recover, **rounds)
        self.planner = planner
        planner.check_game(self._rounds.game)
        thinks = thinker(planner)
        by_model = ChatReflector(thinks) if isinstance(thinks, ChatPlanner) else reflect_by_rules
        self.reflector: Reflector = reflector or by_model
        self._trials = how.trials

    def play(self, seed: int = 0) -> ReflectedEpisode:
        """Plays an episode.

        Args:
            seed: Fixes everything that is random but the chat model.

        Raises:
            ChatError: If a request failed for good, or the chat model gave no usable answer where no plan stands yet.
            UserError: If the user has to do something first, or the game cannot be played again as it was.
        """
        episode = ReflectedEpisode(seed, answers=AnswerCounts(self.planner.answerers, self._reflectors()))
        with count_scope(episode.cost):
            self._rounds.begin(seed)
            self.planner.reseed(seed)
            self.planner.begin()
            self._earlier: list[FailedAttempt] = []
            while self._rounds.running:
                episode.rounds.append(self._round(episode.answers))
        for attempts in episode.rounds:
            for agent, earned in attempts[-1].returns.items():
                episode.returns[agent] = episode.returns.get(agent, 0.0) + earned
        episode.steps, episode.success = self._rounds.steps, self._rounds.success
        episode.metrics.update(self._rounds.metrics)
        return episode

    def _reflectors(self) -> tuple[Answerer, ...]:
        if not self._trials:
            return ()
        return (RULES,) if self.reflector is reflect_by_rules else getattr(self.reflector, "answerers", ANSWERERS)

    def _round(self, answers: AnswerCounts) -> list[Attempt]:
        """Attempts from here until one does not fail, there were enough, or there is no other plan."""
        start = self._rounds.save()
        attempts: list[Attempt] = []
        failed: list[FailedAttempt] = []
        earlier = tuple(self._earlier[-MOST_REFLECTIONS:])
        state = self._rounds.game.state()
        request = PlanRequest(self._rounds.game, state, outcomes=start.outcomes, earlier=earlier)
        plan = made_plan(self.planner, request)
        while True:
            answers.add_plan(plan)
            attempt = self._rounds.attempt(plan)
            attempts.append(attempt)
            if not attempt.failed:
                self.planner.went_well(request, attempt.plan)
                return attempts
            if len(failed) >= self._trials:
                return attempts
            try:
                attempt.reflection = blamed = self.reflector(request, attempt.plan, attempt.outcomes)
                answers.add_reflection(blamed)
                undone = tuple(outcome.agent for outcome in attempt.outcomes if outcome.how in (STUCK, LOST))
                failed.append(FailedAttempt(attempt.plan, blamed.phase, blamed.why, undone))
                self._earlier.append(failed[-1])
                request = replace(request, failed=tuple(failed[-MOST_REFLECTIONS:]))
                plan = made_plan(self.planner, request)
            except AnswerError as error:  # nothing is put back yet, so nothing is lost
                attempt.unplanned = str(error)
                return attempts
            attempt.kept = False
            self._rounds.restore(start)
