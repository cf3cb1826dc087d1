"""Those who follow subgoals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from rllib_llm_comm.policies.decision import Policy, Request


class Player(Protocol):
    """Follows subgoals. What it remembers of an episode is one object, which can be copied."""

    def begin(self, seed: int) -> Any:
        """The memory of an episode that begins."""

    def act(self, memory: Any, observations: dict[Any, Any]) -> dict[Any, int]:
        """An action for each agent that is asked; may change the memory."""


@dataclass(frozen=True)
class PolicyPlayer:
    """A trained policy as a player.

    Attributes:
        policy: A policy, such as `load_policy` gives.
        explore: Whether actions are sampled.
    """

    policy: Policy
    explore: bool = True

    def begin(self, seed: int) -> Any:
        """Forgets the last episode."""
        return self.policy.begin(seed)

    def act(self, memory: Any, observations: dict[Any, Any]) -> dict[Any, int]:
        """Actions of the wrapped player."""
        decisions = self.policy.act_together([Request(memory, observations)], explore=self.explore)[0]
        return {agent: decision.action for agent, decision in decisions.items()}
