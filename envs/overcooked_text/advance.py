"""Game steps of one `step` of the environment: a single one, or as many as pass until a decision is due."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rllib_llm_comm.envs.overcooked_text.macro_execution import MacroRunner
from rllib_llm_comm.envs.overcooked_text.moments import Moment, moment
from rllib_llm_comm.envs.overcooked_text.primitive import PrimitiveRunner

GAME_STEP = "game_step"


class Passed(NamedTuple):
    """Results of the game steps that have passed.

    Attributes:
        rewards: Per agent the reward of each game step.
        events: Per agent its events, in words.
        blocked: Numbers of the agents that had a collision.
        done: True if the last order was served.
        over: True if the episode has ended, by that or by the time limit.
        moments: Moment before the game steps and those after each of them, if they are kept.
    """

    rewards: list[list[float]]
    events: list[list[str]]
    blocked: frozenset[int]
    done: bool
    over: bool
    moments: list[Moment]


def advance(
    runner: MacroRunner | PrimitiveRunner,
    chosen: Sequence[int | None],
    until: str,
    max_game_steps: int,
    watched: bool = False,
) -> Passed:
    """Runs game steps.

    Args:
        runner: Carries out the actions.
        chosen: Action of each agent, or `None` where it needs none.
        until: `"game_step"`: one game step; `"decision"`: until at least one agent needs an action.
        max_game_steps: Time limit of the episode.
        watched: Whether the moments are kept.
    """
    rewards: list[list[float]] = [[] for _ in chosen]
    events: list[list[str]] = [[] for _ in chosen]
    blocked: set[int] = set()
    moments = [moment(runner.kitchen)] if watched else []
    while True:
        outcome = runner.step(chosen)
        for i, reward in enumerate(outcome.rewards):
            rewards[i].append(reward)
            events[i] += outcome.events[i]
        if outcome.blocked:
            blocked.update(outcome.blocked)
        if watched:
            moments.append(moment(runner.kitchen, outcome.events))
        over = outcome.done or runner.kitchen.game_step >= max_game_steps
        if over or until == GAME_STEP or True in runner.finished:
            return Passed(rewards, events, frozenset(blocked), outcome.done, over, moments)
