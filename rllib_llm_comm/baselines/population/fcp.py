"""Fictitious co-play (Strouse et al. 2021): a best response to self-play of many ages, whatever the members play.

`FCP` is that of the onion-soup kitchens; that of agents that talk is `talkers.VercoFCP`.
"""

from __future__ import annotations

import copy
import math
import os
import re
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import ray
from pydantic import Field
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.utils.annotations import override
from ray.rllib.utils.checkpoints import Checkpointable
from ray.tune.execution.placement_groups import PlacementGroupFactory
from ray.tune.result import SHOULD_CHECKPOINT
from typing_extensions import Self

from rllib_llm_comm.baselines.population.best_response_ppo import BestResponsePPO, BestResponsePPOConfig
from rllib_llm_comm.baselines.population.kitchen_partners import read_policy
from rllib_llm_comm.baselines.population.responder import (
    POPULATION,
    MemberSettings,
    Met,
    PopulationConfigMixin,
    PopulationMixin,
    end,
    require_own,
    talk_figures,
    with_members,
)
from rllib_llm_comm.baselines.population.self_play_ppo import SelfPlayPPOConfig
from rllib_llm_comm.core.errors import LARGEST, UserError, did_you_mean
from rllib_llm_comm.core.places import local_path
from rllib_llm_comm.core.settings import Settings
from rllib_llm_comm.envs.overcooked_ai.rules import HORIZON
from rllib_llm_comm.policies.find_checkpoint import is_named
from rllib_llm_comm.policies.policy_folder import PolicyExport, find_policy
from rllib_llm_comm.policies.policy_manifest import PolicyManifest
from rllib_llm_comm.rl.past_policies import AGES, FINAL, HALF_WAY, KeepsPastPolicies, PastPolicy, milestones
from rllib_llm_comm.rl.policy_checkpoints import PolicyCheckpointMixin

# Between the seeds of two parts of a member, whose games are not to begin with the same random numbers.
_PART = 100_003
_SEEDS = 1000
NO_KIND = "seed"
_MEMBER = re.compile(r"(?P<kind>[A-Za-z0-9_-]+)_(?P<seed>\d+)_(?P<age>initial|half_way|final)")
MEMBER_SETTINGS = (
    "activation", "advantage_floor", "anneal", "clip_param", "critic_lr", "critic_warmup", "entropy_coeff", "gamma",
    "grad_clip", "grad_clip_by", "hiddens", "lambda_", "lr", "metrics_num_episodes_for_smoothing", "minibatch_size",
    "num_envs_per_env_runner", "num_epochs", "shaping_horizon", "shuffle_batch_per_epoch", "target_kl",
    "train_batch_size_per_learner", "value_clip_mode", "vf_clip_param", "vf_loss_coeff",
)  # fmt: skip
"""Settings in which members may differ from the learner: those of their network, their games and their updates."""
# Settings of the learner alone, or of this object; members have their own.
_NOT_OF_MEMBERS = ("algo_class", "_is_frozen", "seed", "keep_policy_every", "num_env_runners", "num_learners",
                   "num_gpus_per_learner", "evaluation_interval")  # fmt: skip


class FCPPopulation(MemberSettings):
    """The population of self-play."""

    population_size: int = Field(8, ge=1, le=_SEEDS)
    """N, its members. 8 (ours); the paper: 32; COLE's code: 5."""
    member_iterations: int = Field(160, ge=1, le=LARGEST)
    """Training iterations of a member, each with half as many game steps as `train_batch_size_per_learner` has rows.
    160, which are 1,024,000 steps (ours)."""
    iterations_per_task: int = Field(20, ge=1, le=LARGEST)
    """Iterations of a Ray task: at most those of the running tasks are lost by a crash (ours)."""
    member_keep_every: int = Field(4, ge=1, le=LARGEST)
    """Iterations between the policies among which the half-way one is chosen (ours)."""
    past_checkpoints: bool = True
    """True (the paper): initial and half-way policies are partners, too. False: the paper's ablation, final ones
    alone."""
    member_settings: dict[str, Any] = Field(default_factory=dict)
    """Settings in which members differ from the learner, such as `{"num_epochs": 4}`: those in `MEMBER_SETTINGS`. None:
    they have the learner's (ours)."""
    population_from: str | Path | None = None
    """None, or a checkpoint of FCP whose population is done. Its members are taken and none is trained: for another
    learner, or for the ablation of `past_checkpoints`. Size and settings of members mean nothing then. Tune reads it
    once more when it goes on with a run; `FCP.from_checkpoint` does not."""
    num_cpus_per_member: float = Field(1, gt=0)
    """CPUs of a task."""


