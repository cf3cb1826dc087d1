"""The strategy game as the stages know it that prepare a game for planning."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import numpy as np

from rllib_llm_comm.envs.minirts.commanders import tasks
from rllib_llm_comm.envs.minirts.env import MiniRTS
from rllib_llm_comm.envs.minirts.view import text
from rllib_llm_comm.sama.code_index import CodeIndex
from rllib_llm_comm.sama.games import minirts
from rllib_llm_comm.sama.games.minirts import Moment, StrategyPlanning
from rllib_llm_comm.sama.planning_game import PlanningGame, State
from rllib_llm_comm.sama.played_games import disturbed_game, disturbed_steps
from rllib_llm_comm.sama.preparation import GamePreparation, Transition

_PATIENCE = 20
_MOST_APART = 8
_DRAWN = 0.3
_MUCH_GOLD = 2000


class StrategyPreparation(GamePreparation):
    """Shows the strategy game to the stages.

    States are those of disturbed games: a war cannot be put into any state that somebody thinks of. Actions are
    commands in words already.

    Args:
        game: The game.
    """

    to_tell: ClassVar[str] = (
        "Say how much gold the team has, what each player commands and has given orders for, and what is known of the "
        "enemy."
    )
    to_leave: ClassVar[str] = "counts of ticks, and what has been made so far"

    def __init__(self, game: PlanningGame) -> None:
        super().__init__(game)
        assert isinstance(game, StrategyPlanning)
        self._planned = game
        self._running: Iterator[list[State]] = iter(())

    def code(self) -> CodeIndex:
        """The commands, their words, and the moment as planners see it."""
        return CodeIndex.of_files(Path(str(module.__file__)) for module in (tasks, text, minirts))

    def draw(self, rng: np.random.Generator) -> Moment:
        """A state one to eight decisions after the last one, in a game that goes on from draw to draw."""
        for _ in range(int(rng.integers(1, _MOST_APART + 1))):
            if next(self._running, None) is None or not self.game.env.unwrapped.agents:
                self._running = disturbed_game(self.game, rng, _PATIENCE, subgoals=_DRAWN, actions=0.0)
                next(self._running)
        return self._planned.keep()

    def steps(self, number: int, seed: int = 0) -> Iterator[Transition]:
        """Decisions of commanders who follow commands that are drawn, with much gold, so that they train a lot."""
        rich = MiniRTS(**{**self.game.env.unwrapped.settings, "money": _MUCH_GOLD})
        return disturbed_steps(StrategyPlanning(rich), number, seed, _PATIENCE)
