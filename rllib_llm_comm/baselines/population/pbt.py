"""Population-based training of agents that play with each other (Carroll et al. 2019, arXiv 1910.05789, and its code);
not Ray Tune's. `PBT` is that of the onion-soup kitchens; that of agents that talk is `talkers.VercoPBT`."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import ray
from pydantic import Field, model_validator
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.core import COMPONENT_LEARNER
from ray.rllib.core.learner.learner import COMPONENT_METRICS_LOGGER
from ray.rllib.utils.annotations import override
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
from rllib_llm_comm.baselines.population.responder import (
    POPULATION,
    MemberSettings,
    Met,
    PopulationConfigMixin,
    PopulationMixin,
    Responder,
    end,
    talk_figures,
    with_members,
)
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.phases import TOKENS
from rllib_llm_comm.core.settings import Several
from rllib_llm_comm.rl.past_policies import PastPolicy
from rllib_llm_comm.rl.policy_checkpoints import PolicyCheckpointMixin

STATE, POLICY = "learner", "policy"
_MOST = 10**6
Setting = int | float


class PBTSettings(MemberSettings):
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

    @model_validator(mode="after")
    def _half_in_each_seat(self) -> Self:
        if self.selection_games % 2:
            raise UserError(f"`selection_games` is {self.selection_games} but must be even: half of them in each seat.")
        return self


@dataclasses.dataclass(frozen=True)
class MemberRun:
    """A run of one member.

    Attributes:
        config: Its config, with the run's seed and settings.
        batches: Train batches; 0 builds the member only.
        state: The Learner's state that it goes on from, or `None` at its beginning.
        partner: The frozen partner of all games, a `PastPolicy` as a mapping; `None` with 0 batches.
        traits: As of `Met`, of the partner.
        steps_before: Game steps of its earlier runs.
    """

    algorithm: type[Responder]
    config: Any
    batches: int
    state: Mapping[str, Any] | None = None
    partner: Mapping[str, Any] | None = None
    traits: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    steps_before: int = 0


@dataclasses.dataclass(frozen=True)
class MemberResult:
    """Results of a run.

    Attributes:
        state: `learner`, the Learner's state (weights and optimizers), and `policy`, a `PastPolicy` as a mapping.
        figures: Means of the last games: `score`, and in the onion-soup kitchens `shaped`.
        talk: What it says, as of `talk_figures`.
        games: Games that ended.
        decisions: By cook, those that were learned from.
        tokens: Those that a language model has computed.
    """

    state: dict[str, Any]
    figures: dict[str, float]
    steps: int
    games: int
    decisions: dict[str, int]
    talk: dict[str, float] = dataclasses.field(default_factory=dict)
    tokens: int = 0


def run_member(run: MemberRun) -> MemberResult:
    """Builds a member's algorithm in this process, trains it and stops it."""
    config = run.config.copy(copy_frozen=False)
    algo: Any = run.algorithm(config=config)
    try:
        algo.steps_before = run.steps_before
        if run.state is not None:
            go_on_from(algo, run.state)
        if run.partner is not None:
            algo.meet([Met("partner", PastPolicy.from_state(run.partner), traits=run.traits)])
        steps, games, tokens, figures = 0, 0, 0, {}
        decisions: dict[str, int] = {}
        talk: dict[str, float] = {}
        for _ in range(run.batches):
            results = algo.train()
            found, talk = results["env_runners"], talk_figures(results)
            steps, games = int(found["num_env_steps_sampled_lifetime"]), int(found.get("num_episodes_lifetime", 0))
            shown = {"score": algo.score_of(found), "shaped": float(found.get("shaped", math.nan))}
            figures = {name: value for name, value in shown.items() if not math.isnan(value)}
            decisions = {agent: int(count) for agent, count in found[NUM_AGENT_STEPS_SAMPLED_LIFETIME].items()}
            tokens = int(results.get(TOKENS, 0))
        return MemberResult(state_of(algo), figures, steps, games, decisions, talk, tokens)
    finally:
        end(algo)


run_member_remotely = ray.remote(run_member)  # once: Ray warns of a function that is sent again and again


def go_on_from(algo: Responder, learner: Mapping[str, Any]) -> None:
    """Gives an algorithm `learner` of an earlier `state_of`; its EnvRunners act and judge by it, too."""
    algo.learner_group.set_state({COMPONENT_LEARNER: learner})
    algo.sync_runners()


