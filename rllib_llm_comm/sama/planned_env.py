"""A game in which a planner tells every agent what to do, and games with their own subgoals under other judges."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from itertools import chain, count, islice, pairwise
from typing import Any

import gymnasium as gym
import numpy as np
from pettingzoo import ParallelEnv
from pettingzoo.utils import BaseParallelWrapper

from rllib_llm_comm.chat.chat_model import ChatCounters, ChatError, count_scope
from rllib_llm_comm.core.errors import UserError, require_choice
from rllib_llm_comm.envs.interface import STEP_REWARDS, SUBGOAL, with_figures
from rllib_llm_comm.policies.planning_settings import ALL, PlanningSettings
from rllib_llm_comm.policies.play_loop import PlayedGame
from rllib_llm_comm.sama.planners import make_planner
from rllib_llm_comm.sama.planners.baselines import DisturbedPlanner, RandomPlanner, ScriptedPlanner
from rllib_llm_comm.sama.planning_game import PlanningGame, State, planning_game
from rllib_llm_comm.sama.plans import (
    DONE,
    LOST,
    REMEMBERED,
    STUCK,
    WAITED,
    AnswerCounts,
    Attempt,
    Outcome,
    Plan,
    Planner,
    PlanRequest,
    made_plan,
    no_plan,
    subgoal_figures,
)
from rllib_llm_comm.sama.preparation import Transition
from rllib_llm_comm.sama.rewards.subgoal_rewards import EXACT, SubgoalRewards, make_rewards

# ---- following of subgoals --------------------------------------------------------------------------------------


PATIENCE: int = PlanningSettings.defaults()["patience"]
WAITING = 5

Done = Callable[[State, State, str, str], bool]
"""Test of a subgoal, true if an agent has done it: before, after, agent, subgoal."""


class SubgoalTracker:
    """Watches the agents' subgoals step by step.

    A subgoal ends when it is done, when it has not been done for `patience` game steps, or when the agent cannot set
    about it any more. One that asks an agent to stay as it is ends as `WAITED` after `WAITING` game steps.

    Args:
        patience: Game steps, >= 1.
        done: Says when a subgoal is done; by default the game does.

    Attributes:
        told: The subgoal of each agent, also after it has ended; empty before the first plan.
        ended: Agents whose subgoals have ended, and those that have none yet.
        outcomes: Ends of the last subgoals of this episode.
        given: Number of subgoals that were given in this episode.
        ends: Number of those with each end.
    """

    def __init__(self, game: PlanningGame, patience: int = PATIENCE, done: Done | None = None) -> None:
        self.game, self.patience = game, patience
        self._done = done or game.done
        self.begin()

    def begin(self) -> None:
        """Begins an episode."""
        agents = self.game.agents
        self.told = dict.fromkeys(agents, "")
        self.ended = set(agents)
        self.outcomes: list[Outcome] = []
        self.given = 0
        self.ends: Counter[str] = Counter()
        self._age = dict.fromkeys(agents, 0)

    def current(self) -> dict[str, str]:
        """The subgoals that have not ended; empty words for the other agents."""
        return {agent: "" if agent in self.ended else subgoal for agent, subgoal in self.told.items()}

    def give(self, plan: Plan) -> None:
        """Gives out what a plan says; an agent whose subgoal stays the same and has not ended goes on with it.

        Agents that are left to themselves have none, which never ends.
        """
        if plan.alone:
            self.told, self.ended = dict.fromkeys(self.told, ""), set()
            return
        for agent, subgoal in plan.by_agent().items():
            if agent in self.ended or self.told[agent] != subgoal:
                self.told[agent], self._age[agent] = subgoal, 0
                self.ended.discard(agent)
                self.given += 1

    def watch(self, passed: list[State]) -> list[Outcome]:
        """Looks at what a `step` of the game has brought.

        Args:
            passed: Result of `PlanningGame.passed` after it.

        Returns:
            The subgoals that have ended in it.
        """
        ended = []
        for number, (before, after) in enumerate(pairwise(passed)):
            for agent, subgoal in self.told.items():
                how = "" if agent in self.ended else self._end(before, after, agent, subgoal)
                if how:
                    self.ended.add(agent)
                    ended.append(Outcome(agent, subgoal, how, number))
        for outcome in ended:
            self.ends[outcome.how] += 1
        self.outcomes = [*self.outcomes, *ended][-REMEMBERED:]
        return ended

    def _end(self, before: State, after: State, agent: str, subgoal: str) -> str:
        if not subgoal:
            return ""
        self._age[agent] += 1
        if self._done(before, after, agent, subgoal):
            return DONE
        if self.game.waits(after, agent, subgoal):
            return WAITED if self._age[agent] >= WAITING else ""
        if self.game.refusal(after, agent, subgoal):
            return LOST
        return STUCK if self._age[agent] >= self.patience else ""


VECTOR = "vector"


class SubgoalTeller:
    """Writes subgoals into observations: as the text `subgoal`, and for agents that read numbers behind `vector`.

    Args:
        game: The game; its observations have the text `subgoal`, or for `in_vector` the Box `vector`.
        in_vector: Whether `vector` gets one number more per subgoal of the game: 1 for the agent's own, else 0.
        to: Agents that are told their subgoals: "all", or a list of names.

    Raises:
        UserError: If `to` is not allowed, or the observations have no place for subgoals, or have subgoals of the
            game's own.
    """

    def __init__(self, game: PlanningGame, in_vector: bool = False, to: str | Sequence[str] = ALL) -> None:
        for name in () if to == ALL else to:
            require_choice("subgoals_to", name, game.agents)
        self._env, self._in_vector = game.env, in_vector
        self._to = frozenset(game.agents if to == ALL else to)
        known = [subgoal for agent in game.agents for subgoal in game.library(agent)] if in_vector else []
        self._numbers = {subgoal: number for number, subgoal in enumerate(dict.fromkeys(known))}
        for agent in self._env.possible_agents:
            _check(agent, self._env.observation_space(agent), in_vector)

    def space(self, agent: Any) -> gym.Space:
        """The space of what an agent is told and sees."""
        space = self._env.observation_space(agent)
        if not self._in_vector:
            return space
        box, more = space.spaces[VECTOR], len(self._numbers)
        low, high = np.append(box.low, np.zeros(more)), np.append(box.high, np.ones(more))
        longer = gym.spaces.Box(low.astype(box.dtype), high.astype(box.dtype), dtype=box.dtype)
        return gym.spaces.Dict({**space.spaces, VECTOR: longer})

    def tells(self, agent: Any) -> bool:
        """True if an agent is told its subgoals."""
        return str(agent) in self._to

    def words(self, agent: Any, planned: str) -> str:
        """The text `subgoal` of an agent; empty if it is told none."""
        return planned if self.tells(agent) else ""

    def told(self, observations: Mapping[Any, Mapping[str, Any]], planned: Mapping[str, str]) -> dict[Any, Any]:
        """The observations of agents with the subgoals that they are told."""
        return {agent: self._told(seen, self.words(agent, planned[str(agent)])) for agent, seen in observations.items()}

    def _told(self, seen: Mapping[str, Any], subgoal: str) -> dict[str, Any]:
        said = dict(seen)
        if SUBGOAL in said:
            said[SUBGOAL] = subgoal
        if self._in_vector:
            own = np.zeros(len(self._numbers), said[VECTOR].dtype)
            if subgoal in self._numbers:
                own[self._numbers[subgoal]] = 1
            said[VECTOR] = np.append(said[VECTOR], own)
        return said


def _check(agent: Any, space: gym.Space, in_vector: bool) -> None:
    parts = space.spaces if isinstance(space, gym.spaces.Dict) else {}
    if "subgoal_id" in parts:
        raise UserError(
            "The environment gives subgoals itself, so that no planner can; use the game without them, such as "
            "'rllib_llm_comm/overcooked_ai-v0'."
        )
    if in_vector:
        box = parts.get(VECTOR)
        if not isinstance(box, gym.spaces.Box) or len(box.shape) != 1:
            raise UserError(
                f"The observations of {agent!r} have no row of numbers `{VECTOR}` behind which a planner could write; "
                "let the environment observe 'vector'."
            )
    elif SUBGOAL not in parts:
        raise UserError(
            f"The observations of {agent!r} have no `{SUBGOAL}` that a planner could fill; let the environment observe "
            "'text' or 'entities'."
        )


# ---- the planned game -------------------------------------------------------------------------------------------


class RewardCounts:
    """Judges the subgoals of one episode and counts who judged."""

    def __init__(self, rewards: SubgoalRewards) -> None:
        self._rewards = rewards
        self._differing = 0
        self._by = dict.fromkeys(rewards.judges, 0)

    def done(self, game: PlanningGame, before: State, after: State, agent: str, subgoal: str) -> bool:
        """True if the judge says that an agent has done a subgoal in one game step."""
        done, who = self._rewards.judged(game, before, after, agent, subgoal)
        if self._rewards.name != EXACT:
            self._differing += done != game.done(before, after, agent, subgoal)
            self._by[who] = self._by.get(who, 0) + 1
        return done

    def figures(self) -> dict[str, float]:
        """The counts as metrics of an episode; none for the exact tests."""
        if self._rewards.name == EXACT:
            return {}
        return {
            "rewards_differing": float(self._differing),
            "rewards_refused": float(self._rewards.refused),
            **{f"judgements_by_{who}": float(count) for who, count in self._by.items()},
        }


class JudgedSubgoals(BaseParallelWrapper):
    """A game that gives subgoals itself, with somebody else who says when they are done, and who judged in its metrics.

    Args:
        env: The game; changed.
        rewards: Judge of the subgoals. Its code for a subgoal is made when it first occurs, and the game waits for it.

    Attributes:
        learn: Takes code for subgoals that had none, as `SubgoalRewards.learn`.

    Raises:
        UserError: If the game gives no subgoals.
    """

    def __init__(self, env: Any, rewards: SubgoalRewards) -> None:
        super().__init__(env)
        self._rewards, self._counts = rewards, RewardCounts(rewards)
        self.learn = rewards.learn
        game = planning_game(env)

        def done(before: State, after: State, agent: str, subgoal: str) -> bool:
            rewards.prepare(game, before, agent, subgoal)
            return self._counts.done(game, before, after, agent, subgoal)

        game.judge_own_subgoals(done)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Begins an episode."""
        self._counts = RewardCounts(self._rewards)
        observations, infos = self.env.reset(seed=seed, options=options)
        return observations, with_figures(infos, self._counts.figures())

    def step(self, actions: dict[Any, Any]) -> Any:
        """One step of the game."""
        *rest, infos = self.env.step(actions)
        return (*rest, with_figures(infos, self._counts.figures()))


