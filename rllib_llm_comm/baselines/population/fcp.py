"""Fictitious co-play in the onion-soup kitchens (Strouse et al. 2021): a best response to self-play of many ages."""

from __future__ import annotations

import contextlib
import copy
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
from pydantic import Field
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.utils.annotations import override
from ray.tune.execution.placement_groups import PlacementGroupFactory
from ray.tune.result import SHOULD_CHECKPOINT
from typing_extensions import Self

from rllib_llm_comm.baselines.population.best_response_ppo import BestResponsePPO, BestResponsePPOConfig
from rllib_llm_comm.baselines.population.kitchen_partners import read_policy, uniform_pool
from rllib_llm_comm.baselines.population.self_play_ppo import (
    AGES,
    FINAL,
    PastPolicy,
    SelfPlayPPO,
    SelfPlayPPOConfig,
    milestones,
)
from rllib_llm_comm.core.errors import LARGEST, UserError, did_you_mean
from rllib_llm_comm.core.places import local_path
from rllib_llm_comm.core.settings import Settings
from rllib_llm_comm.envs.overcooked_ai.rules import HORIZON
from rllib_llm_comm.policies.policy_folder import find_policy

POPULATION = "population"
# Between the seeds of two parts of a member, whose games are not to begin with the same random numbers.
_PART = 100_003
_SEEDS = 1000
MEMBER_SETTINGS = (
    "activation", "advantage_floor", "anneal", "clip_param", "critic_lr", "critic_warmup", "entropy_coeff", "gamma",
    "grad_clip", "grad_clip_by", "hiddens", "kl_target", "lambda_", "lr", "metrics_num_episodes_for_smoothing",
    "minibatch_size", "num_envs_per_env_runner", "num_epochs", "shaping_horizon", "shuffle_batch_per_epoch",
    "train_batch_size_per_learner", "value_clip_mode", "vf_clip_param", "vf_loss_coeff",
)  # fmt: skip
"""Settings in which members may differ from the learner: those of their network, their games and their updates."""
# Settings of the learner alone, or of this object; members have their own.
_NOT_OF_MEMBERS = ("algo_class", "_is_frozen", "seed", "keep_policy_every", "num_env_runners", "num_learners",
                   "num_gpus_per_learner", "evaluation_interval")  # fmt: skip


class FCPPopulation(Settings):
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
    members_at_once: int | None = Field(None, ge=1, le=LARGEST)
    """Members for which a trial of Tune reserves CPUs; None: as many as this machine has cores, at most all. On a
    cluster give their number. Without Tune all that Ray has are used."""


