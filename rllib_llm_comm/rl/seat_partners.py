"""Callback that lets partners hold the other agents' seats in RLlib's environments."""

from __future__ import annotations

from typing import Any

from ray.rllib.callbacks.callbacks import RLlibCallback

from rllib_llm_comm.policies.load_options import Loading
from rllib_llm_comm.policies.partner_seats import PartnerSeats
from rllib_llm_comm.policies.partner_settings import parse_partners
from rllib_llm_comm.policies.partners import make_partner
from rllib_llm_comm.rl.columns import LATEST_VECTORS, MAILBOX
from rllib_llm_comm.rl.rllib_adapter import wrap_games


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
        loading = Loading(trust_own=True)
        pool = [make_partner(settings, loading.load) for settings in parse_partners(config.pool)]

        def seated(game: Any, number: int) -> PartnerSeats:
            self._seats[number] = PartnerSeats(game, pool, config.seat, config.self_play_share)
            return self._seats[number]

        wrap_games(env, seated, "Partners need")

    def on_episode_created(self, *, episode: Any, env_index: int, **kwargs: Any) -> None:
        """Joins the records of what the learner and the partner tell, before the game's reset."""
        episode.custom_data[MAILBOX], episode.custom_data[LATEST_VECTORS] = self._seats[env_index].meet_anew()