@dataclass
class Member:
    """A member of the population.

    Attributes:
        seed: Its seed; without kinds members differ by it and by nothing else.
        score: Mean score of its last games; NaN before any ended.
        state: State of its algorithm, from which the next part goes on; `None` before the first and when it is done.
        milestones: Its initial, half-way and final policy, when it is done.
        kind: Its kind; "seed" where there are none.
        talk: What it says, as of `talk_figures`, in the last iteration of its latest part.
    """

    seed: int
    iterations: int = 0
    game_steps: int = 0
    score: float = math.nan
    state: dict[str, Any] | None = None
    milestones: dict[str, PastPolicy] = field(default_factory=dict)
    kind: str = NO_KIND
    talk: dict[str, float] = field(default_factory=dict)

    def to_state(self) -> dict[str, Any]:
        """Plain values for the algorithm's state."""
        return {**vars(self), "milestones": {name: one.to_state() for name, one in self.milestones.items()}}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Member:
        """The member of `to_state`."""
        found = {name: PastPolicy.from_state(one) for name, one in state["milestones"].items()}
        return cls(**{**state, "milestones": found})


class Population:
    """Members that are trained one part after the other, as many side by side as Ray has CPUs for.

    A part that is under way belongs to no state: whoever goes on from a checkpoint begins it anew. What a part
    computes depends on the member and the part alone, not on which part ends first.

    Args:
        members: They have not begun.
        configs: Settings of each; the seed is the member's own.
        cpus: CPUs of a task; 0: parts are trained one after the other in this process.
    """

    def __init__(
        self, members: Sequence[Member], configs: Sequence[Any], iterations: int, part: int, cpus: float
    ) -> None:
        self.members = list(members)
        self._configs, self._iterations, self._part, self._cpus = list(configs), iterations, part, cpus
        self._running: dict[Any, int] = {}

    @property
    def done(self) -> bool:
        """True if all members have had all their iterations."""
        return all(member.milestones for member in self.members)

    @property
    def game_steps(self) -> int:
        """Game steps of all members."""
        return sum(member.game_steps for member in self.members)

    def advance(self) -> int:
        """Starts what can be started and waits for the end of one part; gives the place of its member.

        Raises:
            UserError: If Ray has too few CPUs for a task, or a setting proves wrong there.
        """
        place, result = self._in_this_process() if self._cpus == 0 else self._in_a_task()
        member, past = self.members[place], [PastPolicy.from_state(one) for one in result["past"]]
        member.iterations, member.state = result["iterations"], result["state"]
        member.game_steps, member.score = past[-1].game_steps, past[-1].score
        member.talk = result["talk"]
        if member.iterations >= self._iterations:
            member.milestones, member.state = milestones(past), None
        return place

    def _in_this_process(self) -> tuple[int, dict[str, Any]]:
        """The next part of the member that is furthest behind."""
        waiting = [place for place, member in enumerate(self.members) if not member.milestones]
        place = min(waiting, key=lambda one: self.members[one].iterations)
        return place, train_part(*self._next_part(place))

    def _in_a_task(self) -> tuple[int, dict[str, Any]]:
        most = ray.cluster_resources().get("CPU", 0)
        if most < self._cpus:
            raise UserError(
                f"`num_cpus_per_member` is {self._cpus} but Ray has {most:g} CPUs, so that no member could ever be "
                "trained; start Ray with more."
            )
        train = ray.remote(train_part).options(num_cpus=self._cpus)
        for place, member in enumerate(self.members):
            if not member.milestones and place not in self._running.values():
                self._running[train.remote(*self._next_part(place))] = place
        (ended,), _ = ray.wait(list(self._running), num_returns=1)
        return self._running.pop(ended), ray.get(ended)

    def _next_part(self, place: int) -> tuple[Any, Mapping[str, Any] | None, int]:
        member, config = self.members[place], self._configs[place].copy(copy_frozen=False)
        config.seed = member.seed + _PART * (member.iterations // self._part)
        return config, member.state, min(self._part, self._iterations - member.iterations)

    def stop(self) -> None:
        """Ends the parts that are under way; what they have done is lost."""
        for part in self._running:
            ray.cancel(part, force=True)
        self._running.clear()

    def to_state(self) -> list[dict[str, Any]]:
        """The members as plain values."""
        return [member.to_state() for member in self.members]

    def set_state(self, state: Sequence[Mapping[str, Any]]) -> None:
        """Goes on from what `to_state` gave."""
        self.stop()
        self.members = [Member.from_state(one) for one in state]


def train_part(config: Any, state: Mapping[str, Any] | None, iterations: int) -> dict[str, Any]:
    """Trains one member for some iterations, in this process.

    Args:
        config: Its settings, of an algorithm that keeps past policies.
        state: State of its algorithm to go on from; `None` at the beginning.

    Returns:
        `state`, `iterations` behind it, `past`, its kept policies with that of now at the end, and `talk`, as of
        `talk_figures`.
    """
    algo = config.build_algo()
    try:
        if state is not None:
            algo.set_state(state)
        talk: dict[str, float] = {}
        for _ in range(iterations):
            talk = talk_figures(algo.train())
        past = [one.to_state() for one in algo.past_policies()]
        return {"state": algo.get_state(), "iterations": algo.iteration, "past": past, "talk": talk}
    finally:
        end(algo)


def read_members(where: str, read: Callable[[Path], tuple[PolicyExport, PolicyManifest]], past: bool) -> list[Member]:
    """The members of an FCP run whose population is done, from the policy folders in its checkpoint.

    Args:
        where: A checkpoint of FCP, or a folder in which `find_policy` finds one.
        read: Reads a policy folder, and refuses one that cannot be met.
        past: Whether initial and half-way policies are needed, too.

    Raises:
        UserError: If there is none, its population is not done, a policy is missing, or it cannot be met here.
    """
    try:
        folder = find_policy(where).parent / POPULATION
    except UserError as error:
        raise UserError(
            f"`population_from` is {where!r} but must be a checkpoint of FCP, or the folder of a run with one."
        ) from error
    found: dict[int, Member] = {}
    for one in sorted(folder.glob("*_*")):
        named = _MEMBER.fullmatch(one.name)
        if named is None:
            continue
        policy, manifest = read(one)
        origin = manifest.provenance
        if "game_steps" not in origin:
            raise UserError(f"`population_from` is {where!r}, which an older version wrote; train its population anew.")
        score = math.nan if origin["score"] is None else float(origin["score"])
        iteration, steps = int(origin["training_iteration"]), int(origin["game_steps"])
        member = found.setdefault(int(named["seed"]), Member(int(named["seed"]), kind=named["kind"]))
        member.milestones[named["age"]] = PastPolicy(iteration, steps, score, policy, vars(manifest))
    if not found:
        raise UserError(
            f"`population_from` is {where!r}, which holds no population; give a checkpoint of FCP whose members are "
            "all done."
        )
    for member in found.values():
        lacking = [one for one in (AGES if past else (FINAL,)) if one not in member.milestones]
        if lacking:
            raise UserError(
                f"`population_from` is {where!r}, whose member {member.seed} has no policy "
                f"{' and '.join(lacking)!r}; give the run that trained the members, or use `past_checkpoints` false, "
                "which needs final policies alone."
            )
        final = member.milestones[FINAL]
        member.iterations, member.game_steps, member.score = final.iteration, final.game_steps, final.score
    return list(found.values())


def partners_of(members: Sequence[Member], past: bool) -> dict[str, PastPolicy]:
    """The pool of the best response by name: of each member its milestones, or its final policy alone.

    Args:
        members: Members that are done.
        past: Whether initial and half-way policies belong to the pool.
    """
    return {
        f"{member.kind}_{member.seed}_{name}": one
        for member in members
        for name, one in member.milestones.items()
        if past or name == FINAL
    }


class FCPConfigMixin(PopulationConfigMixin):
    """Adds `.population(...)` to the config of a learner that meets frozen policies.

    Attributes:
        not_of_members: Settings of the learner alone, or of the config itself; members have their own.
    """

    not_of_members: ClassVar[tuple[str, ...]] = _NOT_OF_MEMBERS
    population_size: int
    population_from: str | Path | None
    past_checkpoints: bool
    member_settings: Mapping[str, Any]
    member_keep_every: int
    member_iterations: int
    iterations_per_task: int

    def __init__(self, algo_class: type | None = None) -> None:
        """Sets the defaults: a population for two CPU cores (ours)."""
        super().__init__(algo_class=algo_class)
        self._members_are_known = False  # a checkpoint's: its state has members that an earlier run trained

    def population(self, settings: Settings | None = None, /, **values: Any) -> Self:
        """Sets the population of self-play; the settings are those of `FCPPopulation` (`size`: `population_size`)."""
        named = {"population_size" if name == "size" else name: value for name, value in values.items()}
        return super().population(settings, **named)

    @abstractmethod
    def untrained_member(self) -> Any:
        """A config of self-play with its defaults."""

    @abstractmethod
    def read_member(self, folder: Path) -> tuple[PolicyExport, PolicyManifest]:
        """Reads a member's policy folder.

        Raises:
            UserError: If it cannot be met here.
        """

    def members(self) -> list[Member]:
        """The members before their training.

        Their seeds are 1000 * (`seed` + 1) and those that follow, which are no seeds below 1000.
        """
        first, kinds = _SEEDS * ((self.seed or 0) + 1), list(self.member_kinds) or [NO_KIND]
        return [Member(first + place, kind=kinds[place % len(kinds)]) for place in range(self.population_size)]

    def member_config(self, kind: str = NO_KIND) -> Any:
        """Settings of a member: those of this config that self-play has, in one process."""
        config = self.untrained_member()
        for name, value in vars(self).items():
            if name in vars(config) and name not in self.not_of_members:
                setattr(config, name, copy.deepcopy(value))
        config.keep_policy_every = self.member_keep_every
        return config.update_from_dict({**self.member_settings, **self.kind_settings(kind)})

    def most_partners(self) -> int:
        """The number of the members' policies that the learner meets."""
        return self.population_size * (len(AGES) if self.past_checkpoints else 1)

    def validate_pool(self) -> None:
        """Checks the population, or where it is taken from."""
        if self.pool:
            raise UserError(
                f"`pool` is {self.pool!r} but FCP makes its partners itself; omit it, or train a best response "
                "to a pool of your own (BestResponsePPO; of language agents Verco)."
            )
        require_own("member_settings", self.member_settings, self.member_settings_known)
        self.check_kinds(_SEEDS if self.population_from is not None else self.population_size)
        if self.population_from is not None:
            self._take_population(self.population_from)
        elif not self._members_are_known:
            self.validate_members()

    def _take_population(self, where: str | Path) -> None:
        if is_named(where):
            raise UserError(
                f"`population_from` is {str(where)!r} but must be a folder on this machine, a checkpoint of FCP; give "
                "single policies to a pool of your own (BestResponsePPO; of language agents Verco)."
            )
        self.population_from = str(local_path(str(where), "population_from").absolute())
        if not os.path.exists(self.population_from):
            raise UserError(
                f"`population_from` is {self.population_from!r}, where nothing is; give a checkpoint of FCP. If it was "
                "there when this run began, put it back, since Tune reads it again, or begin a run whose `restore` and "
                "`population_from` are both the newest checkpoint of this one, which holds all members."
            )
        members = read_members(self.population_from, self.read_member, self.past_checkpoints)
        kinds = {member.kind for member in members}
        if unknown := [kind for kind in self.member_kinds if kind not in kinds]:
            raise UserError(
                f"`member_kinds` has {unknown[0]!r} but the members of `population_from` are of the kinds "
                f"{', '.join(sorted(kinds))}; name one of them, or omit it.{did_you_mean(unknown[0], kinds)}"
            )
        self.population_size = len(members)

    def validate_members(self) -> None:
        """Checks the settings with which each kind of members is trained."""
        for kind in self.member_kinds or (NO_KIND,):
            member = self.member_config(kind)
            try:
                member.validate()
            except UserError as error:
                of = f"`member_kinds.{kind}`" if self.member_kinds else "`member_settings`"
                raise UserError(f"Members have the learner's settings and those of {of}, with which {error}") from error


class FCPConfig(FCPConfigMixin, BestResponsePPOConfig):
    """Settings of `FCP`.

    .. testcode::
        :skipif: True

        from rllib_llm_comm import FCPConfig

        config = FCPConfig().environment(env_config={"layout": "coordination_ring"})
        config.population(size=8, member_iterations=160)
        algo = config.build_algo()
        while True:
            algo.train()
    """

    settings_models = {**BestResponsePPOConfig.settings_models, "population": FCPPopulation}
    member_settings_known = MEMBER_SETTINGS
    partner_traits = ("greedy", "noise", "pauses")

    @override(FCPConfigMixin)
    def untrained_member(self) -> SelfPlayPPOConfig:
        """A config of self-play with its defaults."""
        return SelfPlayPPOConfig()

    @override(FCPConfigMixin)
    def read_member(self, folder: Path) -> tuple[PolicyExport, PolicyManifest]:
        """Reads a member's policy folder; it must be of this kitchen."""
        return read_policy(folder, self.env_config)

    @override(FCPConfigMixin)
    def validate_members(self) -> None:
        """Checks that a game ends within an iteration of a member, too."""
        super().validate_members()
        for kind in self.member_kinds or (NO_KIND,):
            member = self.member_config(kind)
            steps = member.total_train_batch_size // member.rows_per_step()
            horizon = self.env_config.get("horizon", HORIZON)
            if steps * min(self.iterations_per_task, self.member_iterations) < horizon:
                raise UserError(
                    f"`iterations_per_task` is {self.iterations_per_task} and `member_iterations` "
                    f"{self.member_iterations} of {steps} steps each, in which no game of {horizon} steps ends; raise "
                    "them."
                )


class FCPMixin(PopulationMixin):
    """Fictitious co-play of a learner that meets frozen policies: self-play members first, then a best response.

    An iteration is the end of one member's part while the population grows, and one of the learner afterwards.
    """

    _seated = False

    @classmethod
    @override(Algorithm)
    def default_resource_request(cls, config: Any) -> PlacementGroupFactory:
        """RLlib's bundles and one for each member that trains at the same time."""
        request = super().default_resource_request(config)
        settings = cls.get_default_config().update_from_dict(config)
        if settings.population_from is not None:
            return request
        cpus = settings.num_cpus_per_member
        return with_members(request, settings.members_at_once, settings.population_size, cpus)

    @override(Algorithm)
    def setup(self, config: Any) -> None:
        """Builds the learner, and a population that has not begun."""
        super().setup(config)
        own = self.config
        members = own.members()
        configs = [] if own.population_from is not None else [own.member_config(one.kind) for one in members]
        cpus = 0 if own.members_at_once == 0 else own.num_cpus_per_member
        self._population = Population(members, configs, own.member_iterations, own.iterations_per_task, cpus)
        if own.population_from is not None:
            self._population.members = read_members(own.population_from, own.read_member, own.past_checkpoints)

    @override(KeepsPastPolicies)
    def step(self) -> dict[str, Any]:
        """An iteration, with the population's figures; every one of the population asks Tune for a checkpoint."""
        grew = not self._population.done
        results = super().step()
        members = self._population.members
        scores = [member.score for member in members if not math.isnan(member.score)]
        results[POPULATION] = {
            "members_done": sum(bool(member.milestones) for member in members),
            "member_iterations": sum(member.iterations for member in members),
            "game_steps": self._population.game_steps,
            "score_mean": sum(scores) / len(scores) if scores else math.nan,
            **{f"{member.kind}_{member.seed}": dict(member.talk) for member in members if member.talk},
        }
        results["game_steps_with_population"] = self._population.game_steps + self._game_steps()
        if grew:
            results[SHOULD_CHECKPOINT] = True
        return results

    @override(PolicyCheckpointMixin)
    def training_step(self) -> None:
        """The end of one member's part, or a roll-out and an update of the best response."""
        if not self._population.done:
            member = self._population.members[self._population.advance()]
            if self.config.past_checkpoints and member.milestones and HALF_WAY not in member.milestones:
                raise UserError(
                    f"no game of member {member.seed} ended in its last iterations, so that nobody knows its half-way "
                    "policy; raise `train_batch_size_per_learner`, or set `past_checkpoints` to false."
                )
            return
        if not self._seated:
            partners = [
                Met(name, one, traits=self.config.traits_of(member.kind))
                for member in self._population.members
                for name, one in partners_of([member], self.config.past_checkpoints).items()
            ]
            self.meet(partners)
            self._seated = True
        super().training_step()

    @override(PopulationMixin)
    def population_policies(self) -> Mapping[str, PastPolicy]:
        """When the population is done, those of each member and age."""
        return partners_of(self._population.members, past=True) if self._population.done else {}

    @override(PopulationMixin)
    def population_state(self) -> list[dict[str, Any]]:
        """The members; parts that are under way are not among it."""
        return self._population.to_state()

    @override(PopulationMixin)
    def set_population_state(self, state: Any) -> None:
        """The partners are those of this population."""
        self._population.set_state(state)
        self._seated = False

    @override(Checkpointable)
    def get_ctor_args_and_kwargs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The config without `population_from`: its members are in the state, the old folder may be gone."""
        args, kwargs = super().get_ctor_args_and_kwargs()
        known = self.config.population_from is not None or self.config._members_are_known
        given = {"population_from": None, "_members_are_known": known}
        return ({**dict(args[0]), **given}, *args[1:]), kwargs

    @override(Algorithm)
    def cleanup(self) -> None:
        """Ends the parts that are under way."""
        if hasattr(self, "_population"):
            self._population.stop()
        super().cleanup()


class FCP(FCPMixin, BestResponsePPO):
    """Fictitious co-play in the onion-soup kitchens; settings: `FCPConfig`."""

    config_class = FCPConfig
