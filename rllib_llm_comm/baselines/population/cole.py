"""COLE: a learner that trains with the members of its own past whom it understands least (Li et al. 2023)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from pydantic import Field, model_validator
from ray.rllib.utils.annotations import override
from ray.rllib.utils.checkpoints import Checkpointable
from typing_extensions import Self

from rllib_llm_comm.baselines.population.best_response_ppo import (
    BestResponsePartners,
    BestResponsePPO,
    BestResponsePPOConfig,
)
from rllib_llm_comm.baselines.population.cole_population import COLEPopulation, COLERules
from rllib_llm_comm.baselines.population.kitchen_matches import Matches, play_matches
from rllib_llm_comm.baselines.population.kitchen_partners import FrozenPartner, PartnerPool
from rllib_llm_comm.baselines.population.population_members import plain, policy_of
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.settings import Settings
from rllib_llm_comm.policies.policy_folder import PolicyExport
from rllib_llm_comm.rl.strict_config import part

POPULATION = "population"
_MOST = 10**6


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


class COLEConfig(BestResponsePPOConfig):
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
        "population": part(BestResponsePartners, "self_play_share", base=COLESettings),
    }

    def __init__(self, algo_class: type | None = None) -> None:
        """Sets the defaults: a small population with signed Shapley values, and PPO as of `BestResponsePPO`."""
        super().__init__(algo_class=algo_class or COLE)
        self.self_play_share = 0.25  # COLE's "1:3"

    def population(self, **settings: Any) -> Self:
        """Sets the population; the settings are those of `COLESettings`, and `self_play_share`."""
        return self.assign("population", settings)

    @override(BestResponsePPOConfig)
    def validate(self) -> None:
        """Checks all settings.

        Raises:
            UserError: If a value is not allowed or settings do not fit together.
        """
        if self.pool:
            raise UserError(f"`pool` is {self.pool!r} but COLE's partners are its own members; leave it away.")
        super().validate()

    @override(BestResponsePPOConfig)
    def most_partners(self) -> None:
        """None: the population changes."""

    @override(BestResponsePPOConfig)
    def _validate_pool(self) -> None:
        if self.self_play_share == 1:
            raise UserError("`self_play_share` is 1 but must be below 1: COLE trains with members of its population.")

    def rules(self) -> COLERules:
        """Sizes and choices of the population."""
        return COLERules(
            initial=self.initial_size,
            most=self.most_members,
            runs=self.runs_per_generation or self.initial_size,
            partners=self.drawn_partners,
            marginals=self.marginals,
            permutations=self.permutations,
            visit_bonus=self.visit_bonus,
        )


class COLE(BestResponsePPO):
    """Open-ended learning with members of low Shapley value; settings: `COLEConfig`.

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

    @classmethod
    @override(BestResponsePPO)
    def get_default_config(cls) -> COLEConfig:
        """The default settings."""
        return COLEConfig()

    @override(BestResponsePPO)
    def training_step(self) -> None:
        """One batch with the partners of the run, and at a generation's end games with all members."""
        population = self._population = self._population or self._begun()
        if self._partners is None:
            self._partners = self._drawn(population)
        if not self._seated:
            self._seat(self._partners)
        super().training_step()
        self._batches += 1
        if self._batches >= self.config.run_batches:
            self._batches, self._partners, self._seated = 0, None, False
            if population.run_is_done():
                self._judge(population)
        self._log_population(population)

    def _learner_policy(self) -> PolicyExport:
        return next(iter(super().policy_exports().values()))

    def _begun(self) -> COLEPopulation:
        first = self._learner_policy()
        matches = self._play([first], [(0, 0)], 0)
        return COLEPopulation(self.config.rules(), plain(first), float(matches.scores[0]), self.config.seed or 0)

    def _drawn(self, population: COLEPopulation) -> list[tuple[str, dict[str, Any], float]]:
        """Name, policy and weight of the run's partners; the learner's own copy while it plays with itself alone."""
        counts = Counter(population.draw_partners())
        if not counts:
            return [("itself", plain(self._learner_policy()), 1.0)]
        return [
            (f"partner_{place}", population.members[number], float(times))
            for place, (number, times) in enumerate(counts.items())
        ]

    def _seat(self, partners: list[tuple[str, dict[str, Any], float]]) -> None:
        frozen = tuple(FrozenPartner(name, policy_of(policy), weight) for name, policy, weight in partners)
        self.set_pool(PartnerPool(frozen, self.config.self_play_share))
        self._seated = True

    def _judge(self, population: COLEPopulation) -> None:
        learner = self._learner_policy()
        n = len(population.members)
        policies = [*map(policy_of, population.members), learner]
        pairs = [*((n, i) for i in range(n)), *((i, n) for i in range(n)), (n, n)]
        scores = self._play(policies, pairs, population.generation + 1).scores
        accepted = population.judge(plain(learner), scores[:n].tolist(), scores[n : 2 * n].tolist(), float(scores[-1]))
        own, played = float(scores[-1]), float(np.mean(scores[:-1]))
        self._judged = {"accepted": float(accepted), "score_self_play": own, "score_with_members": played}

    def _play(self, policies: list[PolicyExport], pairs: list[tuple[int, int]], generation: int) -> Matches:
        config = self.config
        seed = [config.seed or 0, generation]
        matches = play_matches(policies, pairs, config.member_games, config.env_config, seed)
        self._played_steps += int(matches.steps.sum())
        return matches

    def _log_population(self, population: COLEPopulation) -> None:
        kept = population.kept()
        oldest = slice(0, 10)
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

    @override(BestResponsePPO)
    def policy_exports(self) -> dict[str, PolicyExport]:
        """The kept member; before the first training the learner."""
        if self._population is None:
            return super().policy_exports()
        return {"": policy_of(self._population.members[self._population.kept()])}

    @override(Checkpointable)
    def get_state(self, components: Any = None, *, not_components: Any = None, **kwargs: Any) -> dict[str, Any]:
        """As RLlib's, with the whole population and the partners of the running run."""
        state = super().get_state(components, not_components=not_components, **kwargs)
        if self._population is not None and self._check_component(POPULATION, components, not_components):
            state[POPULATION] = {
                "members": self._population.get_state(),
                "partners": self._partners,
                "batches": self._batches,
                "played_steps": self._played_steps,
                "judged": dict(self._judged),
            }
        return state

    @override(Checkpointable)
    def set_state(self, state: Mapping[str, Any]) -> None:
        """As RLlib's, with the whole population."""
        super().set_state(state)
        if POPULATION not in state:
            return
        held = state[POPULATION]
        self._population = COLEPopulation(self.config.rules(), None, 0.0, 0)
        self._population.set_state(held["members"])
        self._partners, self._judged = held["partners"], held["judged"]
        self._batches, self._played_steps, self._seated = held["batches"], held["played_steps"], False
