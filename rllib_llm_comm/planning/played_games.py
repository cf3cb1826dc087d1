"""Games that are played to reach states and steps: scripted players under random subgoals, often disturbed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from rllib_llm_comm.envs.interface import asked
from rllib_llm_comm.planning.planned_env import PlannedSubgoals
from rllib_llm_comm.planning.planning_game import PlanningGame, State
from rllib_llm_comm.planning.preparation import Transition

_SHARE_OF_RANDOM_ACTIONS = 0.3


def disturbed_game(game: PlanningGame, rng: np.random.Generator, patience: int) -> Iterator[list[State]]:
    """One game in which the game's own scripted player follows subgoals that are drawn.

    A share of 0.3 of the actions is drawn, too.

    Args:
        game: The game; its environment is played in.
        rng: Draws everything.
        patience: Game steps after which a subgoal that is not done ends.

    Yields:
        The moments of each step, as of `PlanningGame.passed`; the first has the start alone.
    """
    planner: dict[str, Any] = {"name": "random", "seed": int(rng.integers(2**31))}
    env = PlannedSubgoals(game.env, planner, patience=patience)
    player = game.player()
    memory = player.begin(0)
    observations, infos = env.reset(seed=int(rng.integers(2**31)))
    yield [game.state()]
    while env.agents:
        seen = {agent: observations[agent] for agent in asked(env.agents, infos)}
        actions = player.act(memory, seen)
        for agent in actions:
            if rng.random() < _SHARE_OF_RANDOM_ACTIONS:
                actions[agent] = int(rng.choice(np.flatnonzero(observations[agent]["action_mask"])))
        observations, _, _, _, infos = env.step(actions)
        yield game.passed()


def disturbed_steps(game: PlanningGame, number: int, seed: int, patience: int) -> Iterator[Transition]:
    """Steps of disturbed games, one game after the other.

    Args:
        game: The game; its environment is played in.
        number: Number of steps.
        seed: Of all that is drawn.
        patience: As of `disturbed_game`.
    """
    rng, done = np.random.default_rng(seed), 0
    while done < number:
        for passed in disturbed_game(game, rng, patience):
            for before, after in zip(passed, passed[1:], strict=False):
                if done < number:
                    yield Transition(before, after, game.plain(before), game.plain(after))
                    done += 1
            if done >= number:
                break
