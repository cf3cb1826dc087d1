"""Counterfactual probabilities of listeners: each decision of a replay scored once more without the messages heard."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rllib_llm_comm.evaluation.replay_schema import Frame
from rllib_llm_comm.policies.decision import Decision, Policy

LEFT_OUT = "what agents would have done in silence was not computed (`counterfactuals` is off)"
NOT_SCORED = "what agents would have done in silence is not known: these agents cannot be asked with other messages"
_TIE = 1e-6


class Counterfactuals:
    """Scores the candidates of agents that heard something once more, as if they had heard nothing.

    Each moment costs one more batch of at most one row per agent. Random numbers are not touched: the episode is the
    same with and without.

    Args:
        policy: The policy that plays; policies without a `judge` are not scored.
        wanted: True to score at all.

    Attributes:
        missing: The reason why there are no scores; empty if there are.
    """

    def __init__(self, policy: Policy, wanted: bool = True) -> None:
        self._judge = policy.judge
        self.missing = LEFT_OUT if not wanted else "" if self._judge is not None else NOT_SCORED

    def add_to(
        self,
        frame: Frame,
        observations: Mapping[Any, Mapping[str, Any]],
        decisions: Mapping[Any, Decision],
    ) -> None:
        """Adds `silent`, `influence` and `changed` to the parts of listeners (`replay_schema.AgentFrame`).

        Args:
            frame: The moment (`frame_of`).
            observations: Observations of all agents.
            decisions: Decisions of the agents that are asked.
        """
        listeners = [agent for agent, decision in decisions.items() if decision.heard]
        if self.missing or self._judge is None or not listeners:
            return
        rows = self._judge([(agent, observations[agent], {}) for agent in listeners])
        for agent, silent in zip(listeners, rows, strict=True):
            given = np.asarray(decisions[agent].probabilities, np.float64)
            card = frame["agents"][str(agent)]
            card["silent"] = [round(float(p), 4) for p in silent]
            card["influence"] = round(total_variation(given, silent), 4)
            card["changed"] = _changed(given, silent)


def total_variation(one: np.ndarray, other: np.ndarray) -> float:
    """Half the sum of absolute differences: the share of probability that moves, 0 (nothing) to 1 (everything).

    Args:
        one: (K,) probabilities.
        other: (K,) the same candidates.
    """
    return float(0.5 * np.abs(np.asarray(one, np.float64) - np.asarray(other, np.float64)).sum())


def _changed(given: np.ndarray, silent: np.ndarray) -> bool:
    """True if each side's most likely candidate is a less likely one on the other side; a tie changes nothing."""
    first, second = int(given.argmax()), int(silent.argmax())
    return bool(given[second] < given[first] - _TIE and silent[first] < silent[second] - _TIE)
