"""Self-reflection with reset-recovery (SAMA Section 3.4): what fails is thought over, undone, and planned anew.

An episode is a chain of rounds. In each, a plan is made and followed until its subgoals have ended. If one was not
done, a reflector names the phase of planning that was at fault, the game is put back to where the round began, and the
planner plans that phase anew, told of all that failed there. Attempts that were put back count for nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rllib_llm_comm.chat.answers import AnswerError
from rllib_llm_comm.chat.usage import ChatCounters, count_scope
from rllib_llm_comm.envs.interface import EPISODE_METRICS, asked, solved
from rllib_llm_comm.errors import UserError, require_choice
from rllib_llm_comm.planning.answer_counts import AnswerCounts
from rllib_llm_comm.planning.answered import ANSWERERS, RULES, Answerer
from rllib_llm_comm.planning.attempts import Attempt
from rllib_llm_comm.planning.chat_planner import ChatPlanner
from rllib_llm_comm.planning.planning_game import planning_game
from rllib_llm_comm.planning.plans import (
    DONE,
    LOST,
    STUCK,
    FailedAttempt,
    Plan,
    Planner,
    PlanRequest,
)
from rllib_llm_comm.planning.player import Player
from rllib_llm_comm.planning.random_planners import thinker
from rllib_llm_comm.planning.reflectors import ChatReflector, Reflector, reflect_by_rules
from rllib_llm_comm.planning.subgoal_observations import SubgoalTeller
from rllib_llm_comm.planning.tracking import PATIENCE, SubgoalTracker

MOST_TRIALS = 3
MOST_REFLECTIONS = 3
RECOVERIES = SNAPSHOT, REPLAY = ("snapshot", "replay")


@dataclass
class ReflectedEpisode:
    """An episode with all its attempts.

    Attributes:
        seed: Seed of the episode.
        returns: What the attempts that were kept brought, per agent.
        steps: Steps of the environment, those that were put back left out.
        success: Whether the task was done (see `envs.interface.solved`).
        metrics: What the game counted itself.
        rounds: The tree of attempts: per round all attempts from the same situation, the last of them kept.
        cost: What was asked.
        answers: Who planned and reflected, also in attempts that were put back.
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
        """How planning went, in figures as of `PlannedSubgoals`; what was put back is in `plans` and costs only."""
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
        }

    @property
    def reflections(self) -> int:
        """How often the game was put back."""
        return sum(len(attempts) - 1 for attempts in self.rounds)

    def to_json(self) -> dict[str, Any]:
        """All of it as plain values, for a log."""
        rounds = [[attempt.to_json() for attempt in attempts] for attempts in self.rounds]
        own = {"cost": self.cost.to_json(), "answers": self.answers.figures(), "reflections": self.reflections}
        return {**vars(self), "rounds": rounds, **own}


Watch = Callable[[Attempt, Mapping[Any, Any], Mapping[Any, Any], Mapping[Any, float], Mapping[Any, int]], None]
"""Gets the attempt, what all agents see, their infos, what they have earned since the last call, and the actions that
they take now; none at an attempt's end."""


def check_trials(trials: object) -> None:
    """Refuses what is no number of reflections.

    Args:
        trials: Most reflections per round.

    Raises:
        UserError: If it is not allowed.
    """
    if isinstance(trials, bool) or not isinstance(trials, int) or trials < 0:
        raise UserError(f"`trials` is {trials!r} but must be a whole number from 0 up.")


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
    require_choice("recover", recover, RECOVERIES)
    if trials is None:
        raise UserError(
            f"`recover` is {recover!r} but `trials` is not set, and without it nothing is put back; set `trials`, too."
        )


