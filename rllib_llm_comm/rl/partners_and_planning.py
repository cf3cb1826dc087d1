"""Who else is in the games of a training: partners in the other seats, and a planner; settings, checks, wrapper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field
from ray.rllib.callbacks.callbacks import RLlibCallback
from typing_extensions import Self

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.lazy import load
from rllib_llm_comm.core.settings import Settings
from rllib_llm_comm.policies.partner_settings import parse_partners, with_absolute_paths
from rllib_llm_comm.policies.partners import Partner, game_difference, make_partner, try_out
from rllib_llm_comm.policies.planning_settings import ALL, RECORDED, PlanningSettings
from rllib_llm_comm.policies.policy import TrainedPolicy
from rllib_llm_comm.policies.seated_policy import BOTH, PartnerSeats
from rllib_llm_comm.rl.connectors import LATEST_VECTORS, MAILBOX
from rllib_llm_comm.rl.rllib_adapter import ParallelEnvAdapter, made_env, playable_id, wrap_games
from rllib_llm_comm.rl.strict_config import StrictConfigMixin


def _load(path: str | Path, **how: Any) -> TrainedPolicy:
    """The policy of a checkpoint that is a partner, as of `Loading.load`."""
    from rllib_llm_comm.policies.load_policy import Loading  # only pools with checkpoints need it

    return Loading(trust_own=True).load(path, **how)


class SeatPartners(RLlibCallback):
    """Wraps the games of every EnvRunner in `PartnerSeats`; our algorithms add it when `pool` is set.

    The games of a runner share the partners' networks. Messages of learner and partner pass through the episode's
    `custom_data`, which `MessageExchange` and `NumericObservations` keep.
    """

    def __init__(self) -> None:
        """No game is known yet."""
        super().__init__()
        self._seats: dict[int, PartnerSeats] = {}

    def on_environment_created(self, *, env_runner: Any, env: Any, **kwargs: Any) -> None:
        """Loads the partners and puts the wrapper around each game, outside of all other wrappers.

        Raises:
            UserError: If a partner cannot be loaded, or the environment is no PettingZoo environment.
        """
        config = env_runner.config
        beside: list[PartnerSeats] = []
        listed = () if config.pool is None else parse_partners(config.pool)  # none yet: `use_partners` seats them
        pool = [make_partner(settings, _load) for settings in listed]

        def seated(game: Any, number: int) -> PartnerSeats:
            self._seats[number] = PartnerSeats(game, pool, config.seat, config.self_play_share, beside)
            return self._seats[number]

        wrap_games(env, seated, "Partners need")

    def on_episode_created(self, *, episode: Any, env_index: int, **kwargs: Any) -> None:
        """Joins the records of what the learner and the partner tell, before the game's reset."""
        episode.custom_data[MAILBOX], episode.custom_data[LATEST_VECTORS] = self._seats[env_index].meet_anew()


def use_partners(runner: Any, pool: Sequence[Partner], self_play_share: float) -> None:
    """Seats other partners in the games of an EnvRunner whose callbacks have `SeatPartners`; all games begin anew."""
    for adapter in runner.env.envs:
        game = adapter.unwrapped.env
        while not isinstance(game, PartnerSeats):  # wrappers of callbacks that were added later lie outside
            game = game.env
        game.seat_others(pool, self_play_share)
    runner._needs_initial_reset = True


class PartnersSettings(Settings):
    """Partners that do not learn hold all seats but the learner's."""

    pool: list[Any] | None = None
    """None: the learner holds all seats. A list of partners, each a text (a checkpoint's path, `"scripted"`,
    `"random"`, `"stay"`, `"module:function"`) or a dict with the keys of `PartnerSettings`. One is drawn for each
    episode, by the weights (FCP: equal ones)."""
    seat: str = BOTH
    """`"both"`: the learner's seat is drawn for each episode among all (Carroll et al., FCP). Or the name of the agent
    that the learner always is."""
    self_play_share: float = Field(0.0, ge=0, lt=1)
    """Share of episodes in which the learner holds all seats. 0 (FCP); COLE: a fixed share of the games."""


