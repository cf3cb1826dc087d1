"""COLE: a learner that trains with the members of its own past whom it understands least.

Source: Li et al. 2023, "Cooperative Open-ended Learning Framework for Zero-shot Coordination" (arXiv 2302.04831) and
its code. Payoffs are matrices (n, n), [i, j] the mean score of i as player 0 with j as player 1, >= 0.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import combinations
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from pydantic import Field, model_validator
from ray.rllib.utils.annotations import override
from typing_extensions import Self

from rllib_llm_comm.baselines.population.best_response_ppo import (
    BestResponsePartners,
    BestResponsePPO,
    BestResponsePPOConfig,
)
from rllib_llm_comm.baselines.population.responder import POPULATION, Met, PopulationConfigMixin, PopulationMixin
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.settings import Settings
from rllib_llm_comm.policies.policy_folder import PolicyExport
from rllib_llm_comm.rl.past_policies import PastPolicy
from rllib_llm_comm.rl.policy_checkpoints import PolicyCheckpointMixin
from rllib_llm_comm.rl.strict_config import select_fields

SIGNED, CLAMPED = "signed", "clamped"
DAMPING = 0.85
"""Share of steps that follow an edge in PageRank."""
SHARPNESS = 10.0
"""Factor inside the softmax over PageRank and over Shapley values (COLE's code)."""
EXACT_UP_TO = 8
"""Members up to which the Shapley values are exact: 2^8 coalitions."""
OLDEST = 10
"""Members that removal and the final choice look at."""
_MOST = 10**6
NEWEST_SHARE, LATER_SHARE, LATER_AFTER = 0.1, 0.2, 50
"""Share of newest members that may be preferred, and the rounds after which it is the later one."""
MOST_TRIES = 3
SPREAD_SHARE = 0.1
"""Visit bonus in relation to the spread of the softmax where no factor is given (ours)."""


class COLESettings(Settings):
    """The population."""

    initial_size: int = Field(5, ge=1, le=_MOST)
    """Members up to which the learner plays with its own copies alone. 5 (SAMA's "population size of 5"); COLE: 10."""
    most_members: int = Field(50, ge=2, le=_MOST)
    """Members allowed, more than `initial_size` (COLE)."""
    run_batches: int = Field(2, ge=1, le=_MOST)
    """Train batches of one PPO run, whose partners stay (COLE: 2 of 48,000)."""
    runs_per_generation: int | None = Field(None, ge=1, le=_MOST)
    """Runs until the learner is judged; None (COLE): `initial_size`."""
    drawn_partners: int = Field(3, ge=1, le=_MOST)
    """Members drawn for a run (COLE's "1:3")."""
    member_games: int = Field(3, ge=1, le=_MOST)
    """Games with each member in each seat when the learner is judged (COLE)."""
    marginals: Literal["signed", "clamped"] = "signed"
    """`"signed"` (ours): Shapley values. `"clamped"` (COLE's code): what a member takes away from a coalition counts as
    0."""
    permutations: int = Field(200, ge=1, le=_MOST)
    """Orders of joining that are drawn for more than 8 members (COLE)."""
    visit_bonus: float | None = Field(None, ge=0)
    """Weight of the bonus for members that were rarely drawn; 1 in COLE's code. None (ours): a tenth of the spread of
    the chances that the Shapley values give."""

    @model_validator(mode="after")
    def _may_grow(self) -> Self:
        if self.most_members <= self.initial_size:
            raise UserError(
                f"`most_members` is {self.most_members} but must be larger than `initial_size`, which is "
                f"{self.initial_size}."
            )
        return self


def pagerank(weights: np.ndarray) -> np.ndarray:
    """PageRank (n,) of a weighted directed graph, solved as linear equations; it sums to 1.

    Args:
        weights: (n, n), [i, j] the weight >= 0 of the edge from i to j; a node without edges leads to all alike.
    """
    n = len(weights)
    sums = weights.sum(1, keepdims=True)
    steps = np.where(sums > 0, weights / np.where(sums > 0, sums, 1.0), 1.0 / n)
    return np.asarray(np.linalg.solve(np.eye(n) - DAMPING * steps.T, np.full(n, (1 - DAMPING) / n)))


def softmax(values: np.ndarray) -> np.ndarray:
    """Chances (n,) in proportion to exp(values)."""
    powers = np.exp(values - values.max())
    return np.asarray(powers / powers.sum())


def coalition_value(payoffs: np.ndarray, members: Sequence[int]) -> float:
    """Worth of a coalition: sum over i and j of sigma_j U_ij / |S|, where sigma favours a low PageRank in it.

    Args:
        payoffs: (n, n) U.
        members: The coalition S; empty is worth 0.
    """
    if not members:
        return 0.0
    own = payoffs[np.ix_(members, members)]
    sigma = softmax(-SHARPNESS * pagerank(own))
    return max(0.0, float((own @ sigma).sum()) / len(own))


def shapley_values(
    payoffs: np.ndarray, marginals: str = SIGNED, permutations: int = 200, rng: np.random.Generator | None = None
) -> np.ndarray:
    """Additions (n,) of each member to the coalitions that it joins, in the mean over all orders of joining.

    Exact for up to `EXACT_UP_TO` members; beyond, the mean over random orders and all their rotations (ours): every
    member is as often at every place, so that members who are alike have like values.

    Args:
        payoffs: (n, n) U.
        marginals: `"signed"`: what a member adds may be negative (the Shapley value). `"clamped"`: negative additions
            count as 0 (COLE's code).
        permutations: Orders where they are drawn, >= 1, rounded up to a multiple of n; COLE: 200.
        rng: Draws the orders; needed for more than `EXACT_UP_TO` members.
    """
    n = len(payoffs)
    lowest = 0.0 if marginals == CLAMPED else -math.inf

    @cache
    def worth(members: tuple[int, ...]) -> float:
        return coalition_value(payoffs, members)

    values = np.zeros(n)
    for before, joining, weight in _joins(n, permutations, rng):
        added = worth(tuple(sorted((*before, joining)))) - worth(tuple(sorted(before)))
        values[joining] += weight * max(lowest, added)
    return values


def _joins(n: int, permutations: int, rng: np.random.Generator | None) -> Iterator[tuple[Sequence[int], int, float]]:
    """Coalitions, members that join them, and the weight of it."""
    if n <= EXACT_UP_TO:
        for joining in range(n):
            others = [member for member in range(n) if member != joining]
            for size in range(n):
                weight = 1.0 / (n * math.comb(n - 1, size))
                for before in combinations(others, size):
                    yield before, joining, weight
        return
    if rng is None:
        raise ValueError(f"{n} members need `rng`: their Shapley values are sampled")
    draws = math.ceil(permutations / n)
    for _ in range(draws):
        drawn = rng.permutation(n).tolist()
        for turn in range(n):
            order = drawn[turn:] + drawn[:turn]
            for place, joining in enumerate(order):
                yield order[:place], joining, 1.0 / (draws * n)


def preference_centrality(payoffs: np.ndarray) -> np.ndarray:
    """eta (n,): 1 minus the in-degree centrality in the preference graph; low for members that many play best with.

    Each member has one edge, to the partner with whom its payoff is highest (it may be itself; of equal ones the last
    member), and none if all its payoffs are 0. An in-degree is divided by n - 1, so values may be below 0.

    Args:
        payoffs: (n, n), the mean over both seats.
    """
    n = len(payoffs)
    indegrees = np.zeros(n)
    for row in payoffs:
        if row.max() > 0:
            indegrees[n - 1 - int(np.argmax(row[::-1]))] += 1
    return np.asarray(1.0 - indegrees / max(1, n - 1))


def entropy(weights: np.ndarray) -> float:
    """Entropy in nats of weights >= 0, normalised; log(n) if all are alike."""
    chances = weights / weights.sum()
    held = chances[chances > 0]
    return float(-(held * np.log(held)).sum())


def partner_weights(values: np.ndarray, visits: np.ndarray, visit_bonus: float | None = None) -> np.ndarray:
    """Weights (n,) with which partners are drawn: high for members with low Shapley values, and rarely visited ones.

    softmax(-10 phi / ||phi||) + c u / ||u|| with u_i = sqrt(all visits) / (1 + visits_i).

    Args:
        values: (n,) Shapley values phi.
        visits: (n,) how often each was drawn in this generation.
        visit_bonus: c >= 0, 1 in COLE's code. `None` (ours): a tenth of the softmax's spread, its largest minus its
            smallest weight. With 1 the bonus outweighs the values from the second draw on.
    """
    weights = softmax(-SHARPNESS * _unit(values))
    factor = SPREAD_SHARE * float(weights.max() - weights.min()) if visit_bonus is None else visit_bonus
    return np.asarray(weights + factor * _unit(np.sqrt(visits.sum()) / (1.0 + visits)))


def is_accepted(payoffs: np.ndarray, trained_rounds: int, tries: int, initial: int) -> bool:
    """True if the learner's copy becomes a member.

    It does if the member whom most prefer is the learner or one of the newest floor(share n) + 1 members, and in any
    case at the third try and while the population is young.

    Args:
        payoffs: (n + 1, n + 1), of n members and, last, the learner.
        trained_rounds: Rounds of training so far, with this one, >= 1.
        tries: Tries for this place so far, with this one, >= 1.
        initial: The first round whose copy may be refused.
    """
    members = len(payoffs) - 1
    share = LATER_SHARE if trained_rounds > LATER_AFTER else NEWEST_SHARE
    preferred = int(np.argmin(preference_centrality((payoffs + payoffs.T) / 2)))
    newest = preferred >= members - (int(share * members) + 1)
    return newest or tries >= MOST_TRIES or trained_rounds < initial


def kept_member(payoffs: np.ndarray) -> int:
    """The member with the best mean score with the ten oldest members in both seats, of equal ones the newest.

    Args:
        payoffs: (n, n), oldest members first.
    """
    oldest = slice(0, OLDEST)
    scores = payoffs[:, oldest].mean(1) + payoffs[oldest].mean(0)
    return len(scores) - 1 - int(np.argmax(scores[::-1]))


def _unit(values: np.ndarray) -> np.ndarray:
    length = float(np.linalg.norm(values))
    return values / length if length > 0 else np.zeros_like(values, dtype=float)


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
        first: The first member, an untrained copy of the learner.
        score: Mean score of that member with itself.
    """

    def __init__(self, settings: COLESettings, first: Any, score: float, seed: int) -> None:
        self._settings, self._rng = settings, np.random.default_rng(seed)
        self.members: list[Any] = [first]
        self.payoffs = np.array([[score]])
        self.values = np.ones(1)
        self.generation, self.refusals, self.runs_done = 0, 0, 0
        self._visits = np.zeros(1)

    @property
    def is_grown(self) -> bool:
        """True if there are members enough to train with partners."""
        return len(self.members) > self._settings.initial_size

    def weights(self) -> np.ndarray:
        """(n,) weights with which the next partner is drawn."""
        return partner_weights(self.values, self._visits, self._settings.visit_bonus)

    def draw_partners(self) -> list[int]:
        """Numbers of the members that partner the learner in the next run; none while it plays with itself alone."""
        if not self.is_grown:
            return []
        drawn = []
        for _ in range(self._settings.drawn_partners):
            weights = self.weights()
            drawn.append(int(self._rng.choice(len(weights), p=weights / weights.sum())))
            self._visits[drawn[-1]] += 1
        return drawn

    def run_is_done(self) -> bool:
        """Counts a run; returns true if games are due, which end the generation."""
        self.runs_done += 1
        runs = self._settings.runs_per_generation or self._settings.initial_size
        return self.runs_done >= (runs if self.is_grown else 1)

    def judge(self, learner: Any, row: Sequence[float], column: Sequence[float], own: float) -> bool:
        """Ends a generation: the learner's copy becomes a member (true), or is trained on.

        If there are too many members then, one of the oldest makes room.

        Args:
            row: (n,) mean scores of the learner as player 0 with each member.
            column: (n,) of each member as player 0 with the learner.
            own: Of the learner with itself.
        """
        self.generation += 1
        self.runs_done = 0
        grown = np.block([[self.payoffs, np.asarray(column)[:, None]], [np.asarray(row), np.asarray([own])]])
        accepted = is_accepted(grown, self.generation, self.refusals + 1, self._settings.initial_size)
        self.refusals = 0 if accepted else self.refusals + 1
        if accepted:
            self.members, self.payoffs = [*self.members, learner], grown
            if len(self.members) > self._settings.most_members:
                leaving = int(self._rng.integers(min(OLDEST, len(self.members))))
                del self.members[leaving]
                self.payoffs = np.delete(np.delete(self.payoffs, leaving, 0), leaving, 1)
            self.values = shapley_values(self.payoffs, self._settings.marginals, self._settings.permutations, self._rng)
        self._visits = np.zeros(len(self.members))
        return accepted

    def entropy(self) -> float:
        """Entropy in nats of the weights at the beginning of a generation."""
        return entropy(partner_weights(self.values, np.zeros(len(self.values)), self._settings.visit_bonus))

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
        """Goes on from a state."""
        self.members = list(state["members"])
        self.payoffs, self.values = np.array(state["payoffs"]), np.array(state["values"])
        self._visits = np.array(state["visits"])
        self.generation, self.refusals, self.runs_done = state["counts"]
        self._rng.bit_generator.state = state["rng"]


class COLEConfigMixin(PopulationConfigMixin):
    """Adds `.population(...)` to the config of a learner that meets frozen policies."""

    def validate(self) -> None:
        """Checks all settings; a `UserError` names one that is not allowed or does not fit the others."""
        if self.pool:
            raise UserError(f"`pool` is {self.pool!r} but COLE's partners are its own members; omit it.")
        super().validate()

    def validate_pool(self) -> None:
        """Checks that members are met."""
        if self.self_play_share == 1:
            raise UserError("`self_play_share` is 1 but must be below 1: COLE trains with members of its population.")


class COLEConfig(COLEConfigMixin, BestResponsePPOConfig):
    """Settings of `COLE`.

    .. testcode::
        :skipif: True

        from rllib_llm_comm import COLEConfig

        config = COLEConfig().environment(env_config={"layout": "coordination_ring"})
        algo = config.population(initial_size=5, marginals="signed").build_algo()
        algo.train()
    """

    settings_models = {
        **BestResponsePPOConfig.settings_models,
        "population": select_fields(BestResponsePartners, base=COLESettings, self_play_share=0.25),  # COLE's "1:3"
    }


class COLEMixin(PopulationMixin):
    """Open-ended learning with members of low Shapley value.

    A training iteration is a train batch. `run_batches` of them are a run with the same partners, some runs a
    generation, after which the learner plays with all members and its copy may become one. Checkpoints hold the member
    that plays best with the ten oldest ones.
    """

    _population: COLEPopulation | None = None
    _batches = 0
    _partners: list[tuple[str, dict[str, Any], float]] | None = None
    _played_steps = 0
    _seated = False
    _judged: Mapping[str, float] = MappingProxyType({})

    @override(PolicyCheckpointMixin)
    def training_step(self) -> None:
        """One batch with the partners of the run, and at a generation's end games with all members."""
        population = self._population = self._population or self._begun()
        if self._partners is None:
            self._partners = self._drawn(population)
        if not self._seated:
            self.meet([Met(name, PastPolicy.from_state(one), weight) for name, one, weight in self._partners])
            self._seated = True
        super().training_step()
        self._batches += 1
        if self._batches >= self.config.run_batches:
            self._batches, self._partners, self._seated = 0, None, False
            if population.run_is_done():
                self._judge(population)
        self._log_population(population)

    def _learner_policy(self) -> PastPolicy:
        return self.policy_now(self.iteration, math.nan, super().policy_exports())

    def _begun(self) -> COLEPopulation:
        first = self._learner_policy()
        score = float(self._play([first], [(0, 0)], 0)[0])
        settings = self.config.checked_settings("population")
        return COLEPopulation(settings, first.to_state(), score, self.config.seed or 0)

    def _drawn(self, population: COLEPopulation) -> list[tuple[str, dict[str, Any], float]]:
        """Name, policy and weight of the run's partners; the learner's own copy while it plays with itself alone."""
        counts = Counter(population.draw_partners())
        if not counts:
            return [("itself", self._learner_policy().to_state(), 1.0)]
        return [
            (f"partner_{place}", population.members[number], float(times))
            for place, (number, times) in enumerate(counts.items())
        ]

    def _judge(self, population: COLEPopulation) -> None:
        learner = self._learner_policy()
        n = len(population.members)
        policies = [*(PastPolicy.from_state(member) for member in population.members), learner]
        pairs = [*((n, i) for i in range(n)), *((i, n) for i in range(n)), (n, n)]
        scores = self._play(policies, pairs, population.generation + 1)
        accepted = population.judge(
            learner.to_state(), scores[:n].tolist(), scores[n : 2 * n].tolist(), float(scores[-1])
        )
        own, played = float(scores[-1]), float(np.mean(scores[:-1]))
        self._judged = {"accepted": float(accepted), "score_self_play": own, "score_with_members": played}

    def _play(self, policies: list[PastPolicy], pairs: list[tuple[int, int]], generation: int) -> np.ndarray:
        """Mean score of each pair; a team that loses more than it earns counts as one that earns nothing."""
        matches = self.play_pairs(policies, pairs, self.config.member_games, [self.config.seed or 0, generation])
        self._played_steps += int(matches.steps.sum())
        return np.maximum(matches.scores, 0.0)

    def _log_population(self, population: COLEPopulation) -> None:
        kept = kept_member(population.payoffs)
        oldest = slice(0, OLDEST)
        figures = {
            "members": len(population.members),
            "generation": population.generation,
            "refusals": population.refusals,
            "partner_entropy": population.entropy(),
            "lowest_value": population.values.min(),
            "highest_value": population.values.max(),
            "kept_member": kept,
            "kept_score": (population.payoffs[kept, oldest].mean() + population.payoffs[oldest, kept].mean()) / 2,
            "game_steps": self._game_steps() + self._played_steps,
        }
        for name, value in {**figures, **self._judged}.items():
            self.metrics.log_value((POPULATION, name), float(value), window=1)

    @override(PolicyCheckpointMixin)
    def policy_exports(self) -> dict[str, PolicyExport]:
        """The kept member; before the first training the learner."""
        if self._population is None:
            return super().policy_exports()
        return {"": PastPolicy.from_state(self._population.members[kept_member(self._population.payoffs)]).policy}

    @override(PopulationMixin)
    def population_policies(self) -> Mapping[str, PastPolicy]:
        """One of each member."""
        members = [] if self._population is None else self._population.members
        return {f"member_{number}": PastPolicy.from_state(member) for number, member in enumerate(members)}

    @override(PopulationMixin)
    def population_state(self) -> dict[str, Any] | None:
        """The members, and the partners of the running run."""
        if self._population is None:
            return None
        return {
            "members": self._population.get_state(),
            "partners": self._partners,
            "batches": self._batches,
            "played_steps": self._played_steps,
            "judged": dict(self._judged),
        }

    @override(PopulationMixin)
    def set_population_state(self, state: Any) -> None:
        """Sets the members, and the partners of the running run, who sit down anew."""
        self._population = COLEPopulation(self.config.checked_settings("population"), None, 0.0, 0)
        self._population.set_state(state["members"])
        self._partners, self._judged = state["partners"], state["judged"]
        self._batches, self._played_steps, self._seated = state["batches"], state["played_steps"], False


class COLE(COLEMixin, BestResponsePPO):
    """Cooperative open-ended learning in the onion-soup kitchens; settings: `COLEConfig`."""

    config_class = COLEConfig
