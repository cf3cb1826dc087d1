"""Self-reflection (SAMA Section 3.4): the blame for a failed round, and a new plan for the phase that is to blame.

An episode is a chain of rounds (`planning.rounds`). If a subgoal of a round was not done, a reflector names the phase
of planning that was at fault, the game is put back to where the round began, and the planner plans that phase anew,
told of all that failed there. Attempts that were put back count for nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rllib_llm_comm.chat.answers import AnswerError
from rllib_llm_comm.chat.usage import ChatCounters, count_scope
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.sama.answer_authors import ANSWERERS, RULES, Answerer
from rllib_llm_comm.sama.answer_counts import AnswerCounts
from rllib_llm_comm.sama.attempts import Attempt
from rllib_llm_comm.sama.chat_planner import ChatPlanner
from rllib_llm_comm.sama.made_plan import made_plan
from rllib_llm_comm.sama.plans import (
    DONE,
    LOST,
    STUCK,
    FailedAttempt,
    Planner,
    PlanRequest,
)
from rllib_llm_comm.sama.player import Player
from rllib_llm_comm.sama.random_planners import thinker
from rllib_llm_comm.sama.reflectors import ChatReflector, Reflector, reflect_by_rules
from rllib_llm_comm.sama.rounds import SNAPSHOT, Rounds, Watch
from rllib_llm_comm.sama.subgoal_observations import ALL
from rllib_llm_comm.sama.tracking import PATIENCE

MOST_TRIALS = 3
MOST_REFLECTIONS = 3
"""Of the attempts from one situation; of those earlier in the episode the last ones, too."""


@dataclass
class ReflectedEpisode:
    """An episode with all its attempts.

    Attributes:
        seed: Seed of the episode.
        returns: Return of the attempts that were kept, per agent.
        steps: Steps of the environment, those that were put back left out.
        success: True if the task was done (`envs.interface.solved`).
        metrics: The game's own figures.
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
        ends = [outcome.how for attempt in stood for outcome in attempt.outcomes]
        given = sum(len(attempt.plan.subgoals) for attempt in stood)
        return {
            "reflections": float(self.reflections),
            "plans": float(sum(map(len, self.rounds))),
            "plans_failed": float(sum(bool(one.unplanned) for attempts in self.rounds for one in attempts)),
            **self.answers.figures(),
            "subgoals_given": float(given),
            "subgoals_completed": float(ends.count(DONE)),
            "subgoals_stuck": float(ends.count(STUCK) + ends.count(LOST)),
            "subgoals_refused": float(sum(len(one.plan.refused) for attempts in self.rounds for one in attempts)),
            "subgoals_share": ends.count(DONE) / max(1, given),
            "plan_requests": float(self.cost.requests),
            "plan_tokens": float(self.cost.input_tokens + self.cost.output_tokens),
            "plan_cost": float(self.cost.cost),
            "plan_seconds": float(self.cost.seconds),
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


def check_trials(trials: object) -> None:
    """Refuses what is no number of reflections.

    Args:
        trials: Most reflections per round.

    Raises:
        UserError: If it is not allowed.
    """
    if isinstance(trials, bool) or not isinstance(trials, int) or trials < 0:
        raise UserError(f"`trials` is {trials!r} but must be a whole number from 0 up.")


class ReflectivePlay:
    """Plays episodes in rounds, with reflection.

    Args:
        env: A parallel environment of a game that planners know; not wrapped in `PlannedSubgoals`.
        player: The followers of the subgoals.
        planner: The author of the plans.
        reflector: Names the phase to blame; by default the chat model of a planner that has one, else rules.
        trials: Most reflections per round, 0 (none) or more. The attempt after the last one stands as it is; so does a
            failed one for which a language model makes no other plan.
        patience: Game steps after which a subgoal counts as not done.
        subgoals_to: As of `Rounds`.
        in_vector: As of `Rounds`.
        watch: As of `Rounds`.
        recover: As of `Rounds`.

    Raises:
        UserError: If the game does not fit or a setting is not allowed.
    """

    def __init__(
        self,
        env: Any,
        player: Player,
        planner: Planner,
        reflector: Reflector | None = None,
        *,
        trials: int = MOST_TRIALS,
        patience: int = PATIENCE,
        recover: str = SNAPSHOT,
        subgoals_to: str | Sequence[str] = ALL,
        in_vector: bool = False,
        watch: Watch | None = None,
    ) -> None:
        check_trials(trials)
        self._rounds = Rounds(
            env,
            player,
            patience=patience,
            recover=recover,
            subgoals_to=subgoals_to,
            in_vector=in_vector,
            watch=watch,
        )
        self.planner = planner
        thinks = thinker(planner)
        by_model = ChatReflector(thinks) if isinstance(thinks, ChatPlanner) else reflect_by_rules
        self.reflector: Reflector = reflector or by_model
        self._trials = trials

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
        """All that may reflect."""
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
