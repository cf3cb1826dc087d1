"""Cooks of the textual kitchen that do as they are told, by rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.overcooked_text import observation_text
from rllib_llm_comm.envs.overcooked_text.cook_rules import choose
from rllib_llm_comm.envs.overcooked_text.sayings import Saying

_WAIT, _BRING, _CHOP = "wait", "bring", "chop"


class SubgoalKitchen(Protocol):
    """A kitchen in which subgoals can be followed, such as `SaladPlanning`."""

    env: Any

    def meant(self, subgoal: str) -> tuple[str, tuple[str, ...]]:
        """Verb of a subgoal, and the things that it names."""


@dataclass(frozen=True)
class FollowingSaladCooks:
    """Chooses by the rules of the scripted cook as if its subgoal were all that is ordered; sees the whole kitchen.

    It knows nothing of the order. What is chopped already it puts into a bowl if no board is free. Without a subgoal it
    waits where it is, and nobody gets out of another one's way; so each needs a room of its own.

    Attributes:
        game: The kitchen.

    Raises:
        UserError: If the kitchen has primitive actions, or cooks share a room.
    """

    game: SubgoalKitchen

    def __post_init__(self) -> None:
        """Refuses what the rules cannot play."""
        kitchen = self.game.env.unwrapped.kitchen
        if kitchen.map_name != "B" or kitchen.num_agents > 2:
            raise UserError(
                f"`map_name` is {kitchen.map_name!r} and `num_agents` {kitchen.num_agents}, but the cooks that follow "
                "subgoals by rules do not get out of each other's way; take map 'B' with two cooks, or give a "
                "checkpoint."
            )
        if self.game.env.unwrapped.runner.level != "macro":
            raise UserError(
                "`action_level` is 'primitive' but the cooks that follow subgoals by rules choose among macro-actions; "
                "set it to 'macro', or give a checkpoint."
            )

    def begin(self, seed: int) -> None:
        """Nothing is remembered."""

    def act(self, memory: Any, observations: Mapping[Any, Any]) -> dict[Any, int]:
        """The next action of each cook that is asked.

        Args:
            memory: Not used.
            observations: Of the cooks that are asked, with their `subgoal`.
        """
        return {agent: self._action(str(agent), str(seen["subgoal"])) for agent, seen in observations.items()}

    def _action(self, agent: str, subgoal: str) -> int:
        verb, things = self.game.meant(subgoal) if subgoal else (_WAIT, ())
        if verb == _WAIT:
            return 0
        runner, i = self.game.env.unwrapped.runner, observation_text.NAMES.index(agent)
        _, mask = observation_text.candidates(runner, i)
        found = observation_text.options(runner, i)
        allowed = [action for action, offered in enumerate(mask) if offered]
        view = observation_text.view(runner, i, everything=True)
        done = [name for name, food in runner.kitchen.foods.items() if food.chopped]
        view = replace(view, dish=tuple(sorted({*things, *done})) if verb == _CHOP else things)
        asked = [Saying(_BRING, thing) for thing in things] if verb == _BRING else []
        return allowed[choose(view, [found[action] for action in allowed], asked)]