@dataclass
class Member:
    """A member of the population.

    Attributes:
        seed: Its seed, by which members differ and by nothing else.
        iterations: Training iterations behind it.
        game_steps: Game steps behind it.
        score: Mean score of its last games; NaN before any ended.
        state: State of its algorithm, from which the next part goes on; `None` before the first and when it is done.
        milestones: Its initial, half-way and final policy, when it is done.
    """

    seed: int
    iterations: int = 0
    game_steps: int = 0
    score: float = math.nan
    state: dict[str, Any] | None = None
    milestones: dict[str, PastPolicy] = field(default_factory=dict)

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
        config: Settings of all members; the seed is each member's own.
        seeds: Their seeds.
        iterations: Training iterations of a member.
        part: Iterations per task.
        cpus: CPUs of a task.
    """

    def __init__(
        self, config: SelfPlayPPOConfig, seeds: Sequence[int], iterations: int, part: int, cpus: float
    ) -> None:
        self.members = [Member(seed) for seed in seeds]
        self._config, self._iterations, self._part, self._cpus = config, iterations, part, cpus
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
        """Starts what can be started and waits for the end of one part.

        Returns:
            The place of the member that has come further.

        Raises:
            UserError: If Ray has too few CPUs for a task, or a setting proves wrong there.
        """
        most = ray.cluster_resources().get("CPU", 0)
        if most < self._cpus:
            raise UserError(
                f"`num_cpus_per_member` is {self._cpus} but Ray has {most:g} CPUs, so that no member could ever be "
                "trained; start Ray with more."
            )
        train = ray.remote(train_part).options(num_cpus=self._cpus)
        for place, member in enumerate(self.members):
            if not member.milestones and place not in self._running.values():
                count = min(self._part, self._iterations - member.iterations)
                config = self._config.copy(copy_frozen=False)
                config.seed = member.seed + _PART * (member.iterations // self._part)
                self._running[train.remote(config, member.state, count)] = place
        (ended,), _ = ray.wait(list(self._running), num_returns=1)
        place, result = self._running.pop(ended), ray.get(ended)
        member, past = self.members[place], [PastPolicy.from_state(one) for one in result["past"]]
        member.iterations, member.state = result["iterations"], result["state"]
        member.game_steps, member.score = past[-1].game_steps, past[-1].score
        if member.iterations >= self._iterations:
            member.milestones, member.state = milestones(past), None
        return place

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


def train_part(config: SelfPlayPPOConfig, state: Mapping[str, Any] | None, iterations: int) -> dict[str, Any]:
    """Trains one member for some iterations, in a process of Ray's.

    Args:
        config: Its settings.
        state: State of its algorithm to go on from; `None` at the beginning.
        iterations: Training iterations.

    Returns:
        `state`, `iterations` behind it, and `past`, its kept policies with that of now at the end.
    """
    algo = config.build_algo()
    try:
        if state is not None:
            algo.set_state(state)
        for _ in range(iterations):
            algo.train()
        past = [one.to_state() for one in algo.past_policies()]
        return {"state": algo.get_state(), "iterations": algo.iteration, "past": past}
    finally:
        algo.stop()
        with contextlib.suppress(OSError):
            os.rmdir(algo.logdir)  # Tune's folder for log files, of which there are none


def read_members(where: str, env_config: Mapping[str, Any], past: bool) -> list[Member]:
    """The members of an FCP run whose population is done, from the policy folders in its checkpoint.

    Args:
        where: A checkpoint of FCP, or a folder in which `find_policy` finds one.
        env_config: Settings of the kitchen in which they are to play.
        past: Whether initial and half-way policies are needed, too.

    Raises:
        UserError: If there is none, its population is not done, a policy is missing, or its kitchen is another one.
    """
    try:
        folder = find_policy(where).parent / POPULATION
    except UserError as error:
        raise UserError(
            f"`population_from` is {where!r} but must be a checkpoint of FCP, or the folder of a run with one."
        ) from error
    found: dict[int, dict[str, PastPolicy]] = {}
    for one in sorted(folder.glob("seed_*")):
        seed, age = one.name.removeprefix("seed_").split("_", 1)
        policy, manifest = read_policy(one, env_config)
        origin = manifest.provenance
        if "game_steps" not in origin:
            raise UserError(f"`population_from` is {where!r}, which an older version wrote; train its population anew.")
        score = math.nan if origin["score"] is None else float(origin["score"])
        kept = PastPolicy(int(origin["training_iteration"]), int(origin["game_steps"]), score, policy)
        found.setdefault(int(seed), {})[age] = kept
    if not found:
        raise UserError(
            f"`population_from` is {where!r}, which holds no population; give a checkpoint of FCP whose members are "
            "all done."
        )
    for member, ages in found.items():
        lacking = [one for one in (AGES if past else (FINAL,)) if one not in ages]
        if lacking:
            raise UserError(
                f"`population_from` is {where!r}, whose member {member} has no policy {' and '.join(lacking)!r}; give "
                "the run that trained the members, or use `past_checkpoints` false, which needs final policies alone."
            )
    return [
        Member(seed, ages[FINAL].iteration, ages[FINAL].game_steps, ages[FINAL].score, None, ages)
        for seed, ages in found.items()
    ]


def partners_of(members: Sequence[Member], past: bool) -> dict[str, PastPolicy]:
    """The pool of the best response by name: of each member its milestones, or its final policy alone.

    Args:
        members: Members that are done.
        past: Whether initial and half-way policies belong to the pool.
    """
    return {
        f"seed_{member.seed}_{name}": one
        for member in members
        for name, one in member.milestones.items()
        if past or name == FINAL
    }


class FCPConfig(BestResponsePPOConfig):
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

    def __init__(self, algo_class: type | None = None) -> None:
        """Sets the defaults: a population for two CPU cores (ours)."""
        super().__init__(algo_class=algo_class or FCP)
        self._members_are_known = False  # a checkpoint's: its state has members that an earlier run trained

    def population(self, **settings: Any) -> Self:
        """Sets the population of self-play; the settings are those of `FCPPopulation` (`size`: `population_size`)."""
        return self.assign("population", {"population_size" if n == "size" else n: v for n, v in settings.items()})

    def member_seeds(self) -> list[int]:
        """The members' seeds: 1000 * (`seed` + 1) and those that follow, which are no seeds below 1000."""
        first = _SEEDS * ((self.seed or 0) + 1)
        return list(range(first, first + self.population_size))

    def member_config(self) -> SelfPlayPPOConfig:
        """Settings of a member: those of this config that self-play has, in one process."""
        config = SelfPlayPPOConfig()
        for name, value in vars(self).items():
            if name in vars(config) and name not in _NOT_OF_MEMBERS:
                setattr(config, name, copy.deepcopy(value))
        config.keep_policy_every = self.member_keep_every
        return config.update_from_dict(self.member_settings)

    @override(BestResponsePPOConfig)
    def most_partners(self) -> int:
        """The number of the members' policies that the learner meets."""
        return self.population_size * (len(AGES) if self.past_checkpoints else 1)

    @override(BestResponsePPOConfig)
    def _validate_pool(self) -> None:
        if self.pool:
            raise UserError(
                f"`pool` is {self.pool!r} but FCP makes its partners itself; omit it, or use BestResponsePPO."
            )
        for name in self.member_settings:
            if name not in MEMBER_SETTINGS:
                raise UserError(
                    f"`member_settings` has {name!r}, which is not a member's own, but may have "
                    f"{', '.join(MEMBER_SETTINGS)}; omit it.{did_you_mean(str(name), MEMBER_SETTINGS)}"
                )
        if self.population_from is not None:
            self._take_population(self.population_from)
        elif not self._members_are_known:
            self._validate_training_of_members()

    def _take_population(self, where: str) -> None:
        self.population_from = str(local_path(where, "population_from").absolute())
        if not os.path.exists(self.population_from):
            raise UserError(
                f"`population_from` is {self.population_from!r}, where nothing is; give a checkpoint of FCP. If it was "
                "there when this run began, put it back, since Tune reads it again, or begin a run whose `restore` and "
                "`population_from` are both the newest checkpoint of this one, which holds all members."
            )
        self.population_size = len(read_members(self.population_from, self.env_config, self.past_checkpoints))

    def _validate_training_of_members(self) -> None:
        member = self.member_config()
        try:
            member.validate()
        except UserError as error:
            raise UserError(
                f"Members have the learner's settings and those of `member_settings`, with which {error}"
            ) from error
        steps = member.total_train_batch_size // member.rows_per_step()
        horizon = self.env_config.get("horizon", HORIZON)
        if steps * min(self.iterations_per_task, self.member_iterations) < horizon:
            raise UserError(
                f"`iterations_per_task` is {self.iterations_per_task} and `member_iterations` {self.member_iterations} "
                f"of {steps} steps each, in which no game of {horizon} steps ends; raise them."
            )


