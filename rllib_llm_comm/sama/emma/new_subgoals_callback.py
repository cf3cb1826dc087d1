"""Callback through which the games of running EnvRunners draw subgoals that were added to their data set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ray.rllib.callbacks.callbacks import RLlibCallback

from rllib_llm_comm.envs.overcooked_ai.subgoal_env import SubgoalKitchen
from rllib_llm_comm.sama.planned_env import PlannedSubgoals
from rllib_llm_comm.sama.random_planners import RandomPlanner


class DrawNewSubgoals(RLlibCallback):
    """Shows the states of an EnvRunner's games and lets these draw new subgoals; algorithms add it for `new_subgoals`.

    Games are kitchens that draw subgoals themselves, and games under a planner that draws those of a data set. What was
    added stays for games that are made anew after a failure; new EnvRunners are told by the algorithm.
    """

    def __init__(self) -> None:
        """No games yet."""
        super().__init__()
        self._games: list[Any] = []
        self._texts: list[str] = []
        self._sources: dict[str, str] = {}

    def on_environment_created(self, *, env_runner: Any, env: Any, **kwargs: Any) -> None:
        """Keeps the games and tells them what was added so far."""
        found = [sub.unwrapped.env for sub in env.envs]
        self._games = [game for game in found if isinstance(game.unwrapped, SubgoalKitchen) or _draws(game)]
        self._tell()

    def on_env_runners_recreated(self, *, algorithm: Any, **kwargs: Any) -> None:
        """Has the algorithm tell all EnvRunners, the new ones among them."""
        algorithm.tell_new_subgoals()

    def snapshots(self) -> list[Any]:
        """The states in which the games are; under a planner of those that are not over."""
        kitchens = [game.unwrapped.kitchen.snapshot() for game in self._games if not _draws(game)]
        return kitchens + [game.game.save() for game in self._games if _draws(game) and game.agents]

    def learn(self, texts: Sequence[str], sources: Mapping[str, str]) -> None:
        """Lets all games draw subgoals from now on.

        Args:
            texts: Subgoals in words, all that were added so far.
            sources: Their reward code, where code judges.
        """
        self._texts, self._sources = list(texts), dict(sources)
        self._tell()

    def _tell(self) -> None:
        for game in self._games:
            if _draws(game):
                game.learn(self._texts, self._sources)
                continue
            if self._sources and hasattr(game, "learn"):
                game.learn(self._sources)
            game.unwrapped.draw_also(self._texts)


def _draws(game: Any) -> bool:
    """True for a game under a planner that draws the subgoals of a data set."""
    return isinstance(game, PlannedSubgoals) and isinstance(game.planner, RandomPlanner) and bool(game.planner.subgoals)


def drawing(env_runner: Any) -> DrawNewSubgoals | None:
    """The callback of an EnvRunner, if it has one.

    Args:
        env_runner: The EnvRunner.
    """
    return next((one for one in env_runner._callbacks if isinstance(one, DrawNewSubgoals)), None)