def state_of(algo: Responder) -> dict[str, Any]:
    """Everything that a member goes on from, and its policy."""
    learner = algo.learner_group.get_state(
        components=COMPONENT_LEARNER, not_components=f"{COMPONENT_LEARNER}/{COMPONENT_METRICS_LOGGER}"
    )[COMPONENT_LEARNER]
    return {STATE: learner, POLICY: algo.policy_now(algo.iteration, math.nan).to_state()}


@dataclasses.dataclass(frozen=True)
class PBTAgent:
    """An agent of the population.

    Attributes:
        state: All that its learning goes on from: weights, optimizers, counts.
        runs: PPO runs that its weights have behind them; copied with the weights.
        settings: PPO settings that mutate, by name.
        kind: Its kind, copied with the weights; empty where there are none.
    """

    state: Any
    runs: int
    settings: Mapping[str, Setting]
    kind: str = ""


def drawn_rounds(agents: int, rng: np.random.Generator) -> list[list[tuple[int, int]]]:
    """All ordered pairs of an iteration, in random order, in rounds that can be trained side by side.

    All K^2 pairs are put in a random order. Round r holds each learner's r-th pair of it: a learner's runs keep their
    order, and the K runs of a round have K different learners.

    Args:
        agents: K, >= 1.

    Returns:
        K rounds of K pairs (partner, learner), the partner frozen; an agent learns with itself, too.
    """
    order = rng.permutation(agents * agents)
    own: list[list[tuple[int, int]]] = [[] for _ in range(agents)]
    for number in order:
        partner, learner = divmod(int(number), agents)
        own[learner].append((partner, learner))
    return [[own[learner][turn] for learner in range(agents)] for turn in range(agents)]


