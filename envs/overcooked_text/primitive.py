"""Primitive actions behind the same interface as the macro-actions of `macro_execution.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rllib_llm_comm.envs.overcooked_text.effects import Effect, StepOutcome
from rllib_llm_comm.envs.overcooked_text.episodes import Setup
from rllib_llm_comm.envs.overcooked_text.layouts import MOVES, STAY
from rllib_llm_comm.envs.overcooked_text.rules import Kitchen


class PrimitiveRunner:
    """Every action lasts one game step: right, down, left, up, stay.

    Attributes:
        kitchen: The kitchen.
        names: Names of the actions.
        macros: The same, under the name that the actions have in `MacroRunner`.
        current: Per agent the last action, None at the start.
        finished: Per agent whether it needs a new action: always.
    """

    level = "primitive"
    names = (*MOVES, "stay")
    macros = names

    def __init__(self, kitchen: Kitchen) -> None:
        """Takes over a kitchen in any state."""
        self.kitchen = kitchen
        self.finished = [True] * kitchen.num_agents
        self.current: list[int | None] = [None] * kitchen.num_agents

    @property
    def num_actions(self) -> int:
        """Number of actions."""
        return len(self.names)

    def reset(self, setup: Setup | None = None) -> None:
        """Starts a new episode, with another setup if one is given."""
        self.kitchen.reset(setup)
        self.current = [None] * self.kitchen.num_agents

    def step(self, actions: Sequence[int | None]) -> StepOutcome:
        """One game step with one action per agent (None stays)."""
        self.current = list(actions)
        return self.kitchen.step([STAY if action is None else action for action in actions])

    def preview(self, agent: int, action: int) -> Effect:
        """Effect of the action now if nobody else moves; kind "none" if nothing."""
        return self.kitchen.effect(agent, action)

    def snapshot(self) -> dict[str, Any]:
        """The kitchen's snapshot."""
        return self.kitchen.snapshot()

    def restore(self, state: dict[str, Any]) -> None:
        """Takes over a `snapshot`."""
        self.kitchen.restore(state)
        self.current = [None] * self.kitchen.num_agents
