"""Agreement of rewards that were made in different ways: written by hand, written by a model, or judged by one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rllib_llm_comm.envs.overcooked_ai.names import COOKS
from rllib_llm_comm.envs.overcooked_ai.plain_state import plain_state
from rllib_llm_comm.envs.overcooked_ai.planner import ScriptedCooks
from rllib_llm_comm.envs.overcooked_ai.rules import NUM_ACTIONS, Kitchen
from rllib_llm_comm.envs.overcooked_ai.subgoal_env import random_snapshot
from rllib_llm_comm.envs.overcooked_ai.subgoals import Subgoal, completed
from rllib_llm_comm.planning.rewards.reward_code import State, SubgoalReward
from rllib_llm_comm.planning.rewards.sandbox import RefusedCodeError

_SHARE_OF_RANDOM_STEPS = 0.3
_STEPS_FROM_A_START = 60


@dataclass(frozen=True)
class Transition:
    """One step of a kitchen.

    Attributes:
        before: `Kitchen.state` before it.
        after: `Kitchen.state` after it.
        plain_before: The same as plain values.
        plain_after: The same as plain values.
    """

    before: np.ndarray
    after: np.ndarray
    plain_before: State
    plain_after: State


@dataclass(frozen=True)
class Agreement:
    """Comparison of a reward with the hand-written test of the same subgoal.

    Attributes:
        both: Steps in which both say 1.
        neither: Steps in which both say 0.
        missed: Steps in which only the hand-written test says 1.
        false_alarms: Steps in which only the reward says 1.
        refused: Steps in which the reward was refused: it ran into a limit, failed, or returned neither 0 nor 1.
    """

    both: int = 0
    neither: int = 0
    missed: int = 0
    false_alarms: int = 0
    refused: int = 0

    @property
    def steps(self) -> int:
        """Steps looked at."""
        return self.both + self.neither + self.missed + self.false_alarms + self.refused

    @property
    def share(self) -> float:
        """Share of the steps in which both say the same; 1 if there are none."""
        return (self.both + self.neither) / self.steps if self.steps else 1.0

    @property
    def precision(self) -> float:
        """Of the steps in which the reward says 1, the share in which it is right; 1 if there are none."""
        return self.both / (self.both + self.false_alarms) if self.both + self.false_alarms else 1.0

    @property
    def recall(self) -> float:
        """Of the steps in which the subgoal is reached, the share that the reward sees; 1 if there are none.

        Refused steps are left out.
        """
        return self.both / (self.both + self.missed) if self.both + self.missed else 1.0

    def __add__(self, other: Agreement) -> Agreement:
        """The agreement over the steps of both."""
        mine, theirs = vars(self), vars(other)
        return Agreement(**{name: mine[name] + theirs[name] for name in mine})


def kitchen_steps(
    layout: str | Sequence[str], steps: int, seed: int = 0, dynamics: str = "old"
) -> Iterator[Transition]:
    """Steps of games of scripted cooks who are often disturbed, from random legal states.

    Args:
        layout: The kitchen.
        steps: Number of steps.
        seed: Of starts and disturbances.
        dynamics: "old" or "new"; see `rllib_llm_comm.envs.overcooked_ai.rules.Kitchen`.
    """
    rng, kitchen = np.random.default_rng(seed), Kitchen(layout, dynamics)
    cooks = ScriptedCooks(kitchen, seed)
    plain = plain_state(kitchen)
    for number in range(steps):
        if number % _STEPS_FROM_A_START == 0:
            kitchen.restore(random_snapshot(kitchen.layout, dynamics, rng))
            cooks = ScriptedCooks(kitchen, int(rng.integers(2**31)))
            plain = plain_state(kitchen)
        before, plain_before = kitchen.state.copy(), plain
        actions = [
            int(rng.integers(NUM_ACTIONS)) if rng.random() < _SHARE_OF_RANDOM_STEPS else action
            for action in cooks.actions()
        ]
        kitchen.step(actions)
        plain = plain_state(kitchen)
        yield Transition(before, kitchen.state.copy(), plain_before, plain)


def measure_agreement(reward: SubgoalReward, subgoal: Subgoal, transitions: Iterable[Transition]) -> Agreement:
    """Compares a reward with the exact test of a subgoal of the onion-soup kitchen.

    Args:
        reward: The reward.
        subgoal: The subgoal that it is for.
        transitions: Steps of a kitchen that has this subgoal; each is looked at for both cooks.
    """
    counts = dict.fromkeys(Agreement.__dataclass_fields__, 0)
    for step in transitions:
        for player, agent in enumerate(COOKS):
            done = completed(step.before, step.after, player, subgoal)
            counts[_outcome(reward, step, agent, done)] += 1
    return Agreement(**counts)


def _outcome(reward: SubgoalReward, step: Transition, agent: Any, done: bool) -> str:
    try:
        said = reward(step.plain_before, step.plain_after, agent)
    except RefusedCodeError:
        return "refused"
    if done:
        return "both" if said else "missed"
    return "false_alarms" if said else "neither"