def fitness(rewards: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Reward per step (K,) of each agent, the mean over all partners, itself among them.

    With one partner it is the sum of rewards over the sum of lengths of all their games, in both seats. With numbers
    of games in place of lengths it is the mean reward of a game.

    Args:
        rewards: (K, K) sums over games of the team's dense rewards, [i, j] of i as player 0 with j as player 1.
        lengths: (K, K) sums of these games' steps, > 0.
    """
    rates: np.ndarray = (rewards + rewards.T) / (lengths + lengths.T)
    return rates.mean(1)


def mutated(
    settings: Mapping[str, Setting], rng: np.random.Generator, probability: float, factors: Sequence[float]
) -> dict[str, Setting]:
    """Settings of which each has changed with some probability.

    A setting is multiplied by one of the factors. `lambda_` moves by half of its distance to 0 or 1, the nearer one,
    up or down. Whole numbers are truncated and at least 1.

    Args:
        settings: By name; `lambda_` in [0, 1].
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
        iteration: Iterations that are complete.
        rounds: Rounds of the running iteration that are left, as of `drawn_rounds`; empty if games are due.
        best: Per agent the highest mean sparse reward so far and the policy that had it; `None` before the first games.

    Args:
        seed: Of orders and mutations.
    """

    def __init__(self, agents: Sequence[PBTAgent], seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self.agents = list(agents)
        self.iteration = 0
        self.rounds = drawn_rounds(len(agents), self._rng)
        self.best: list[tuple[float, Any] | None] = [None] * len(agents)

    def learned(self, states: Sequence[Any]) -> None:
        """Takes in the new states of the learners of the first of `rounds`, in the order of its pairs."""
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

        The worst agent takes over the best one's weights, count and mutated settings.

        Args:
            fitnesses: (K,) as of `fitness`; of equal ones the first counts.
            scores: (K,) mean points of a game, as of `fitness`.
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
        worst, best = int(np.argmin(fitnesses)), int(np.argmax(fitnesses))
        if worst != best:
            settings = mutated(self.agents[best].settings, self._rng, probability, factors)
            self.agents[worst] = dataclasses.replace(self.agents[best], settings=settings)
        self.iteration += 1
        self.rounds = drawn_rounds(len(self.agents), self._rng)
        return worst, best

    def get_state(self) -> dict[str, Any]:
        """All of it, in plain types."""
        return {
            "agents": [{**vars(agent), "settings": dict(agent.settings)} for agent in self.agents],
            "iteration": self.iteration,
            "rounds": [list(pairs) for pairs in self.rounds],
            "best": list(self.best),
            "rng": self._rng.bit_generator.state,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Goes on from a state."""
        self.agents = [PBTAgent(**agent) for agent in state["agents"]]
        self.iteration = state["iteration"]
        self.rounds = [list(pairs) for pairs in state["rounds"]]
        self.best = list(state["best"])
        self._rng.bit_generator.state = state["rng"]


class PBTConfigMixin(PopulationConfigMixin):
    """Adds `.population(...)` to the config of a learner that meets frozen policies.

    Attributes:
        run_algorithm: Class of a member's learner.
    """

    run_algorithm: ClassVar[type[Responder]]
    size: int
    run_batches: int
    mutate: Sequence[str]

    def validate(self) -> None:
        """Checks all settings; a `UserError` names one that is not allowed or does not fit the others."""
        self.checked_settings("population")  # what follows takes them for what they are declared as
        for name in (*self.mutate, "critic_lr"):
            if isinstance(getattr(self, name, None), list):
                raise UserError(f"`{name}` is a schedule but PBT moves it; give a number, or omit it from `mutate`.")
        for kind, settings in self.member_kinds.items():
            if isinstance(settings, Mapping) and isinstance(settings.get("critic_lr"), list):
                raise UserError(f"`member_kinds.{kind}.critic_lr` is a schedule but PBT moves it; give a number.")
        if self.pool or self.self_play_share:
            raise UserError("`pool` and `self_play_share` mean nothing to PBT, whose agents are each other's partners.")
        for name in ("num_env_runners", "num_learners"):
            if getattr(self, name):
                raise UserError(
                    f"`{name}` is {getattr(self, name)} but must be 0: PBT trains its agents side by side instead; set "
                    "`members_at_once`."
                )
        super().validate()

    def validate_pool(self) -> None:
        """Checks the kinds of members; a population brings its own partners."""
        self.check_kinds(self.size)

    def run_steps(self) -> int:
        """Game steps of a PPO run."""
        return int(self.run_batches * self.total_train_batch_size)


class PBTConfig(PBTConfigMixin, BestResponsePPOConfig):
    """Settings of `PBT`.

    .. testcode::
        :skipif: True

        from rllib_llm_comm import PBTConfig

        config = PBTConfig().environment(env_config={"layout": "coordination_ring"})
        algo = config.population(size=3, run_batches=3).build_algo()
        algo.train()
    """

    settings_models = {**BestResponsePPOConfig.settings_models, "population": PBTSettings}
    run_algorithm = BestResponsePPO
    partner_traits = ("greedy", "noise", "pauses")


class PBTMixin(PopulationMixin):
    """A population whose agents learn with each other, the worst replaced by the best.

    A training iteration is a round: every agent learns with one frozen partner, all side by side. After K rounds each
    agent has learned with each, games are played and the worst agent takes over the best one's weights.
    """

    _population: PBTPopulation | None = None
    _played_steps = 0
    _selected: Mapping[str, float] = MappingProxyType({})

    @classmethod
    @override(Algorithm)
    def default_resource_request(cls, config: AlgorithmConfig | dict[str, Any]) -> PlacementGroupFactory:
        """As RLlib's, and a CPU for each agent that trains at the same time."""
        request = super().default_resource_request(config)
        own = cls.get_default_config().update_from_dict(dict(config))
        return with_members(request, own.members_at_once, own.size, 1.0)

    @override(PolicyCheckpointMixin)
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
        for learner, result in enumerate(results):  # a round's learners are in the order of their numbers
            for name, value in result.talk.items():
                self.metrics.log_value((POPULATION, f"agent_{learner}", name), value, window=1)
        if not population.rounds:
            self._select(population)
        self.take_policy(PastPolicy.from_state(self._kept_policy(population)))
        self._log_population(population)

    def _begun(self) -> PBTPopulation:
        config = self.config
        settings = {name: getattr(config, name) for name in config.mutate}
        named = list(config.member_kinds) or [""]
        kinds = [named[agent % len(named)] for agent in range(config.size)]
        runs = [
            MemberRun(config.run_algorithm, self.run_config(settings, kind, [agent]), 0)
            for agent, kind in enumerate(kinds)
        ]
        first = self._results(runs)
        agents = [PBTAgent(one.state, 0, settings, kind) for one, kind in zip(first, kinds, strict=True)]
        return PBTPopulation(agents, config.seed or 0)

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
            algorithm=self.config.run_algorithm,
            config=self.run_config(agent.settings, agent.kind, place),
            batches=self.config.run_batches,
            state=agent.state[STATE],
            partner=other.state[POLICY],
            traits=self.config.traits_of(other.kind),
            steps_before=agent.runs * self.config.run_steps(),
        )

    def run_config(self, settings: Mapping[str, Any], kind: str, place: Sequence[int]) -> Any:
        """The config of a run: the agent's settings, those of its kind, and a seed of its own."""
        config: Any = self.config.copy(copy_frozen=False)
        config.update_from_dict(self.config.kind_settings(kind))
        config.training(**settings)
        if "lr" in settings:
            config.critic_lr *= settings["lr"] / self.config.lr  # that of its kind, if it has one
        config.debugging(seed=int(np.random.SeedSequence([self.config.seed or 0, *place]).generate_state(1)[0]) % 2**31)
        config.evaluation(evaluation_interval=None)
        config.keep_policy_every = None
        return config

    def _select(self, population: PBTPopulation) -> None:
        config = self.config
        agents = range(config.size)
        pairs = list(itertools.product(agents, agents))  # every agent with every one in both seats
        policies = [PastPolicy.from_state(agent.state[POLICY]) for agent in population.agents]
        seed = [config.seed or 0, population.iteration]
        matches = self.play_pairs(policies, pairs, config.selection_games // 2, seed)
        self._played_steps += int(matches.steps.sum())
        # All agents have learned in as many runs, so that their shaped rewards have the same factor.
        factor = self.shaping(population.agents[0].runs * config.run_steps())
        square = (config.size, config.size)
        rates = fitness((matches.sparse + factor * matches.shaped).reshape(square), matches.steps.reshape(square))
        scores = fitness(matches.sparse.reshape(square), np.full(square, float(matches.games)))
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

    def _kept_policy(self, population: PBTPopulation) -> Mapping[str, Any]:
        found = [best for best in population.best if best is not None]
        if self.config.kept == "best" and found:
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
        if tokens := sum(result.tokens for result in results):
            log((place, TOKENS), tokens, reduce="lifetime_sum")
        for name in {name: None for result in results for name in result.figures}:
            values = [result.figures[name] for result in results if name in result.figures]
            log((place, name), float(np.mean(values)), window=1)
        agents = sorted({agent for result in results for agent in result.decisions})
        for agent in agents:
            decisions = sum(result.decisions.get(agent, 0) for result in results)
            log((place, NUM_AGENT_STEPS_SAMPLED_LIFETIME, agent), decisions, reduce="lifetime_sum")
        for agent in agents:  # the score is the team's
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

    @override(PolicyCheckpointMixin)
    def save_policy(self, folder: Any) -> None:
        """Writes the kept policy, as it was trained."""
        if self._population is None:
            super().save_policy(folder)
            return
        kept = PastPolicy.from_state(self._kept_policy(self._population))
        own = {**kept.manifest["provenance"], **self.provenance(), "training_iteration": self.training_iteration}
        dataclasses.replace(
            kept, manifest={**kept.manifest, "algorithm": type(self).__name__, "provenance": own}
        ).write(Path(folder))

    @override(PopulationMixin)
    def population_policies(self) -> Mapping[str, PastPolicy]:
        """One of each agent."""
        agents = [] if self._population is None else self._population.agents
        return {f"agent_{number}": PastPolicy.from_state(one.state[POLICY]) for number, one in enumerate(agents)}

    @override(PopulationMixin)
    def population_state(self) -> dict[str, Any] | None:
        """The agents, and the figures of the last selection."""
        if self._population is None:
            return None
        agents = self._population.get_state()
        return {"agents": agents, "played_steps": self._played_steps, "selected": dict(self._selected)}

    @override(PopulationMixin)
    def set_population_state(self, state: Any) -> None:
        """Sets the agents, and the figures of the last selection."""
        self._population = PBTPopulation([], 0)
        self._population.set_state(state["agents"])
        self._played_steps, self._selected = state["played_steps"], state["selected"]


class PBT(PBTMixin, BestResponsePPO):
    """Population-based training in the onion-soup kitchens; settings: `PBTConfig`."""

    config_class = PBTConfig
