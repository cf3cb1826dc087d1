"""What FCP, PBT and COLE share, whatever their learners play: kinds of members, meetings, matches and checkpoints."""

from __future__ import annotations

import contextlib
import os
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from pydantic import Field
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.utils.annotations import override
from ray.rllib.utils.checkpoints import Checkpointable
from ray.rllib.utils.metrics import ENV_RUNNER_RESULTS, LEARNER_RESULTS
from ray.tune.execution.placement_groups import PlacementGroupFactory
from typing_extensions import Self

from rllib_llm_comm.core.errors import LARGEST, UserError, did_you_mean, shown
from rllib_llm_comm.core.settings import Settings
from rllib_llm_comm.policies.partner_settings import PartnerSettings
from rllib_llm_comm.policies.policy_manifest import names_a_folder
from rllib_llm_comm.rl.past_policies import KeepsPastPolicies, PastPolicy
from rllib_llm_comm.rl.strict_config import StrictConfigMixin

POPULATION = "population"
"""Key of a population in results, states and checkpoints."""
AS_PARTNER = "as_partner"


class MemberSettings(Settings):
    """In what members differ beside their seeds, and how many are trained at once."""

    member_kinds: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Name -> settings in which members of this kind differ from the others, and `as_partner`: keys of
    `PartnerSettings` that hold while such a member is a partner, such as `{"noise": 0.2}`. Members take the kinds in
    turn. None: they differ by their seeds alone (ours)."""
    members_at_once: int | None = Field(None, ge=0, le=LARGEST)
    """Members in training for which a trial of Tune reserves CPUs; None (ours): as many as this machine has cores, at
    most all. On a cluster give their number. Without Tune all that Ray has are used. 0: one after the other in the
    algorithm's own process, without Ray tasks."""


class PopulationConfigMixin(StrictConfigMixin):
    """Adds `.population(...)` to the config of a learner that meets the members of its own population.

    Attributes:
        member_settings_known: Settings in which members may differ from the learner.
        partner_traits: Keys of `as_partner`.
    """

    member_settings_known: ClassVar[tuple[str, ...]] = ()
    partner_traits: ClassVar[tuple[str, ...]] = ()
    pool: Any
    self_play_share: float
    member_kinds: Mapping[str, Mapping[str, Any]]

    def population(self, settings: Settings | None = None, /, **values: Any) -> Self:
        """Sets the population; the settings are those of `settings_models["population"]`."""
        return self.assign("population", settings, values)

    def most_partners(self) -> int | None:
        """The number of policies that the learner meets; `None`: they change while it learns."""
        return None

    def kind_settings(self, kind: str) -> dict[str, Any]:
        """The settings of a kind of members."""
        return {name: value for name, value in self.member_kinds.get(kind, {}).items() if name != AS_PARTNER}

    def traits_of(self, kind: str) -> Mapping[str, Any]:
        """The settings of a kind of members that hold while such a member is a partner."""
        traits: Mapping[str, Any] = self.member_kinds.get(kind, {}).get(AS_PARTNER, {})
        return traits

    def check_kinds(self, members: int) -> None:
        """Refuses kinds of members that cannot be.

        Raises:
            UserError: If a name or a setting is not allowed, or a kind would have no member.
        """
        for kind, settings in self.member_kinds.items():
            where = f"member_kinds.{kind}"
            if not names_a_folder(kind) or not isinstance(settings, Mapping):
                raise UserError(
                    f"`{where}` is {shown(settings)} but must be settings under a name of letters, digits, '_' and '-'."
                )
            require_own(where, settings, (*self.member_settings_known, AS_PARTNER))
            own = settings.get(AS_PARTNER, {})
            if not isinstance(own, Mapping):
                raise UserError(
                    f"`{where}.{AS_PARTNER}` is {shown(own)} but must be a mapping with some of "
                    f"{', '.join(sorted(self.partner_traits))}."
                )
            require_own(f"{where}.{AS_PARTNER}", own, self.partner_traits)
            PartnerSettings.checked(f"{where}.{AS_PARTNER}", {"policy": f"{POPULATION}/{kind}", **own})
        if len(self.member_kinds) > members:
            raise UserError(
                f"`member_kinds` has {len(self.member_kinds)} kinds but the population {members} members, so that some "
                "kinds would have none; raise its size."
            )


def require_own(where: str, settings: Mapping[str, Any], known: Sequence[str]) -> None:
    """Refuses settings in which members cannot differ.

    Args:
        known: Those that are allowed.

    Raises:
        UserError: For the first other one.
    """
    for name in settings:
        if name not in known:
            raise UserError(  # the list comes last, as a long sentence is cut
                f"`{where}` has {name!r}, which is not a member's own; omit it.{did_you_mean(str(name), known)} Its "
                f"own may be {', '.join(sorted(known))}."
            )


