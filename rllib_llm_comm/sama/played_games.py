"""Games that are played to reach states and steps: scripted players under subgoals of which many are drawn."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rllib_llm_comm.envs.interface import asked
from rllib_llm_comm.sama.planned_env import PlannedSubgoals
from rllib_llm_comm.sama.planners import ScriptedPlanner
from rllib_llm_comm.sama.planning_game import PlanningGame, State
from rllib_llm_comm.sama.preparation import Transition
from rllib_llm_comm.sama.random_planners import DisturbedPlanner, RandomPlanner

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
        rng: Draws everything.
        patience: Game steps after which a subgoal that is not done ends.
        subgoals: Share of the subgoals that are drawn, 0 to 1.
        actions: Share of the actions that are drawn, 0 to 1.

    Yields:
        The moments of each step, as of `PlanningGame.passed`; the first has the start alone.
    """
    planner = RandomPlanner() if subgoals == 1 else DisturbedPlanner(ScriptedPlanner(), subgoals)
    planner.reseed(int(rng.integers(2**31)))
    env = PlannedSubgoals(game.env, planner, patience=patience)
    player = game.player()
    memory = player.begin(0)
    observations, infos = env.reset(seed=int(rng.integers(2**31)))
    yield [game.state()]
    while env.agents:
        seen = {agent: observations[agent] for agent in asked(env.agents, infos)}
        chosen = player.act(memory, seen)
        for agent in chosen:
            if rng.random() < actions:
                chosen[agent] = int(rng.choice(np.flatnonzero(observations[agent]["action_mask"])))
        observations, _, _, _, infos = env.step(chosen)
        yield game.passed()


def disturbed_steps(game: PlanningGame, number: int, seed: int, patience: int) -> Iterator[Transition]:
    """Steps of disturbed games, one game after the other.

    Args:
        game: The game; its environment is played in.
        number: Number of steps.
        seed: Of all that is drawn.
        patience: Game steps after which a subgoal that is not done ends.
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
