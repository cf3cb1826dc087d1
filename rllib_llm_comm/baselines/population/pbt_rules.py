"""Bookkeeping of population-based training after Carroll et al. 2019: pairs, fitness, exploitation and mutation.

Source: "On the Utility of Learning about Humans for Human-AI Coordination" (arXiv 1910.05789) and its code. Needs no
Ray: agents are anything that a function can train or play.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Setting = int | float


@dataclasses.dataclass(frozen=True)
class PBTAgent:
    """An agent of the population.

    Attributes:
        state: All that its learning goes on from: weights, optimizers, counts.
        runs: PPO runs that its weights have behind them; copied with the weights.
        settings: PPO settings that mutate, by name.
    """

    state: Any
    runs: int
    settings: Mapping[str, Setting]


def drawn_rounds(agents: int, rng: np.random.Generator) -> list[list[tuple[int, int]]]:
    """All ordered pairs of an iteration, in random order, in rounds that can be trained side by side.

    All K^2 pairs are put in a random order. Round r holds each learner's r-th pair of it: a learner's runs keep their
    order, and the K runs of a round have K different learners.

    Args:
        agents: K, >= 1.
        rng: Draws the order.

    Returns:
        K rounds of K pairs (partner, learner), the partner frozen; an agent learns with itself, too.
    """
    order = rng.permutation(agents * agents)
    own: list[list[tuple[int, int]]] = [[] for _ in range(agents)]
    for number in order:
        partner, learner = divmod(int(number), agents)
        own[learner].append((partner, learner))
    return [[own[learner][turn] for learner in range(agents)] for turn in range(agents)]


def played_pairs(agents: int) -> list[tuple[int, int]]:
    """Ordered pairs (player 0, player 1) that play for the fitness: every agent with every one in both seats."""
    return [(first, second) for first in range(agents) for second in range(agents)]


def fitness(rewards: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Reward per step of each agent, the mean over all partners, itself among them.

    With one partner it is the sum of rewards over the sum of lengths of all their games, in both seats.

    Args:
        rewards: (K, K) sums over games of the team's dense rewards, [i, j] of i as player 0 with j as player 1.
        lengths: (K, K) sums of these games' steps, > 0.

    Returns:
        (K,) rewards per step.
    """
    rates: np.ndarray = (rewards + rewards.T) / (lengths + lengths.T)
    return rates.mean(1)


def sparse_means(sparse: np.ndarray, games: np.ndarray) -> np.ndarray:
    """Mean sparse reward of a game of each agent, the mean over all partners in both seats.

    Args:
        sparse: (K, K) sums of sparse rewards over games.
        games: (K, K) games.

    Returns:
        (K,) scores.
    """
    return fitness(sparse, games)


def exploited(
    agents: Sequence[PBTAgent],
    fitnesses: np.ndarray,
    rng: np.random.Generator,
    probability: float,
    factors: Sequence[float],
) -> tuple[list[PBTAgent], int, int]:
    """The population after the worst agent has taken over the best one's weights, count and mutated settings.

    Args:
        agents: The population.
        fitnesses: (K,) as of `fitness`; of equal ones the first counts.
        rng: Draws mutations.
        probability: As of `mutated`.
        factors: As of `mutated`.

    Returns:
        The new population, and the numbers of the worst and of the best agent. If both are the same nothing changes.
    """
    worst, best = int(np.argmin(fitnesses)), int(np.argmax(fitnesses))
    following = list(agents)
    if worst != best:
        settings = mutated(agents[best].settings, rng, probability, factors)
        following[worst] = dataclasses.replace(agents[best], settings=settings)
    return following, worst, best


def mutated(
    settings: Mapping[str, Setting], rng: np.random.Generator, probability: float, factors: Sequence[float]
) -> dict[str, Setting]:
    """Settings of which each has changed with some probability.

    A setting is multiplied by one of the factors. `lambda_` moves by half of its distance to 0 or 1, the nearer one,
    up or down. Whole numbers are truncated and at least 1.

    Args:
        settings: By name; `lambda_` in [0, 1].
        rng: Draws which settings change, and how.
        probability: In [0, 1]; Carroll: 0.33.
        factors: Drawn with equal chances; Carroll: 0.75 and 1.25.
    """
    return {
        name: _moved(name, value, rng, factors) if rng.random() < probability else value
        for name, value in settings.items()
    }


def _moved(name: str, value: Setting, rng: np.random.Generator, factors: Sequence[float]) -> Setting:
    if name == "lambda_":
        return value + float(rng.choice([-1.0, 1.0])) * min((1.0 - value) / 2, value / 2)
    changed = value * float(rng.choice(factors))
    return max(int(changed), 1) if isinstance(value, int) else changed


class PBTPopulation:
    """The population and its place in an iteration: K rounds of K runs each, then games, then exploitation.

    Attributes:
        agents: The agents.
        iteration: Iterations that are complete.
        rounds: Rounds of the running iteration that are left, as of `drawn_rounds`; empty if games are due.
        best: Per agent the highest mean sparse reward so far and the policy that had it; `None` before the first games.

    Args:
        agents: The first agents.
        seed: Of orders and mutations.
    """

    def __init__(self, agents: Sequence[PBTAgent], seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self.agents = list(agents)
        self.iteration = 0
        self.rounds = drawn_rounds(len(agents), self._rng)
        self.best: list[tuple[float, Any] | None] = [None] * len(agents)

    def learned(self, states: Sequence[Any]) -> None:
        """Takes in the results of the first of `rounds`.

        Args:
            states: The new state of each learner, in the order of the round's pairs.
        """
        for (_, learner), state in zip(self.rounds.pop(0), states, strict=True):
            before = self.agents[learner]
            self.agents[learner] = dataclasses.replace(before, state=state, runs=before.runs + 1)

    def select(
        self,
        fitnesses: np.ndarray,
        scores: np.ndarray,
        policies: Sequence[Any],
        probability: float,
        factors: Sequence[float],
    ) -> tuple[int, int]:
        """Ends the iteration: keeps the best policies, lets the worst agent take over the best one, draws new rounds.

        Args:
            fitnesses: (K,) as of `fitness`.
            scores: (K,) as of `sparse_means`.
            policies: Of each agent, as far as it is kept where it is its best.
            probability: As of `mutated`.
            factors: As of `mutated`.

        Returns:
            Numbers of the worst and of the best agent.
        """
        for number, (policy, score) in enumerate(zip(policies, scores.tolist(), strict=True)):
            kept = self.best[number]
            if kept is None or score > kept[0]:
                self.best[number] = (score, policy)
        self.agents, worst, best = exploited(self.agents, fitnesses, self._rng, probability, factors)
        self.iteration += 1
        self.rounds = drawn_rounds(len(self.agents), self._rng)
        return worst, best

    def get_state(self) -> dict[str, Any]:
        """All of it, in plain types."""
        return {
            "agents": [{"state": a.state, "runs": a.runs, "settings": dict(a.settings)} for a in self.agents],
            "iteration": self.iteration,
            "rounds": [list(pairs) for pairs in self.rounds],
            "best": list(self.best),
            "rng": self._rng.bit_generator.state,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Goes on from a state.

        Args:
            state: From `get_state`.
        """
        self.agents = [PBTAgent(**agent) for agent in state["agents"]]
        self.iteration = state["iteration"]
        self.rounds = [list(pairs) for pairs in state["rounds"]]
        self.best = list(state["best"])
        self._rng.bit_generator.state = state["rng"]
