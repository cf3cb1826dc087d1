"""What listeners would have weighed in silence: beside each decision of a replay the same without what was heard."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rllib_llm_comm.agents.decision import Decision

LEFT_OUT = "what agents would have done in silence was not computed (`counterfactuals` is off)"
NOT_SCORED = "what agents would have done in silence is not known: these agents cannot be asked with other messages"
_TIE = 1e-6


class Counterfactuals:
    """Scores the candidates of agents that heard something once more, as if they had heard nothing.

    Each moment costs one more batch of at most one row per agent. Random numbers are not touched: the episode is the
    same with and without.

    Args:
        policy: Who plays; `Policy` has `probabilities`, players without it are not asked.
        wanted: Whether to score at all.

    Attributes:
        missing: Why there are none; empty where there are.
    """

    def __init__(self, policy: Any, wanted: bool = True) -> None:
        self._judge = getattr(policy, "probabilities", None)
        self.missing = LEFT_OUT if not wanted else "" if self._judge is not None else NOT_SCORED

    def add_to(
        self,
        frame: Mapping[str, Any],
        observations: Mapping[Any, Mapping[str, Any]],
        decisions: Mapping[Any, Decision],
    ) -> None:
        """Adds to the cards of listeners `silent`, `influence` and `changed`; see `Episode.frames` in `rollout`.

        Args:
            frame: From `frame_of`.
            observations: As given to it.
            decisions: As given to it.
        """
        listeners = [agent for agent, decision in decisions.items() if decision.heard]
        if self.missing or self._judge is None or not listeners:
            return
        rows = self._judge([(agent, observations[agent], {}) for agent in listeners])
        for agent, silent in zip(listeners, rows, strict=True):
            given = np.asarray(decisions[agent].probabilities, np.float64)
            frame["agents"][str(agent)].update(
                silent=[round(float(p), 4) for p in silent],
                influence=round(total_variation(given, silent), 4),
                changed=_changed(given, silent),
            )


def total_variation(one: np.ndarray, other: np.ndarray) -> float:
    """Half the sum of absolute differences: the share of probability that moves, 0 (nothing) to 1 (everything).

    Args:
        one: (K,) probabilities.
        other: (K,) the same candidates.
    """
    return float(0.5 * np.abs(np.asarray(one, np.float64) - np.asarray(other, np.float64)).sum())


def _changed(given: np.ndarray, silent: np.ndarray) -> bool:
    """Whether each side's most likely candidate is a less likely one on the other side; a tie changes nothing."""
    first, second = int(given.argmax()), int(silent.argmax())
    return bool(given[second] < given[first] - _TIE and silent[first] < silent[second] - _TIE)
