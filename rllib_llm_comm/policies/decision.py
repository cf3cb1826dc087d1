"""Decision of an agent at one moment, with all that it knew: the answer of every policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Decision:
    """Decision of one agent, with all that it knew.

    Attributes:
        action: Index of the chosen candidate; of actions of several parts, such as RED's, all of them (P,), whose first
            is that index.
        said: Its message; empty if it said nothing.
        heard: The others' latest messages, by speaker.
        candidates: The phrases that it chose among.
        probabilities: (K,) probability of each; 0 where forbidden.
        value: The critic's judgement of its state; NaN where a central critic is not told what it needs.
        prompt: The prompt behind which the candidates were scored; empty for agents that see numbers.
        replaced: Its true message, where a control put another one in its place; else `None`.
    """

    action: Any
    said: str
    heard: dict[str, str]
    candidates: list[str]
    probabilities: np.ndarray
    value: float
    prompt: str
    replaced: str | None = None

    @property
    def choice(self) -> int:
        """Index of the chosen candidate."""
        return int(np.asarray(self.action).reshape(-1)[0])


def choose(chances: np.ndarray, rng: np.random.Generator, explore: bool) -> int:
    """An action by its probabilities.

    Args:
        chances: (K,) probabilities.
        rng: Draws.
        explore: True to draw; otherwise the most likely action is taken.
    """
    return int(rng.choice(len(chances), p=chances) if explore else chances.argmax())


def draws_actions(policy: Any, explore: bool) -> bool:
    """True if a policy samples its actions: it is wanted, and it has chances at all.

    Args:
        policy: A policy, also one of the reader's own.
        explore: True if actions are to be sampled.
    """
    return explore and getattr(policy, "draws", True)
