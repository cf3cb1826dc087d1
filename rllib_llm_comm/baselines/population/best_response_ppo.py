"""PPO against frozen partners in the onion-soup kitchens: the best response to a pool of players."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import ray
from pydantic import Field
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.utils.annotations import override
from safetensors.torch import load
from typing_extensions import Self

from rllib_llm_comm.baselines.population.kitchen_partners import (
    FrozenPartner,
    PartnerPool,
    check_partner,
    load_partners,
    play_matches,
    self_play_games,
)
from rllib_llm_comm.baselines.population.responder import Matches, Met, Responder
from rllib_llm_comm.baselines.population.self_play_ppo import SelfPlayPPO, SelfPlayPPOConfig, shaping_factor
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.settings import Settings, Several
from rllib_llm_comm.policies.numeric_network import BY_OWN, BY_PARTNER, NumericSettings
from rllib_llm_comm.policies.partner_settings import PartnerSettings, parse_partners
from rllib_llm_comm.rl.past_policies import PastPolicy
from rllib_llm_comm.rl.policy_checkpoints import on_every_learner
from rllib_llm_comm.rl.strict_config import select_fields


class BestResponsePartners(Settings):
    """Who holds the other seat."""

    pool: Several[Any] | None = ()
    """A list of partners, each a text or a mapping with the keys of `PartnerSettings`: checkpoints of numeric policies
    of this kitchen, `"scripted"`, `"random"` or `"stay"`. One is drawn for every game that begins, by the weights (FCP:
    all equal), and the learner's seat by a fair coin."""
    seat: Literal["both"] = "both"
    """`"both"`: the coin decides."""
    self_play_share: float = Field(0.0, ge=0, le=1)
    """Share of the games that the learner plays with itself, rounded to whole games of `num_envs_per_env_runner`. 0
    (FCP); COLE's "1:3" is 0.25."""


class BestResponsePPOConfig(SelfPlayPPOConfig):
    """Settings of `BestResponsePPO`.

    .. testcode::
        :skipif: True

        from rllib_llm_comm import BestResponsePPOConfig

        config = BestResponsePPOConfig().environment(env_config={"layout": "coordination_ring"})
        config.partners(pool=["results/ring_0", {"policy": "scripted", "noise": 0.2}])
        algo = config.build_algo()
        algo.train()
    """

    settings_models = {
        **SelfPlayPPOConfig.settings_models,
        "partners": BestResponsePartners,
        "policy_network": select_fields(
            NumericSettings,
            "hiddens",
            "critic_observation",
            activation="relu",
            narrowed={"critic_observation": Literal["own", "partner"]},
        ),
    }
    _rows_in_words: ClassVar[str] = (
        "a row for each of `num_envs_per_env_runner` games and one more for those with itself (`self_play_share`)"
    )

    def most_partners(self) -> int | None:
        """The number of partners in the pool; `None` where it changes while the learner learns."""
        return len(self.pool or ())

    @override(SelfPlayPPOConfig)
    def partners(self, settings: Settings | None = None, /, **values: Any) -> Self:
        """Sets who holds the other seat; the settings are those of `BestResponsePartners`."""
        return self.assign("partners", settings, values)

    def partner_settings(self) -> tuple[PartnerSettings, ...]:
        """The pool as parsed settings; empty without one.

        Raises:
            UserError: If an entry is not allowed.
        """
        return parse_partners(self.pool) if self.pool else ()

    @override(SelfPlayPPOConfig)
    def rows_per_step(self) -> int:
        """Rows of a train batch per game step of one EnvRunner: those of the learner's seats only."""
        games = self.num_envs_per_env_runner
        return games + self_play_games(games, self.self_play_share)

    @override(SelfPlayPPOConfig)
    def validate(self) -> None:
        """Checks all settings; a `UserError` names one that is not allowed or does not fit the others."""
        if self.critic_observation == BY_PARTNER and self.most_partners() is None:
            name = type(self).__name__.removesuffix("Config")
            raise UserError(
                f"`critic_observation` is {BY_PARTNER!r} but the partners of {name} change while it learns; use "
                f"{BY_OWN!r}."
            )
        super().validate()
        self.validate_pool()

    def validate_pool(self) -> None:
        """Checks the partners; a population brings its own."""
        if not self.pool and self_play_games(self.num_envs_per_env_runner, self.self_play_share) < (
            self.num_envs_per_env_runner
        ):
            raise UserError(
                f"`pool` is {self.pool!r} but {type(self).__name__.removesuffix('Config')} needs at least one partner; "
                "list some, such as checkpoints of SelfPlayPPO or 'scripted'."
            )
        for partner in self.partner_settings():
            check_partner(partner, self.env_config)


class BestResponsePPO(Responder, SelfPlayPPO):
    """PPO of one cook beside frozen partners; settings: `BestResponsePPOConfig`.

    Rows, advantages and gradients are those of the learner's seat; of a game with itself those of both seats.
    """

    _pool: PartnerPool | None = None
    _held: Any = None

    config_class = BestResponsePPOConfig

    @override(Algorithm)
    def setup(self, config: Any) -> None:
        """Builds as RLlib does and loads the partners."""
        super().setup(config)
        settings = self.config.partner_settings()
        if settings:
            partners = load_partners(settings, self.config.env_config)
            self.set_pool(PartnerPool(partners, self.config.self_play_share))

    def set_pool(self, pool: PartnerPool) -> None:
        """Takes other partners: with the next roll-out all games begin anew.

        Args:
            pool: The partners; its share of games with itself must be the config's.

        Raises:
            UserError: If the share is another one, with which a batch would have other rows.
        """
        if pool.self_play_share != self.config.self_play_share:
            raise UserError(
                f"`self_play_share` of the pool is {pool.self_play_share!r} but must be that of the config, "
                f"{self.config.self_play_share!r}, on which the rows of a batch depend."
            )
        self._pool = pool
        self._held = ray.put(pool) if self.config.num_env_runners else pool

    @override(Responder)
    def shaping(self, steps: int) -> float:
        """The factor of shaped rewards."""
        return shaping_factor(steps, self.config.shaping_horizon)

    @property
    @override(Responder)
    def met(self) -> tuple[str, ...]:
        """Names of the partners."""
        return () if self._pool is None else tuple(partner.name for partner in self._pool.partners)

    @override(Responder)
    def meet(self, partners: Sequence[Met]) -> None:
        """Takes policies of a population as its pool."""
        frozen = [FrozenPartner(one.name, one.policy.policy, one.weight, **one.traits) for one in partners]
        self.set_pool(PartnerPool(tuple(frozen), self.config.self_play_share))

    @override(Responder)
    def play_pairs(
        self, policies: Sequence[PastPolicy], pairs: Sequence[tuple[int, int]], games: int, seed: Sequence[int]
    ) -> Matches:
        """Plays all pairs side by side in arrays."""
        return play_matches([one.policy for one in policies], pairs, games, self.config.env_config, seed)

    @override(Responder)
    def take_policy(self, policy: PastPolicy) -> None:
        """Takes over the weights of a network."""
        on_every_learner(self, _load, files=dict(policy.policy.files))
        self.sync_runners()

    @override(SelfPlayPPO)
    def pool_of_runners(self) -> tuple[Any, str | None]:
        """The pool that the partners are drawn from."""
        return (None, None) if self._pool is None else (self._held, self._pool.key)


def _load(learner: Any, files: Mapping[str, bytes]) -> None:
    (content,) = files.values()
    for module in learner.module.values():
        module.unwrapped().network.load_state_dict(load(content))
