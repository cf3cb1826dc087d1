"""A limit of calls of `step`, which PettingZoo and its users call `max_cycles`."""

from __future__ import annotations

from typing import Any

from pettingzoo import ParallelEnv
from pettingzoo.utils import BaseParallelWrapper

from rllib_llm_comm.core.errors import require_whole


class MaxCycles(BaseParallelWrapper):
    """Truncates an episode after some calls of `step`, whatever time passes in one of them.

    Args:
        env: A parallel environment.
        max_cycles: Number of calls, >= 1.

    Raises:
        UserError: If the number is not allowed.
    """

    def __init__(self, env: ParallelEnv, max_cycles: int) -> None:
        require_whole("max_cycles", max_cycles, 1)
        super().__init__(env)
        self.max_cycles = max_cycles
        self._cycles = 0

    @property
    def agents(self) -> list[Any]:  # type: ignore[override]
        """Agents that are still in the game."""
        return [] if self._cycles >= self.max_cycles else self.env.agents

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Starts an episode.

        Args:
            seed: Of the game.
            options: Of the game.
        """
        self._cycles = 0
        return self.env.reset(seed=seed, options=options)

    def step(self, actions: dict[Any, Any]) -> Any:
        """One call, truncated for all who have not terminated if it is the last one.

        Args:
            actions: Action per agent.
        """
        if not self.agents:
            return {}, {}, {}, {}, {}
        observations, rewards, terminations, truncations, infos = self.env.step(actions)
        self._cycles += 1
        if self._cycles >= self.max_cycles:
            truncations = {agent: ended or not terminations[agent] for agent, ended in truncations.items()}
        return observations, rewards, terminations, truncations, infos
