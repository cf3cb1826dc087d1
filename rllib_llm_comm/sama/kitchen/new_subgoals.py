"""Subgoals that are added to the data set of a kitchen that draws them itself."""

from __future__ import annotations

from typing import Any

from rllib_llm_comm.envs.overcooked_ai.game import ENV_ID
from rllib_llm_comm.sama.new_subgoals import NewSubgoals, NewSubgoalSettings
from rllib_llm_comm.sama.planning_game import PlanningGame


class KitchenSubgoals(NewSubgoals):
    """Asks in states of kitchens that give subgoals themselves, which no planner looks at while agents train.

    Args:
        settings: The settings.
        layout: The kitchen: a name, or rows of one's own.
        path: As of `NewSubgoals`, and the others, too.
        with_code: Whether subgoals are judged by code.
        seed: Of cooks' places in proposed states, and of the steps in which code is compared.

    Raises:
        UserError: If the data set cannot be read.
    """

    def __init__(
        self, settings: NewSubgoalSettings, layout: Any, path: str, *, with_code: bool = False, seed: int = 0
    ) -> None:
        super().__init__(settings, ENV_ID, {"layout": layout}, path, with_code=with_code, seed=seed)

    def put(self, game: PlanningGame, snapshot: Any) -> None:
        """Puts a kitchen into a state of `Kitchen.snapshot`."""
        game.env.unwrapped.kitchen.restore(snapshot)