logger = logging.getLogger(__name__)


class PlannedSubgoals(BaseParallelWrapper):
    """Fills the observations' field `subgoal` with what a planner wants, and rewards what is done of it.

    It plans at the start of an episode and whenever subgoals have ended. A slow planner (one that waits for a server)
    thinks in a thread: the game goes on, with the subgoals as they were and none at first, until the plan is there. If
    a language model gives no usable answer, the agents keep their subgoals, and it is asked again after `patience` game
    steps.

    Args:
        env: A parallel environment of a game that planners know, whose observations have the text `subgoal`.
        planner: See `rllib_llm_comm.sama.planners.make_planner`.
        subgoal_rewards: Judge of the subgoals: see `rllib_llm_comm.sama.rewards.subgoal_rewards.make_rewards`.
        in_vector: Whether agents read numbers: their subgoals then stand behind `vector`, too; see `SubgoalTeller`.
        threads: Threads of slow planners; by default one thread of this environment.
        **settings: The other settings of `PlanningSettings`.

    Attributes:
        plan: The latest plan; `None` before the first.
        attempts: All plans of this episode, and how their subgoals ended.
        tracker: Tracker of the subgoals.
        cost: Counts of the questions of this episode.

    Raises:
        UserError: If the game does not fit or a setting is not allowed.
    """

    def __init__(
        self,
        env: ParallelEnv,
        planner: str | Mapping[str, Any] | Planner = "scripted",
        *,
        subgoal_rewards: str | Mapping[str, Any] | SubgoalRewards = EXACT,
        in_vector: bool = False,
        threads: Executor | None = None,
        **settings: Any,
    ) -> None:
        given = PlanningSettings(**settings)
        super().__init__(env)
        self.game = planning_game(env)
        self._teller = SubgoalTeller(self.game, in_vector, given.subgoals_to)
        self.planner = make_planner(planner)
        self.planner.check_game(self.game)
        self.rewards = make_rewards(subgoal_rewards)
        self.tracker = SubgoalTracker(self.game, given.patience, self._done)
        self._reward, self._replan = given.subgoal_reward, given.replan
        self._wait = not (self.planner.slow or self.rewards.slow) if given.wait is None else given.wait
        self._threads, self._own_threads = threads, threads is None
        self._pending: Future[Plan] | None = None
        self._stale: Future[Plan] | None = None
        self._clear()

    def observation_space(self, agent: Any) -> gym.Space:
        """Observation space of the game; with `in_vector` one with a longer `vector`."""
        return self._teller.space(agent)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Begins an episode, with a plan."""
        observations, infos = self.env.reset(seed=seed, options=options)
        self._clear()
        if seed is not None and self._stale is None:
            self.planner.reseed(seed)
        self._ask()
        return self._teller.told(observations, self.tracker.told), with_figures(infos, self.figures())

    def step(self, actions: dict[Any, Any]) -> Any:
        """One step of the game."""
        observations, rewards, terminations, truncations, infos = self.env.step(actions)
        if not observations:
            return observations, rewards, terminations, truncations, infos
        passed = self.game.passed()
        outcomes = self.tracker.watch(passed)
        self._steps += 1
        self._note(outcomes, rewards)
        rewards, infos = self._rewarded(outcomes, rewards, infos)
        self._retry -= len(passed) - 1
        self._take()
        if self.agents and self._pending is None and self._retry <= 0 and self._due():
            self._ask()
        told = self._teller.told(observations, self.tracker.told)
        return told, rewards, terminations, truncations, with_figures(infos, self.figures())

    def close(self) -> None:
        """Ends the planner's thread and the game; a request that is under way is not waited for."""
        self._forget()
        if self._own_threads and self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._threads = None
        self.env.close()

    def learn(self, texts: Sequence[str], sources: Mapping[str, str]) -> None:
        """Lets a planner that draws the subgoals of a data set draw others, too.

        Args:
            sources: Their reward code, where code judges.
        """
        if isinstance(self.planner, RandomPlanner):
            self.planner.draw_also(texts)
        self.rewards.learn(sources)

    def subgoal_of(self, agent: Any) -> str:
        """The text `subgoal` of an agent's observation now."""
        return self._teller.words(agent, self.tracker.told[str(agent)])

    def require_plan(self) -> None:
        """Refuses an episode in which each plan that was asked for has failed: it tells nothing of the planner.

        Raises:
            UserError: If this one is such.
        """
        if self.plan is None and self._failure is not None:
            raise no_plan(self._failure)

    # ---- planning ----------------------------------------------------------------------------------------

    def _clear(self) -> None:
        self._forget()
        self.tracker.begin()
        self._begun = False
        self.plan: Plan | None = None
        self.attempts: list[Attempt] = []
        self.cost = ChatCounters()
        self._failure: ChatError | None = None
        self._plans = self._kept = self._failures = self._refused = self._steps = 0
        self._answers, self._judged = AnswerCounts(self.planner.answerers), RewardCounts(self.rewards)
        self._retry = 0

    def _forget(self) -> None:
        """Gives up a plan that is being made for an episode that is over.

        Its planner may still wait for a server, and keeps a memory; so nothing else is asked before it is back.
        """
        if self._pending is not None and not self._pending.cancel() and not self._pending.done():
            self._stale = self._pending
        self._pending = None

    def _due(self) -> bool:
        ended = self.tracker.ended
        return bool(ended) if self._replan == "any" else len(ended) == len(self.game.agents)

    def _ask(self) -> None:
        if self._stale is not None and not self._stale.done():
            return
        self._stale = None
        if not self._begun:
            self.planner.begin()
            self._begun = True
        request = PlanRequest(self.game, self.game.state(), self.tracker.current(), tuple(self.tracker.outcomes))
        if self._wait:
            done: Future[Plan] = Future()
            try:
                done.set_result(self._make(request, self.cost))
            except (ChatError, UserError) as error:
                done.set_exception(error)
            self._pending = done
            self._take()
            return
        if self._threads is None:
            self._threads = ThreadPoolExecutor(1, thread_name_prefix="planner")
        self._pending = self._threads.submit(self._make, request, self.cost)

    def _make(self, request: PlanRequest, cost: ChatCounters) -> Plan:
        """Makes a plan and what is needed to reward it, and books what that costs; may run in a thread."""
        with count_scope(cost):
            plan = made_plan(self.planner, request)
            for agent, subgoal in plan.by_agent().items():
                self.rewards.prepare(self.game, request.state, agent, subgoal)
            return plan

    def _take(self) -> None:
        """Gives out a plan that is ready."""
        if self._pending is None or not self._pending.done():
            return
        pending, self._pending = self._pending, None
        try:
            self.plan = pending.result()
        except ChatError as error:
            logger.warning("The planner made no plan (%s); the agents keep their subgoals.", error)
            self._failures += 1
            self._failure = error
            self._retry = self.tracker.patience
            return
        self._plans += 1
        self._kept += self.plan.kept
        self._answers.add_plan(self.plan)
        self._refused += len(self.plan.refused)
        self.tracker.give(self.plan)
        nothing = {str(agent): 0.0 for agent in self.possible_agents}
        self.attempts.append(Attempt(self.plan, self._steps, self._steps, returns=nothing))

    def _done(self, before: State, after: State, agent: str, subgoal: str) -> bool:
        return self._judged.done(self.game, before, after, agent, subgoal)

    def _note(self, outcomes: list[Outcome], rewards: Mapping[Any, float]) -> None:
        """Writes down what came of the latest plan; rewards are the game's own."""
        if not self.attempts:
            return
        latest = self.attempts[-1]
        latest.end = self._steps
        latest.outcomes += outcomes
        latest.failed |= any(outcome.how in (STUCK, LOST) for outcome in outcomes)
        for agent, earned in rewards.items():
            latest.returns[str(agent)] += float(earned)

    # ---- what agents get ---------------------------------------------------------------------------------

    def _rewarded(
        self, outcomes: list[Outcome], rewards: Mapping[Any, float], infos: Mapping[Any, dict[str, Any]]
    ) -> tuple[dict[Any, float], dict[Any, dict[str, Any]]]:
        """Rewards with those for subgoals, in the game step in which they were done."""
        earned, told = dict(rewards), {agent: dict(info) for agent, info in infos.items()}
        for agent in filter(self._teller.tells, earned):
            done = [one.game_step for one in outcomes if one.agent == str(agent) and one.how == DONE]
            earned[agent] = earned[agent] + self._reward * len(done)
            if STEP_REWARDS in told.get(agent, {}):
                steps = list(told[agent][STEP_REWARDS])
                for number in done:
                    steps[number] += self._reward
                told[agent][STEP_REWARDS] = steps
        return earned, told

    def figures(self) -> dict[str, float]:
        """Counts of this episode, by their names in `episode_metrics`."""
        return {
            "plans": float(self._plans),
            "plans_kept": float(self._kept),
            "plans_failed": float(self._failures),
            **self._answers.figures(),
            **subgoal_figures(self.tracker.given, self.tracker.ends),
            "subgoals_refused": float(self._refused),
            **cost_figures(self.cost),
            **self._judged.figures(),
        }


