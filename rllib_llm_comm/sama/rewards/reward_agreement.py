"""Agreement of rewards that were made in different ways: written by hand, written by a model, or judged by one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rllib_llm_comm.sama.planning_game import PlanningGame
from rllib_llm_comm.sama.preparation import Transition
from rllib_llm_comm.sama.rewards.reward_code import State, SubgoalReward
from rllib_llm_comm.sama.rewards.sandbox import RefusedCodeError
from rllib_llm_comm.sama.subgoal_starts import SubgoalStarts


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


def measure_agreement(
    reward: SubgoalReward, game: PlanningGame, subgoal: str, transitions: Iterable[Transition]
) -> Agreement:
    """Compares a reward with the exact test of a subgoal.

    Args:
        reward: The reward.
        game: The game.
        subgoal: The subgoal that the reward is for, in the words of the game's library.
        transitions: Steps of a game that has this subgoal, one after the other; each is looked at for all agents.
    """
    counts, starts = dict.fromkeys(Agreement.__dataclass_fields__, 0), SubgoalStarts()
    for step in transitions:
        for agent in game.agents:
            start = (
                game.plain(starts.of(game.same_moment, step.before, step.after, agent, subgoal))
                if game.counts_since
                else None
            )
            done = game.done(step.before, step.after, agent, subgoal)
            if done:
                starts.end(agent)
            counts[_outcome(reward, step, agent, start, done)] += 1
    return Agreement(**counts)


def _outcome(reward: SubgoalReward, step: Transition, agent: str, start: State | None, done: bool) -> str:
    try:
        said = reward(step.plain_before, step.plain_after, agent, start)
    except RefusedCodeError:
        return "refused"
    if done:
        return "both" if said else "missed"
    return "false_alarms" if said else "neither"
