"""Rounds of an episode (SAMA Section 3.4): a plan followed until its subgoals have ended, and the way back from it.

Two recoveries put the game back to the start of a round: a snapshot of all that it remembers, or a reset with the same
seed and a replay of the actions so far.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rllib_llm_comm.core.errors import UserError, require_choice
from rllib_llm_comm.envs.interface import EPISODE_METRICS, asked, secret_of, solved
from rllib_llm_comm.policies.decision import Memory
from rllib_llm_comm.sama.attempts import Attempt
from rllib_llm_comm.sama.planning_game import planning_game
from rllib_llm_comm.sama.plans import LOST, STUCK, Outcome, Plan
from rllib_llm_comm.sama.player import Player
from rllib_llm_comm.sama.subgoal_observations import ALL, SubgoalTeller
from rllib_llm_comm.sama.tracking import PATIENCE, SubgoalTracker

RECOVERIES = SNAPSHOT, REPLAY = ("snapshot", "replay")

Watch = Callable[[Attempt, Mapping[Any, Any], Mapping[Any, Any], Mapping[Any, float], Mapping[Any, int]], None]
"""Gets the attempt, what all agents see, their infos, what they have earned since the last call, and the actions that
they take now; none at an attempt's end."""


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


@dataclass(frozen=True)
class RoundStart:
    """All that an attempt changes, as it was at the start of a round.

    Attributes:
        steps: Steps of the environment before the round.
        game: The game's snapshot.
        observations: Observations and infos of all agents.
        memory: The player's memory.
        outcomes: Outcomes of the subgoals of earlier rounds.
        plain: The game's state as plain values.
    """

    steps: int
    game: Any
    observations: tuple[Any, Any]
    memory: Any
    outcomes: tuple[Outcome, ...]
    plain: Any


class Rounds:
    """An episode that is played plan by plan, and can be put back to the start of a round.

    Args:
        env: A parallel environment of a game that planners know; not wrapped in `PlannedSubgoals`.
        player: Follows the subgoals.
        patience: Game steps after which a subgoal counts as not done.
        recover: "snapshot": the game is put back exactly; "replay": it is reset with the same seed and the actions
            so far are played again (SAMA), which must lead to the same state.
        subgoals_to: Agents that are told their subgoals: "all", or names.
        in_vector: True if agents read numbers, see `rllib_llm_comm.sama.subgoal_observations.SubgoalTeller`.
        watch: Called before each step of an attempt and once at its end.

    Attributes:
        game: The game as planners know it.
        tracker: The subgoals that agents have, and their outcomes.

    Raises:
        UserError: If the game does not fit or `recover` is not allowed.
    """

    def __init__(
        self,
        env: Any,
        player: Player,
        *,
        patience: int = PATIENCE,
        recover: str = SNAPSHOT,
        subgoals_to: str | Sequence[str] = ALL,
        in_vector: bool = False,
        watch: Watch | None = None,
    ) -> None:
        require_choice("recover", recover, RECOVERIES)
        self._env, self._player = env, player
        self.game = planning_game(env)
        self.tracker = SubgoalTracker(self.game, patience)
        self._teller = SubgoalTeller(self.game, in_vector, subgoals_to)
        self._recover, self._watch = recover, watch

    def begin(self, seed: int) -> None:
        """Begins an episode.

        Args:
            seed: Seed of the game and the player.
        """
        self._seed = seed
        self._observations, self._infos = self._env.reset(seed=seed)
        self._rewards: Mapping[Any, float] = {}
        self._terminated: Mapping[Any, bool] = {}
        self._memory, self._actions = self._player.begin(seed), list[dict[Any, int]]()
        self.tracker.begin()

    @property
    def running(self) -> bool:
        """True until the episode is over."""
        return bool(self._env.agents)

    @property
    def steps(self) -> int:
        """Steps of the environment, those that were put back left out."""
        return len(self._actions)

    @property
    def success(self) -> bool:
        """True if the task was done (`envs.interface.solved`)."""
        return solved(any(self._terminated.values()), self._infos)

    @property
    def metrics(self) -> dict[str, float]:
        """The game's own figures."""
        return {name: value for info in self._infos.values() for name, value in info.get(EPISODE_METRICS, {}).items()}

    def attempt(self, plan: Plan) -> Attempt:
        """Follows a plan until all its subgoals have ended, one has failed, or the time is over.

        Args:
            plan: The plan.
        """
        attempt = Attempt(plan, len(self._actions), returns={str(agent): 0.0 for agent in self._env.possible_agents})
        self.tracker.ended = set(self.game.agents)
        self.tracker.give(plan)
        while self._env.agents and len(self.tracker.ended) < len(self.game.agents):
            self._step(attempt)
            attempt.failed = any(outcome.how in (STUCK, LOST) for outcome in attempt.outcomes)
            if attempt.failed:
                break
        attempt.end = len(self._actions)
        if self._watch is not None:
            self._watch(attempt, self._seen(), self._infos, self._rewards, {})
        return attempt

    def _step(self, attempt: Attempt) -> None:
        seen = self._seen()
        choosing = {agent: seen[agent] for agent in asked(self._env.agents, self._infos)}
        if isinstance(self._memory, Memory):  # of a policy whose messages may be a control
            self._memory.secret = secret_of(self._infos)
        actions = self._player.act(self._memory, choosing)
        if self._watch is not None:
            self._watch(attempt, seen, self._infos, self._rewards, actions)
        self._actions.append(actions)
        self._observations, self._rewards, self._terminated, _, self._infos = self._env.step(actions)
        for agent, reward in self._rewards.items():
            attempt.returns[str(agent)] += float(reward)
        attempt.outcomes += self.tracker.watch(self.game.passed())

    def _seen(self) -> dict[Any, Any]:
        told = self.tracker.told
        return {agent: self._teller.told(agent, seen, told[str(agent)]) for agent, seen in self._observations.items()}

    def save(self) -> RoundStart:
        """All that an attempt changes."""
        return RoundStart(
            steps=len(self._actions),
            game=self.game.save(),
            observations=copy.deepcopy((self._observations, self._infos)),
            memory=copy.deepcopy(self._memory),
            outcomes=tuple(self.tracker.outcomes),
            plain=self.game.plain(self.game.state()),
        )

    def restore(self, start: RoundStart) -> None:
        """Puts the episode back to the start of a round.

        Args:
            start: The start of a round of this episode.

        Raises:
            UserError: If the same actions after the same reset lead elsewhere.
        """
        del self._actions[start.steps :]
        self._rewards = {}
        if self._recover == SNAPSHOT:
            self.game.load(start.game)
            self._observations, self._infos = copy.deepcopy(start.observations)
        else:
            self._replay(start)
        self._memory = copy.deepcopy(start.memory)
        self.tracker.outcomes = list(start.outcomes)

    def _replay(self, start: RoundStart) -> None:
        self._observations, self._infos = self._env.reset(seed=self._seed)
        for actions in self._actions:
            self._observations, _, _, _, self._infos = self._env.step(actions)
        if self.game.plain(self.game.state()) != start.plain:
            raise UserError(
                "`recover` is 'replay', but the same actions after the same reset led elsewhere; use 'snapshot', "
                "or seed all that is random in the environment."
            )
