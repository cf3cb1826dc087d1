"""Cooks that do as they are told, by rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from rllib_llm_comm.envs.overcooked_ai.scripted_player import towards
from rllib_llm_comm.envs.overcooked_ai.subgoals import GO, Subgoal
from rllib_llm_comm.sama.planning_game import State


class SubgoalKitchen(Protocol):
    """A kitchen in which subgoals can be followed, such as `KitchenPlanning`."""

    env: Any

    def state(self) -> State:
        """The moment that the game is in."""

    def refusal(self, state: State, agent: str, subgoal: str) -> str:
        """The reason why a subgoal cannot be pursued now; empty if it can."""

    def meant(self, subgoal: str) -> Subgoal:
        """A subgoal as the game knows it."""


@dataclass(frozen=True)
class FollowingCooks:
    """Goes where its subgoal is to be done and does it, then stays; knows nothing of soups.

    A cook that cannot do its subgoal now, because it has done it, or because a thing is gone, stays where it is. Who
    has to fill a dish waits beside the pot until the soup is ready. With `action_level="goal"` a cook that has to go
    somewhere waits, as floor is no goal there.

    Attributes:
        game: The kitchen.
    """

    game: SubgoalKitchen

    def begin(self, seed: int) -> None:
        """Nothing is remembered; the walkers of the game have their own random steps."""

    def act(self, memory: Any, observations: Mapping[Any, Any]) -> dict[Any, int]:
        """The next action of each cook that is asked.

        Args:
            memory: Not used.
            observations: Of the cooks that are asked, with their `subgoal`.
        """
        return {agent: self._action(str(agent), str(seen["subgoal"])) for agent, seen in observations.items()}

    def _action(self, agent: str, subgoal: str) -> int:
        env, state = self.game.env.unwrapped, self.game.state()
        here = env.kitchen.cook(env.players[agent]).cell
        if not subgoal or self.game.refusal(state, agent, subgoal):
            return towards(env, agent, here, waits=True)
        meant = self.game.meant(subgoal)
        return towards(env, agent, meant.cell, waits=meant.verb == GO)