def cost_figures(cost: ChatCounters) -> dict[str, float]:
    """What the questions of an episode have cost, by their names in `episode_metrics`."""
    return {
        "plan_questions": float(cost.questions),
        "plan_requests": float(cost.requests),
        "plan_tokens": float(cost.input_tokens + cost.output_tokens),
        "plan_cost": float(cost.cost),
        "plan_seconds": float(cost.seconds),
    }


_SHARE_OF_RANDOM_ACTIONS = 0.3


def disturbed_game(
    game: PlanningGame,
    rng: np.random.Generator,
    patience: int,
    *,
    subgoals: float = 1.0,
    actions: float = _SHARE_OF_RANDOM_ACTIONS,
) -> Iterator[list[State]]:
    """One game in which the game's own scripted player follows the game's own rules, often disturbed.

    Args:
        game: The game; its environment is played in.
        patience: Game steps after which a subgoal that is not done ends.
        subgoals: Share of the subgoals that are drawn, 0 to 1.
        actions: Share of the actions that are drawn, 0 to 1.

    Yields:
        The moments of each step, as of `PlanningGame.passed`; the first has the start alone.
    """
    planner = RandomPlanner() if subgoals == 1 else DisturbedPlanner(ScriptedPlanner(), share=subgoals)
    planner.reseed(int(rng.integers(2**31)))
    env = PlannedSubgoals(game.env, planner, patience=patience)
    player = game.player()
    played = PlayedGame(env, int(rng.integers(2**31)), reads=False)  # the game's own player looks at the game
    yield [game.state()]
    while not played.over:
        chosen = player.actions({agent: played.observations[agent] for agent in played.asked})
        for agent in chosen:
            if rng.random() < actions:
                chosen[agent] = int(rng.choice(np.flatnonzero(played.observations[agent]["action_mask"])))
        played.advance(chosen)
        yield game.passed()


def disturbed_steps(game: PlanningGame, number: int, seed: int, patience: int) -> Iterator[Transition]:
    """Steps of disturbed games, one game after the other.

    Args:
        game: The game; its environment is played in.
        seed: Of all that is drawn.
        patience: Game steps after which a subgoal that is not done ends.
    """
    rng = np.random.default_rng(seed)
    passed = chain.from_iterable(disturbed_game(game, rng, patience) for _ in count())
    for before, after in islice(chain.from_iterable(map(pairwise, passed)), number):
        yield Transition(before, after, game.plain(before), game.plain(after))
