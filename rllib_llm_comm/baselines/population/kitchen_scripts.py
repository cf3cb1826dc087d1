"""Scripted cooks at the tables of many onion-soup games: the planner's tasks, one game after the other in Python."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rllib_llm_comm.envs.overcooked_ai.batch import KitchenBatch
from rllib_llm_comm.envs.overcooked_ai.planner import plan
from rllib_llm_comm.envs.overcooked_ai.rules import Kitchen
from rllib_llm_comm.envs.overcooked_ai.walker import Walker


@dataclass
class _Cook:
    kitchen: Kitchen
    player: int
    walker: Walker


class ScriptedCooks:
    """The scripted player of single games, which plans anew in every step; many times slower than a network.

    Args:
        games: The games; the scripts look at their states and change none.

    Raises:
        UserError: If the kitchen is none that the planner knows.
    """

    def __init__(self, games: KitchenBatch) -> None:
        games.layout.require_classic("Scripted partners")
        self._games = games
        self._cooks: dict[int, _Cook] = {}

    def begin(self, game: int, player: int, rng: np.random.Generator) -> None:
        """Takes a seat in a game that begins.

        Args:
            game: Number of the game.
            player: The cook, 0 or 1.
            rng: Gives the seed of the random steps of cooks that block each other.
        """
        kitchen = self._cooks[game].kitchen if game in self._cooks else self._kitchen()
        walker = Walker(kitchen, player)
        walker.reset(np.random.default_rng(int(rng.integers(2**31))))
        self._cooks[game] = _Cook(kitchen, player, walker)

    def _kitchen(self) -> Kitchen:
        return Kitchen(self._games.layout, self._games.dynamics, self._games.horizon)

    def action(self, game: int) -> int:
        """The next action in a game.

        Args:
            game: Number of the game.
        """
        cook = self._cooks[game]
        cook.kitchen.state = self._games.states[game]
        return cook.walker.action(plan(cook.kitchen)[cook.player].cell)
