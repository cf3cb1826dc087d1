"""What a population asks of its learners, whatever these play: to meet frozen policies, and to play games with them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from pydantic import Field
from ray.rllib.utils.annotations import override
from ray.rllib.utils.metrics import ENV_RUNNER_RESULTS, LEARNER_RESULTS

from rllib_llm_comm.core.errors import UserError, did_you_mean, shown
from rllib_llm_comm.core.settings import Settings
from rllib_llm_comm.policies.partner_settings import PartnerSettings
from rllib_llm_comm.policies.policy_manifest import names_a_folder
from rllib_llm_comm.rl.past_policies import KeepsPastPolicies, PastPolicy

POPULATION = "population"
"""Key of a population in results, states and checkpoints."""


AS_PARTNER = "as_partner"


class MemberKinds(Settings):
    """In what members differ beside their seeds."""

    member_kinds: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Name -> settings in which members of this kind differ from the others, and `as_partner`: keys of
    `PartnerSettings` that hold while such a member is a partner, such as `{"noise": 0.2}`. Members take the kinds in
    turn. None: they differ by their seeds alone (ours)."""


def require_kinds(kinds: Mapping[str, Any], members: int, known: Sequence[str], traits: Sequence[str]) -> None:
    """Refuses kinds of members that cannot be.

    Args:
        kinds: As of `MemberKinds`.
        known: Settings in which members may differ.
        traits: Keys of `as_partner`.

    Raises:
        UserError: If a name or a setting is not allowed, or a kind would have no member.
    """
    for kind, settings in kinds.items():
        where = f"member_kinds.{kind}"
        if not names_a_folder(kind) or not isinstance(settings, Mapping):
            raise UserError(
                f"`{where}` is {shown(settings)} but must be settings under a name of letters, digits, '_' and '-'."
            )
        require_own(where, settings, (*known, AS_PARTNER))
        own = settings.get(AS_PARTNER, {})
        if not isinstance(own, Mapping):
            raise UserError(
                f"`{where}.{AS_PARTNER}` is {shown(own)} but must be a mapping with some of "
                f"{', '.join(sorted(traits))}."
            )
        require_own(f"{where}.{AS_PARTNER}", own, traits)
        PartnerSettings.checked(f"{where}.{AS_PARTNER}", {"policy": f"{POPULATION}/{kind}", **own})
    if len(kinds) > members:
        raise UserError(
            f"`member_kinds` has {len(kinds)} kinds but the population {members} members, so that some kinds would "
            "have none; raise its size."
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