class FCP(BestResponsePPO):
    """Fictitious co-play: self-play members first, then one cook's best response to them; settings: `FCPConfig`.

    An iteration is the end of one member's part while the population grows, and one of `BestResponsePPO` afterwards.
    """

    @classmethod
    @override(BestResponsePPO)
    def get_default_config(cls) -> FCPConfig:
        """The default settings."""
        return FCPConfig()

    @classmethod
    @override(Algorithm)
    def default_resource_request(cls, config: Any) -> PlacementGroupFactory:
        """RLlib's bundles and one for each member that trains at the same time."""
        request = super().default_resource_request(config)
        settings = cls.get_default_config().update_from_dict(config)
        if settings.population_from is not None:
            return request
        at_once = settings.members_at_once or os.cpu_count() or 1
        member = {"CPU": settings.num_cpus_per_member}
        bundles = [*request.bundles, *[member] * min(at_once, settings.population_size)]
        return PlacementGroupFactory(bundles, strategy=request.strategy)

    @override(BestResponsePPO)
    def setup(self, config: Any) -> None:
        """Builds the learner, and a population that has not begun."""
        super().setup(config)
        own = self.config
        self._population = Population(
            own.member_config(), own.member_seeds(), own.member_iterations, own.iterations_per_task,
            own.num_cpus_per_member,
        )  # fmt: skip
        if own.population_from is not None:
            self._population.members = read_members(own.population_from, own.env_config, own.past_checkpoints)

    @override(BestResponsePPO)
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
        }
        results["game_steps_with_population"] = self._population.game_steps + self._game_steps()
        if grew:
            results[SHOULD_CHECKPOINT] = True
        return results

    @override(SelfPlayPPO)
    def training_step(self) -> None:
        """The end of one member's part, or a roll-out and an update of the best response."""
        if not self._population.done:
            self._population.advance()
            return
        if self._pool is None:
            partners = partners_of(self._population.members, self.config.past_checkpoints)
            policies = {name: one.policy for name, one in partners.items()}
            self.set_pool(uniform_pool(policies, self.config.self_play_share))
        super().training_step()

    @override(SelfPlayPPO)
    def get_state(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """The learner's state and the population's; parts that are under way belong to neither."""
        return {**super().get_state(*args, **kwargs), POPULATION: self._population.to_state()}

    @override(SelfPlayPPO)
    def set_state(self, state: Any) -> None:
        """Goes on from a state; the partners are those of its population."""
        super().set_state(state)
        if POPULATION in state:
            self._population.set_state(state[POPULATION])
            self._pool = None

    @override(SelfPlayPPO)
    def save_to_path(self, path: Any = None, **kwargs: Any) -> str:
        """Saves with the policy folder and, when the population is done, with one of each member and age."""
        where = super().save_to_path(path, **kwargs)
        if self._population.done and Path(where).is_dir():
            for name, one in partners_of(self._population.members, past=True).items():
                self.write_past(Path(where) / POPULATION / name, one)
        return where

    @override(SelfPlayPPO)
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
