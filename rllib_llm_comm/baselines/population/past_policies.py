"""Policies of earlier times of a training, and the choice of the half-way one (FCP)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rllib_llm_comm.policies.policy_folder import PolicyExport

AGES = INITIAL, HALF_WAY, FINAL = "initial", "half_way", "final"


@dataclass(frozen=True)
class PastPolicy:
    """A policy as it was at some time.

    Attributes:
        iteration: Training iterations behind it; 0: before the first update.
        game_steps: Game steps behind it.
        score: Mean score of the last games then; NaN where none had ended.
        policy: The policy itself, small and without pickles.
    """

    iteration: int
    game_steps: int
    score: float
    policy: PolicyExport

    def to_state(self) -> dict[str, Any]:
        """Plain values for an algorithm's state."""
        policy = {"kind": self.policy.kind, "files": dict(self.policy.files)}
        policy["model_config"] = dict(self.policy.model_config)
        return {"iteration": self.iteration, "game_steps": self.game_steps, "score": self.score, "policy": policy}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> PastPolicy:
        """The policy of `to_state`."""
        return cls(state["iteration"], state["game_steps"], state["score"], PolicyExport(**state["policy"]))


def half_way(scores: Sequence[float]) -> int | None:
    """The place of the policy whose mean score is nearest to half of the last one's; of two the earlier.

    FCP takes the checkpoint with half of the final reward; of those that were kept this is the nearest.

    Args:
        scores: Mean scores in the order of time, the final policy's last; NaN where none is known, as before the first
            update: such policies are not chosen.

    Returns:
        The place, or `None` if the last score is not known.
    """
    if not scores or math.isnan(scores[-1]):
        return None
    goal = scores[-1] / 2
    distances = [math.inf if math.isnan(score) else abs(score - goal) for score in scores]
    return distances.index(min(distances))


def milestones(past: Sequence[PastPolicy]) -> dict[str, PastPolicy]:
    """The initial, the half-way and the final policy, of those that are there.

    Args:
        past: In the order of time, the final policy last.
    """
    found = {}
    if past and past[0].iteration == 0:
        found[INITIAL] = past[0]
    place = half_way([one.score for one in past])
    if place is not None:
        found[HALF_WAY] = past[place]
    if past:
        found[FINAL] = past[-1]
    return found