class PartnersConfigMixin(StrictConfigMixin):
    """Adds `.partners(...)`: frozen partners hold the other agents' seats, and only the learner's rows are trained on.

    Every setting is also an attribute, and so a flat key of a YAML file's `config:`.

    Attributes:
        partners_in_games: False if the algorithm's games are no PettingZoo environments; it has no `.partners` then, or
            one of its own.
    """

    partners_in_games: ClassVar[bool] = True
    pool: Any

    def partners(self, settings: Settings | None = None, /, **values: Any) -> Self:
        """Sets who holds the other seats; the settings are those of `PartnersSettings`."""
        if not self.partners_in_games:
            raise UserError(
                f"{type(self).__name__.removesuffix('Config')} plays whole arrays of games, in which partners hold no "
                "seats; train SymbolicPPO, MAPPO or BestResponsePPO with partners."
            )
        return self.assign("partners", settings, values)

    def _validate_partners(self) -> None:
        """Checks the settings and that all partners can be loaded."""
        if not self.partners_in_games or self.pool is None:
            return
        pool = with_absolute_paths(parse_partners(self.pool))
        self.pool = [partner.to_dict() for partner in pool]
        if getattr(self, "planner", None) is not None:
            raise UserError("`pool` is set with `planner`, but partners were trained without its subgoals; unset one.")
        with made_env(self.env, self.env_config) as made:
            agents = [str(agent) for agent in getattr(made, "possible_agents", ()) or ()]
            if self.seat != BOTH and self.seat not in agents:
                raise UserError(f"`seat` is {self.seat!r} but must be 'both' or one of the agents {', '.join(agents)}.")
            game = made.env if isinstance(made, ParallelEnvAdapter) else None
            for settings in pool:
                self._check_partner(make_partner(settings, _load), game)
        self.add_callback(SeatPartners)

    def _check_partner(self, partner: Partner, game: Any) -> None:
        """Refuses a partner that cannot play; of no PettingZoo environment only its id is known."""
        where = f"`pool` has {partner.settings.name!r}, which"
        if partner.needs_the_team:
            raise UserError(
                f"`pool` has {partner.settings.name!r}, whose agents exchange vectors inside of one network; they "
                "cannot play with a learner."
            )
        env_id = playable_id(self.env)
        if partner.policy is not None and env_id is not None:
            manifest = partner.policy.manifest
            reason = game_difference(env_id, self.env_config, playable_id(manifest.env), manifest.env_config)
            if reason:
                raise UserError(f"{where} {reason}")
        if game is None:
            return
        try:
            try_out(partner, game, 0, () if self.seat == BOTH else (self.seat,))
        except UserError as error:
            raise UserError(f"{where} cannot play here: {error}") from error


# ---- planning -----------------------------------------------------------------------------------------------------


_APPLY = "rllib_llm_comm.sama.planning_config:apply_planning"
_FROM_ANYWHERE = "rllib_llm_comm.sama.planners:from_anywhere"


class PlanningConfigMixin(StrictConfigMixin):
    """Adds `.planning(...)`: a planner gives the agents subgoals.

    Attributes:
        subgoals_in_vector: True if agents read numbers, so that subgoals are told behind their vectors.
    """

    subgoals_in_vector: ClassVar[bool] = False

    def planning(self, settings: Settings | None = None, /, **values: Any) -> Self:
        """Sets who plans; the settings are those of `PlanningSettings`."""
        return self.assign("planning", settings, values)

    def planning_settings(self) -> dict[str, Any]:
        """All of them as arguments of `PlannedSubgoals`."""
        return {
            **{name: getattr(self, name) for name in PlanningSettings.model_fields},
            "in_vector": self.subgoals_in_vector,
        }

    def policy_record(self) -> dict[str, Any]:
        """What a policy folder tells of the training; with the planning, as far as a file can hold it."""
        record = super().policy_record()
        if isinstance(self.planner, str | Mapping):
            settings = {**self.planning_settings(), "planner": load(_FROM_ANYWHERE)(self.planner)}
            record["planning"] = {name: settings[name] for name in RECORDED}
        return record

    def _validate_planning(self) -> None:
        config: Any = self
        if self.planner is None and self.subgoals_to != ALL and not config.in_evaluation:
            raise UserError(f"`subgoals_to` is {self.subgoals_to!r} but nobody plans; set `planner`, or omit it.")
        if self.planner is not None or self.subgoal_rewards != "exact":
            load(_APPLY)(self)
