"""Population-based training of cooks that play with each other (Carroll et al. 2019); not Ray Tune's."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, Literal

import numpy as np
import ray
from pydantic import Field, model_validator
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.utils.annotations import override
from ray.rllib.utils.checkpoints import Checkpointable
from ray.rllib.utils.metrics import (
    ENV_RUNNER_RESULTS,
    NUM_AGENT_STEPS_SAMPLED_LIFETIME,
    NUM_ENV_STEPS_SAMPLED,
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
    NUM_EPISODES,
    NUM_EPISODES_LIFETIME,
)
from ray.tune.execution.placement_groups import PlacementGroupFactory
from typing_extensions import Self

from rllib_llm_comm.baselines.population.best_response_ppo import BestResponsePPO, BestResponsePPOConfig
from rllib_llm_comm.baselines.population.kitchen_matches import Matches, play_matches
from rllib_llm_comm.baselines.population.overcooked_ai import AGENTS
from rllib_llm_comm.baselines.population.pbt_rules import PBTAgent, PBTPopulation, fitness, played_pairs, sparse_means
from rllib_llm_comm.baselines.population.population_members import (
    POLICY,
    STATE,
    MemberResult,
    MemberRun,
    act_by,
    policy_of,
    run_member,
    run_member_remotely,
)
from rllib_llm_comm.baselines.population.self_play_ppo import shaping_factor
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.settings import Settings, Several

POPULATION = "population"
LAST, BEST = "last", "best"
_MOST = 10**6


class PBTSettings(Settings):
    """The population."""

    size: int = Field(3, ge=2, le=_MOST)
    """K, agents (Carroll)."""
    run_batches: int = Field(3, ge=1, le=_MOST)
    """Train batches of one PPO run with one partner (Carroll: 3 of 12,000 steps)."""
    selection_games: int = Field(6, ge=2, le=_MOST)
    """Games of each pair of two agents for the fitness, half of them in each seat (Carroll); an agent plays half as
    many with itself (ours)."""
    mutate: Several[Literal["lambda_", "clip_param", "lr", "num_epochs", "entropy_coeff", "vf_loss_coeff"]] = (
        "lambda_", "clip_param", "lr", "num_epochs", "entropy_coeff", "vf_loss_coeff",
    )  # fmt: skip
    """Settings that mutate (Carroll: all). `critic_lr` keeps its relation to `lr` (ours)."""
    mutation_probability: float = Field(0.33, ge=0, le=1)
    """Of each setting (Carroll)."""
    mutation_factors: Several[Annotated[float, Field(ge=0.01)]] = Field((0.75, 1.25), min_length=1)
    """One of them multiplies a setting that mutates (Carroll)."""
    kept: Literal["last", "best"] = "last"
    """The policy that checkpoints hold. `"last"` (Carroll's published scores): agent 0 as it is. `"best"`: the snapshot
    of any agent with the highest mean points with all agents."""
    members_at_once: int | None = Field(None, ge=0, le=_MOST)
    """Runs that Tune reserves CPUs for, one each; None (ours): as many as this machine has cores, `size` at most.
    Without Tune Ray's free CPUs decide. 0: all runs one after the other in the algorithm's own process, without Ray
    tasks."""

    @model_validator(mode="after")
    def _half_in_each_seat(self) -> Self:
        if self.selection_games % 2:
            raise UserError(f"`selection_games` is {self.selection_games} but must be even: half of them in each seat.")
        return self


class PBTConfig(BestResponsePPOConfig):
    """Settings of `PBT`.

    .. testcode::
        :skipif: True

        from rllib_llm_comm import PBTConfig

        config = PBTConfig().environment(env_config={"layout": "coordination_ring"})
        algo = config.population(size=3, run_batches=3).build_algo()
        algo.train()
    """

    settings_models = {**BestResponsePPOConfig.settings_models, "population": PBTSettings}

    def __init__(self, algo_class: type | None = None) -> None:
        """Sets the defaults: the paper's population, and PPO as of `BestResponsePPO`."""
        super().__init__(algo_class=algo_class or PBT)

    def population(self, **settings: Any) -> Self:
        """Sets the population; the settings are those of `PBTSettings`."""
        return self.assign("population", settings)

    @override(BestResponsePPOConfig)
    def validate(self) -> None:
        """Checks all settings.

        Raises:
            UserError: If a value is not allowed or settings do not fit together.
        """
        for name in (*self.mutate, "critic_lr"):
            if isinstance(getattr(self, name, None), list):
                raise UserError(f"`{name}` is a schedule but PBT moves it; give a number, or leave it out of `mutate`.")
        self._validate_members()
        super().validate()

    def _validate_members(self) -> None:
        if self.pool or self.self_play_share:
            raise UserError("`pool` and `self_play_share` mean nothing to PBT, whose agents are each other's partners.")
        for name in ("num_env_runners", "num_learners"):
            if getattr(self, name):
                raise UserError(
                    f"`{name}` is {getattr(self, name)} but must be 0: PBT trains its agents side by side instead; set "
                    "`members_at_once`."
                )

    @override(BestResponsePPOConfig)
    def most_partners(self) -> None:
        """None: the population changes."""

    @override(BestResponsePPOConfig)
    def _validate_pool(self) -> None:
        """A population brings its own partners."""

    def run_steps(self) -> int:
        """Game steps of a PPO run."""
        return int(self.run_batches * self.total_train_batch_size)


class PBT(BestResponsePPO):
    """A population whose agents learn with each other, the worst replaced by the best; settings: `PBTConfig`.

    A training iteration is a round: every agent learns with one frozen partner, all side by side. After K rounds each
    agent has learned with each, games are played and the worst agent takes over the best one's weights.
    """

    _population: PBTPopulation | None = None
    _played_steps = 0
    _selected: Mapping[str, float] = MappingProxyType({})

    @classmethod
    @override(BestResponsePPO)
    def get_default_config(cls) -> PBTConfig:
        """The default settings."""
        return PBTConfig()

    @classmethod
    @override(Algorithm)
    def default_resource_request(cls, config: AlgorithmConfig | dict[str, Any]) -> PlacementGroupFactory:
        """As RLlib's, and a CPU for each agent that trains at the same time."""
        request = super().default_resource_request(config)
        own = cls.get_default_config().update_from_dict(dict(config))
        at_once = own.members_at_once
        if at_once is None:
            at_once = min(own.size, len(os.sched_getaffinity(0)))
        return PlacementGroupFactory([*request.bundles, *[{"CPU": 1.0}] * at_once], strategy=request.strategy)

    @override(BestResponsePPO)
    def training_step(self) -> None:
        """One round of runs; after the last round of an iteration also games, exploitation and mutation."""
        population = self._population = self._population or self._begun()
        number = self.config.size - len(population.rounds)
        runs = [
            self._run_of(partner, learner, [population.iteration, number, learner])
            for partner, learner in population.rounds[0]
        ]
        results = self._results(runs)
        population.learned([result.state for result in results])
        self._count(results)
        if not population.rounds:
            self._select(population)
        act_by(self, policy_of(self._kept_policy(population)))
        self._log_population(population)

    def _begun(self) -> PBTPopulation:
        config = self.config
        settings = {name: getattr(config, name) for name in config.mutate}
        first = self._results([MemberRun(self._member_config(settings, [agent]), 0) for agent in range(config.size)])
        return PBTPopulation([PBTAgent(one.state, 0, settings) for one in first], config.seed or 0)

    def _results(self, runs: Sequence[MemberRun]) -> list[MemberResult]:
        """Results of runs that Ray does side by side on the CPUs that it has."""
        if self.config.members_at_once == 0:
            return [run_member(run) for run in runs]
        if ray.cluster_resources().get("CPU", 0) < 1:
            raise UserError(
                "Ray has no CPU for a run of an agent; start it with one at least, or set `members_at_once` to 0."
            )
        results: list[MemberResult] = ray.get([run_member_remotely.remote(run) for run in runs])
        return results

    def _run_of(self, partner: int, learner: int, place: list[int]) -> MemberRun:
        assert self._population is not None
        agent, other = self._population.agents[learner], self._population.agents[partner]
        return MemberRun(
            config=self._member_config(agent.settings, place),
            batches=self.config.run_batches,
            state=agent.state[STATE],
            partner=other.state[POLICY],
            steps_before=agent.runs * self.config.run_steps(),
        )

    def _member_config(self, settings: Mapping[str, Any], place: Sequence[int]) -> PBTConfig:
        """The config of a run: the agent's settings, and a seed of its own."""
        config: PBTConfig = self.config.copy(copy_frozen=False)
        config.training(**settings)
        if "lr" in settings:
            config.critic_lr = self.config.critic_lr * settings["lr"] / self.config.lr
        config.debugging(seed=int(np.random.SeedSequence([self.config.seed or 0, *place]).generate_state(1)[0]) % 2**31)
        config.evaluation(evaluation_interval=None)
        config.keep_policy_every = None
        return config

    def _select(self, population: PBTPopulation) -> None:
        config = self.config
        pairs = played_pairs(config.size)
        policies = [policy_of(agent.state[POLICY]) for agent in population.agents]
        seed = [config.seed or 0, population.iteration]
        matches = play_matches(policies, pairs, config.selection_games // 2, config.env_config, seed)
        self._played_steps += int(matches.steps.sum())
        # All agents have learned in as many runs, so that their shaped rewards have the same factor.
        factor = shaping_factor(population.agents[0].runs * config.run_steps(), config.shaping_horizon)
        rates, scores = self._judged(matches, factor)
        worst, best = population.select(
            rates,
            scores,
            [agent.state[POLICY] for agent in population.agents],
            config.mutation_probability,
            config.mutation_factors,
        )
        alone = np.array([first == second for first, second in pairs])
        figures = {"worst": worst, "best": best, "fitness_best": rates[best]}
        figures |= {"score_self_play": matches.scores[alone].mean(), "score_cross_play": matches.scores[~alone].mean()}
        self._selected = {name: float(value) for name, value in figures.items()}

    def _judged(self, matches: Matches, factor: float) -> tuple[np.ndarray, np.ndarray]:
        """Fitness and mean points (K,) of the agents."""
        square = (self.config.size, self.config.size)
        dense = (matches.sparse + factor * matches.shaped).reshape(square)
        scores = sparse_means(matches.sparse.reshape(square), np.full(square, float(matches.games)))
        return fitness(dense, matches.steps.reshape(square)), scores

    def _kept_policy(self, population: PBTPopulation) -> Mapping[str, Any]:
        found = [best for best in population.best if best is not None]
        if self.config.kept == BEST and found:
            return max(found, key=lambda best: best[0])[1]
        policy: Mapping[str, Any] = population.agents[0].state[POLICY]
        return policy

    def _count(self, results: Sequence[MemberResult]) -> None:
        log, place = self.metrics.log_value, ENV_RUNNER_RESULTS
        steps, games = sum(result.steps for result in results), sum(result.games for result in results)
        log((place, NUM_ENV_STEPS_SAMPLED), steps, reduce="sum")
        log((place, NUM_ENV_STEPS_SAMPLED_LIFETIME), steps, reduce="lifetime_sum", with_throughput=True)
        log((place, NUM_EPISODES), games, reduce="sum")
        log((place, NUM_EPISODES_LIFETIME), games, reduce="lifetime_sum")
        for name in results[0].figures:
            values = [result.figures[name] for result in results if name in result.figures]
            log((place, name), float(np.mean(values)), window=1)
        for agent in AGENTS:
            decisions = sum(result.decisions.get(agent, 0) for result in results)
            log((place, NUM_AGENT_STEPS_SAMPLED_LIFETIME, agent), decisions, reduce="lifetime_sum")
        for agent in AGENTS:  # both cooks get all points
            scores = [result.figures["score"] for result in results if "score" in result.figures]
            if scores:
                log((place, "agent_episode_returns_mean", agent), float(np.mean(scores)), window=1)

    def _log_population(self, population: PBTPopulation) -> None:
        log = self.metrics.log_value
        log((POPULATION, "iterations"), population.iteration, window=1)
        log((POPULATION, "game_steps"), self._game_steps() + self._played_steps, window=1)
        for name, value in self._selected.items():
            log((POPULATION, name), value, window=1)
        for number, agent in enumerate(population.agents):
            for name, value in agent.settings.items():
                log((POPULATION, f"agent_{number}", name), float(value), window=1)

    @override(Checkpointable)
    def get_state(self, components: Any = None, *, not_components: Any = None, **kwargs: Any) -> dict[str, Any]:
        """As RLlib's, with the whole population."""
        state = super().get_state(components, not_components=not_components, **kwargs)
        if self._population is not None and self._check_component(POPULATION, components, not_components):
            state[POPULATION] = {
                "agents": self._population.get_state(),
                "played_steps": self._played_steps,
                "selected": dict(self._selected),
            }
        return state

    @override(Checkpointable)
    def set_state(self, state: dict[str, Any]) -> None:
        """As RLlib's, with the whole population."""
        super().set_state(state)
        if POPULATION in state:
            self._population = PBTPopulation([], 0)
            self._population.set_state(state[POPULATION]["agents"])
            self._played_steps, self._selected = state[POPULATION]["played_steps"], state[POPULATION]["selected"]