@dataclass(frozen=True)
class Met:
    """A frozen policy that a learner meets.

    Attributes:
        weight: > 0: how often it is drawn, relative to the others.
        traits: Keys of `PartnerSettings` in which it differs from the policy itself, such as `word_noise`.
    """

    name: str
    policy: PastPolicy
    weight: float = 1.0
    traits: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Matches:
    """Sums over the games of each pair (P,).

    Attributes:
        sparse: Points; of the onion-soup kitchens for soups, elsewhere the mean over agents of their returns.
        shaped: Shaped rewards of both cooks, at factor 1; 0 where there are none.
        games: Games per pair.
    """

    sparse: np.ndarray
    shaped: np.ndarray
    steps: np.ndarray
    games: int

    @property
    def scores(self) -> np.ndarray:
        """Points per game (P,)."""
        return np.asarray(self.sparse / self.games)


_OF_LEARNERS = ("message_entropy", "message_kl")
_OF_TALK = ("message_words", "message_vocabulary", "message_distinct_share", "message_understood_share")


def talk_figures(results: Mapping[str, Any]) -> dict[str, float]:
    """Figures of what a member says in an iteration; none of members that say nothing.

    Entropy of its messages and their drift in nats from what it was taught, where PPO trains them; words per message,
    different words of a moment, the share of different messages, and the share of those whose meaning the games'
    scripted players know.
    """
    modules: Mapping[str, Any] = results.get(LEARNER_RESULTS, {})
    learned: Mapping[str, Any] = next((one for one in modules.values() if "message_entropy" in one), {})
    played = results.get(ENV_RUNNER_RESULTS, {})
    found = {name: learned[name] for name in _OF_LEARNERS if name in learned}
    found |= {name: played[name] for name in _OF_TALK if name in played}
    return {name: float(value) for name, value in found.items()}


class Responder(KeepsPastPolicies):
    """A learner whose partners are frozen policies that are in memory; FCP, PBT and COLE are made of it."""

    steps_before = 0  # game steps of earlier runs, by which shaped rewards fade

    @override(KeepsPastPolicies)
    def _game_steps(self) -> int:
        return self.steps_before + super()._game_steps()

    def shaping(self, steps: int) -> float:
        """The factor of `Matches.shaped` in a member's fitness after some game steps; 0 without shaped rewards."""
        return 0.0

    @property
    @abstractmethod
    def met(self) -> tuple[str, ...]:
        """Names of the policies that it meets now."""

    @abstractmethod
    def meet(self, partners: Sequence[Met]) -> None:
        """Takes other partners, of whom one is drawn per game: with the next roll-out all games begin anew."""

    @abstractmethod
    def play_pairs(
        self, policies: Sequence[PastPolicy], pairs: Sequence[tuple[int, int]], games: int, seed: Sequence[int]
    ) -> Matches:
        """Plays whole games of all pairs with sampled actions.

        Args:
            pairs: Numbers of the policies that hold the first seat and the others, P >= 1 pairs.
            games: Games of each pair, >= 1.
            seed: Of everything that is drawn.
        """

    @abstractmethod
    def take_policy(self, policy: PastPolicy) -> None:
        """Takes over a policy's weights, in Learners and EnvRunners."""


class PopulationMixin(Responder):
    """A learner that meets the members of its own population, which belongs to its state and its checkpoints."""

    @abstractmethod
    def population_policies(self) -> Mapping[str, PastPolicy]:
        """The members' policies that checkpoints hold as folders, by name; empty where there are none yet."""

    @abstractmethod
    def population_state(self) -> Any:
        """All that the population goes on from; `None` before it begins."""

    @abstractmethod
    def set_population_state(self, state: Any) -> None:
        """Goes on from what `population_state` gave."""

    @override(KeepsPastPolicies)
    def save_to_path(self, path: Any = None, **kwargs: Any) -> str:
        """Saves with the policy folder, and with those of the members."""
        where = super().save_to_path(path, **kwargs)
        if Path(where).is_dir():
            for name, policy in self.population_policies().items():
                policy.write(Path(where) / POPULATION / name)
        return where

    @override(Checkpointable)
    def get_state(self, components: Any = None, *, not_components: Any = None, **kwargs: Any) -> dict[str, Any]:
        """As RLlib's, with the whole population."""
        state = super().get_state(components, not_components=not_components, **kwargs)
        own = self.population_state()
        if own is not None and self._check_component(POPULATION, components, not_components):
            state[POPULATION] = own
        return state

    @override(Checkpointable)
    def set_state(self, state: Any) -> None:
        """As RLlib's, with the whole population."""
        super().set_state(state)
        if POPULATION in state:
            self.set_population_state(state[POPULATION])


def with_members(
    request: PlacementGroupFactory, at_once: int | None, members: int, cpus: float
) -> PlacementGroupFactory:
    """A trial's resources, and as many CPUs for each member that trains at the same time.

    Args:
        request: Those of RLlib.
        at_once: As of `members_at_once`.
    """
    if at_once is None:
        at_once = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    bundles = [*request.bundles, *[{"CPU": cpus}] * min(at_once, members)]
    return PlacementGroupFactory(bundles, strategy=request.strategy)


def end(algo: Algorithm) -> None:
    """Stops a member's algorithm and removes the folder that Tune made for its log files, of which there are none."""
    algo.stop()
    with contextlib.suppress(OSError):
        os.rmdir(algo.logdir)
