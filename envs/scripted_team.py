"""What the scripted teams of the games share: who talks to whom."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np


class Team(ABC):
    """Plays all agents of a game by rules, each by what it sees, is told and hears.

    Args:
        env: The (unwrapped) environment; call `begin` after each of its resets.
        talk: Whether agents hear each other.
        seed: Of the wording, and of what else is drawn.

    Attributes:
        said: Last message of each agent, by name.
    """

    def __init__(self, env: Any, *, talk: bool = True, seed: int = 0) -> None:
        self._env, self._talk = env, talk
        self.begin(seed)

    def begin(self, seed: int = 0) -> None:
        """Forgets what was said and believed.

        Args:
            seed: Of the wording, and of what else is drawn, in this episode.
        """
        self._rng = np.random.default_rng(seed)
        self.said: dict[str, str] = {}
        self._believed: dict[str, Any] = {}

    @abstractmethod
    def act(self, infos: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
        """Speaks, listens and chooses for all agents that need an action.

        Args:
            infos: The last infos of the environment.
        """

    def _messages_to(self, agent: str) -> list[str]:
        """The last messages of the others."""
        return [message for speaker, message in self.said.items() if speaker != agent]
