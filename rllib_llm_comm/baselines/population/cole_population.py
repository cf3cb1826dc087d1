"""COLE's population and its place in a generation: draws of partners, then games, then a decision on the learner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rllib_llm_comm.baselines.population.coalition_values import SIGNED, entropy, shapley_values
from rllib_llm_comm.baselines.population.cole_rules import (
    drawn_partner,
    is_accepted,
    kept_member,
    partner_weights,
    removed_member,
    with_learner,
    without_member,
)


@dataclass(frozen=True)
class COLERules:
    """Sizes and choices of `COLEPopulation`.

    Attributes:
        initial: Members that join unjudged while the learner plays with itself alone, >= 1.
        most: Members allowed, > `initial`.
        runs: Runs per generation once there are more than `initial` members.
        partners: Partners drawn per run.
        marginals: As of `shapley_values`.
        permutations: As of `shapley_values`.
        visit_bonus: As of `partner_weights`.
    """

    initial: int
    most: int
    runs: int
    partners: int
    marginals: str = SIGNED
    permutations: int = 200
    visit_bonus: float | None = None


class COLEPopulation:
    """Members, their payoffs, and the counts that decide what comes next.

    Attributes:
        members: Frozen players, oldest first.
        payoffs: (n, n) mean scores, [i, j] of i as player 0 with j as player 1.
        values: (n,) Shapley values.
        generation: Generations of training that were judged so far, refused ones among them.
        refusals: Times in a row that the learner's copy was refused.
        runs_done: Runs of the running generation that are done.

    Args:
        rules: Sizes and choices.
        first: The first member, an untrained copy of the learner.
        score: Mean score of that member with itself.
        seed: Of draws.
    """

    def __init__(self, rules: COLERules, first: Any, score: float, seed: int) -> None:
        self._rules, self._rng = rules, np.random.default_rng(seed)
        self.members: list[Any] = [first]
        self.payoffs = np.array([[score]])
        self.values = np.ones(1)
        self.generation, self.refusals, self.runs_done = 0, 0, 0
        self._visits = np.zeros(1)

    @property
    def is_grown(self) -> bool:
        """True if there are members enough to train with partners."""
        return len(self.members) > self._rules.initial

    def weights(self) -> np.ndarray:
        """(n,) weights with which the next partner is drawn."""
        return partner_weights(self.values, self._visits, self._rules.visit_bonus)

    def draw_partners(self) -> list[int]:
        """Numbers of the members that partner the learner in the next run; none while it plays with itself alone."""
        if not self.is_grown:
            return []
        drawn = []
        for _ in range(self._rules.partners):
            drawn.append(drawn_partner(self.weights(), self._rng))
            self._visits[drawn[-1]] += 1
        return drawn

    def run_is_done(self) -> bool:
        """Counts a run; returns true if games are due, which end the generation."""
        self.runs_done += 1
        return self.runs_done >= (self._rules.runs if self.is_grown else 1)

    def judge(self, learner: Any, row: Sequence[float], column: Sequence[float], own: float) -> bool:
        """Ends a generation: the learner's copy becomes a member, or is trained on.

        Args:
            learner: The copy.
            row: (n,) mean scores of the learner as player 0 with each member.
            column: (n,) of each member as player 0 with the learner.
            own: Of the learner with itself.

        Returns:
            True if it was accepted.
        """
        self.generation += 1
        self.runs_done = 0
        grown = with_learner(self.payoffs, np.asarray(row), np.asarray(column), own)
        accepted = is_accepted(grown, self.generation, self.refusals + 1, self._rules.initial)
        self.refusals = 0 if accepted else self.refusals + 1
        if accepted:
            self.members, self.payoffs = [*self.members, learner], grown
            self._make_room()
            self.values = shapley_values(self.payoffs, self._rules.marginals, self._rules.permutations, self._rng)
        self._visits = np.zeros(len(self.members))
        return accepted

    def _make_room(self) -> None:
        leaving = removed_member(len(self.members), self._rules.most, self._rng)
        if leaving is not None:
            del self.members[leaving]
            self.payoffs = without_member(self.payoffs, leaving)

    def kept(self) -> int:
        """Number of the member with the best mean score with the ten oldest in both seats."""
        return kept_member(self.payoffs)

    def entropy(self) -> float:
        """Entropy in nats of the weights at the beginning of a generation."""
        return entropy(partner_weights(self.values, np.zeros(len(self.values)), self._rules.visit_bonus))

    def get_state(self) -> dict[str, Any]:
        """All of it, in plain types."""
        return {
            "members": list(self.members),
            "payoffs": self.payoffs,
            "values": self.values,
            "visits": self._visits,
            "counts": [self.generation, self.refusals, self.runs_done],
            "rng": self._rng.bit_generator.state,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Goes on from a state.

        Args:
            state: From `get_state`.
        """
        self.members = list(state["members"])
        self.payoffs, self.values = np.array(state["payoffs"]), np.array(state["values"])
        self._visits = np.array(state["visits"])
        self.generation, self.refusals, self.runs_done = state["counts"]
        self._rng.bit_generator.state = state["rng"]
