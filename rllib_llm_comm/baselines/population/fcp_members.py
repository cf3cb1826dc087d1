"""The self-play members of FCP's population: Ray tasks train them in parts, side by side; the algorithm keeps them."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ray

from rllib_llm_comm.baselines.population.kitchen_pool import read_policy
from rllib_llm_comm.baselines.population.past_policies import AGES, FINAL, PastPolicy, milestones
from rllib_llm_comm.baselines.population.self_play_ppo import SelfPlayPPOConfig
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.policies.policy_folder import find_policy

POPULATION = "population"
# Between the seeds of two parts of a member, whose games are not to begin with the same random numbers.
_PART = 100_003


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
        self._require_cpus()
        train = ray.remote(train_part).options(num_cpus=self._cpus)
        for place, member in enumerate(self.members):
            if not member.milestones and place not in self._running.values():
                count = min(self._part, self._iterations - member.iterations)
                config = self._config.copy(copy_frozen=False)
                config.seed = member.seed + _PART * (member.iterations // self._part)
                self._running[train.remote(config, member.state, count)] = place
        (ended,), _ = ray.wait(list(self._running), num_returns=1)
        place = self._running.pop(ended)
        self._take(self.members[place], ray.get(ended))
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

    def _take(self, member: Member, result: Mapping[str, Any]) -> None:
        member.iterations, member.state = result["iterations"], result["state"]
        past = [PastPolicy.from_state(one) for one in result["past"]]
        member.game_steps, member.score = past[-1].game_steps, past[-1].score
        if member.iterations >= self._iterations:
            member.milestones, member.state = milestones(past), None

    def _require_cpus(self) -> None:
        most = ray.cluster_resources().get("CPU", 0)
        if most < self._cpus:
            raise UserError(
                f"`num_cpus_per_member` is {self._cpus} but Ray has {most:g} CPUs, so that no member could ever be "
                "trained; start Ray with more."
            )


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
    return [_done(member, ages) for member, ages in found.items()]


def _done(seed: int, ages: dict[str, PastPolicy]) -> Member:
    last = ages[FINAL]
    return Member(seed, last.iteration, last.game_steps, last.score, None, ages)


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
