"""Arrays of compiled onion-soup games in an EnvRunner, beside the one PettingZoo environment that RLlib asks for."""

from __future__ import annotations

from typing import Any

from rllib_llm_comm.envs.overcooked_ai.batch import KitchenBatch
from rllib_llm_comm.envs.overcooked_ai.rules import HORIZON


class KitchenGames:
    """Mixin of EnvRunners: compiled games of `config.env_config` in `_games`; it stands before RLlib's class."""

    config: Any
    _games: KitchenBatch

    def make_env(self) -> None:
        """Makes the games, and one PettingZoo environment for spaces and evaluations."""
        games = self.config.num_envs_per_env_runner
        self.config.num_envs_per_env_runner = 1
        try:
            super().make_env()  # type: ignore[misc]  # of RLlib's class
        finally:
            self.config.num_envs_per_env_runner = games
        settings = self.config.env_config
        self._games = KitchenBatch(
            games,
            settings.get("layout", "cramped_room"),
            settings.get("dynamics", "old"),
            settings.get("horizon", HORIZON),
        )