class ReflectivePlay:
    """Plays episodes in rounds, with reflection.

    Args:
        env: A parallel environment of a game that planners know; not wrapped in `PlannedSubgoals`.
        player: Who follows the subgoals.
        planner: Who makes the plans.
        reflector: Who thinks failures over; by default the chat model of a planner that has one, else rules.
        trials: Most reflections per round, 0 (none) or more. The attempt after the last one stands as it is; so does a
            failed one for which a language model makes no other plan.
        patience: Game steps after which a subgoal counts as not done.
        in_vector: Whether agents read numbers; see `SubgoalTeller`.
        watch: Called before each step of an attempt and once at its end; see `Watch`.
        recover: "snapshot": the game is put back exactly; "replay": it is reset with the same seed and the actions
            so far are played again (SAMA), which must lead to the same state.

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
        in_vector: bool = False,
        watch: Watch = lambda attempt, seen, infos, rewards, actions: None,
    ) -> None:
        require_choice("recover", recover, RECOVERIES)
        check_trials(trials)
        self.env, self.player, self.planner = env, player, planner
        thinks = thinker(planner)
        by_model = ChatReflector(thinks) if isinstance(thinks, ChatPlanner) else reflect_by_rules
        self.reflector: Reflector = reflector or by_model
        self.game = planning_game(env)
        self.tracker = SubgoalTracker(self.game, patience)
        self._teller = SubgoalTeller(self.game, in_vector)
        self._trials, self._recover, self._watch = trials, recover, watch

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
            self._observations, self._infos = self.env.reset(seed=seed)
            self._rewards: Mapping[Any, float] = {}
            self._terminated: Mapping[Any, bool] = {}
            self._memory, self._actions = self.player.begin(seed), list[dict[Any, int]]()
            self.tracker.begin()
            self.planner.reseed(seed)
            self.planner.begin()
            while self.env.agents:
                episode.rounds.append(self._round(seed, episode.answers))
        for attempts in episode.rounds:
            for agent, earned in attempts[-1].returns.items():
                episode.returns[agent] = episode.returns.get(agent, 0.0) + earned
        episode.steps = len(self._actions)
        episode.success = solved(any(self._terminated.values()), self._infos)
        for info in self._infos.values():
            episode.metrics.update(info.get(EPISODE_METRICS, {}))
        return episode

    def _reflectors(self) -> tuple[Answerer, ...]:
        """All who may reflect."""
        if not self._trials:
            return ()
        return (RULES,) if self.reflector is reflect_by_rules else getattr(self.reflector, "answerers", ANSWERERS)

    def _round(self, seed: int, answers: AnswerCounts) -> list[Attempt]:
        """Attempts from here until one does not fail, there were enough, or there is no other plan."""
        start = self._remember()
        history, state = tuple(self.tracker.outcomes), self.game.state()
        attempts: list[Attempt] = []
        failed: list[FailedAttempt] = []
        request = PlanRequest(self.game, state, outcomes=history)
        plan = self.planner.plan(request)
        while True:
            answers.add_plan(plan)
            attempt = self._attempt(plan)
            attempts.append(attempt)
            if not attempt.failed or len(failed) >= self._trials:
                return attempts
            try:
                attempt.reflection = blamed = self.reflector(request, attempt.plan, attempt.outcomes)
                answers.add_reflection(blamed)
                undone = tuple(outcome.agent for outcome in attempt.outcomes if outcome.how in (STUCK, LOST))
                failed.append(FailedAttempt(attempt.plan, blamed.phase, blamed.why, undone))
                request = replace(request, failed=tuple(failed[-MOST_REFLECTIONS:]))
                plan = self.planner.plan(request)
            except AnswerError as error:  # nothing is put back yet, so nothing is lost
                attempt.unplanned = str(error)
                return attempts
            attempt.kept = False
            self._put_back(start, seed)

    def _attempt(self, plan: Plan) -> Attempt:
        """Follows a plan until all its subgoals have ended, one has failed, or the time is over."""
        attempt = Attempt(plan, len(self._actions), returns={str(agent): 0.0 for agent in self.env.possible_agents})
        self.tracker.ended = set(self.game.agents)
        self.tracker.give(plan)
        while self.env.agents and len(self.tracker.ended) < len(self.game.agents):
            self._step(attempt)
            attempt.failed = any(outcome.how in (STUCK, LOST) for outcome in attempt.outcomes)
            if attempt.failed:
                break
        attempt.end = len(self._actions)
        self._watch(attempt, self._seen(), self._infos, self._rewards, {})
        return attempt

    def _step(self, attempt: Attempt) -> None:
        seen = self._seen()
        choosing = {agent: seen[agent] for agent in asked(self.env.agents, self._infos)}
        actions = self.player.act(self._memory, choosing)
        self._watch(attempt, seen, self._infos, self._rewards, actions)
        self._actions.append(actions)
        self._observations, self._rewards, self._terminated, _, self._infos = self.env.step(actions)
        for agent, reward in self._rewards.items():
            attempt.returns[str(agent)] += float(reward)
        attempt.outcomes += self.tracker.watch(self.game.passed())

    def _seen(self) -> dict[Any, Any]:
        told = self.tracker.told
        return {agent: self._teller.told(seen, told[str(agent)]) for agent, seen in self._observations.items()}

    # ---- to and fro --------------------------------------------------------------------------------------

    def _remember(self) -> dict[str, Any]:
        """All that an attempt changes."""
        return {
            "steps": len(self._actions),
            "game": self.game.save(),
            "seen": copy.deepcopy((self._observations, self._infos)),
            "memory": copy.deepcopy(self._memory),
            "outcomes": list(self.tracker.outcomes),
            "plain": self.game.plain(self.game.state()),
        }

    def _put_back(self, start: dict[str, Any], seed: int) -> None:
        del self._actions[start["steps"] :]
        self._rewards = {}
        if self._recover == SNAPSHOT:
            self.game.load(start["game"])
            self._observations, self._infos = copy.deepcopy(start["seen"])
        else:
            self._observations, self._infos = self.env.reset(seed=seed)
            for actions in self._actions:
                self._observations, _, _, _, self._infos = self.env.step(actions)
            if self.game.plain(self.game.state()) != start["plain"]:
                raise UserError(
                    "`recover` is 'replay', but the same actions after the same reset led elsewhere; use 'snapshot', "
                    "or seed all that is random in the environment."
                )
        self._memory = copy.deepcopy(start["memory"])
        self.tracker.outcomes = list(start["outcomes"])
