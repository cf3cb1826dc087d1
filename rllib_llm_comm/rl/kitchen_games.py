"""Arrays of compiled onion-soup games in an EnvRunner, beside the one PettingZoo environment that RLlib asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from rllib_llm_comm.envs.overcooked_ai.rules import KitchenBatch


def kitchen_batch(games: int, env_config: Mapping[str, Any]) -> KitchenBatch:
    """Compiled games of the kitchen of an `env_config`; what makes up single environments counts for nothing."""
    names = ("layout", "dynamics", "horizon")
    return KitchenBatch(games, **{name: env_config[name] for name in names if name in env_config})


class KitchenGames:
    """Mixin of EnvRunners: compiled games of `config.env_config` in `_games`; it stands before RLlib's class."""

    config: Any
    worker_index: int | None
    _games: KitchenBatch
    _generator: torch.Generator  # of the learner's actions

    def make_env(self) -> None:
        """Makes the games, and one PettingZoo environment for spaces and evaluations."""
        games = self.config.num_envs_per_env_runner
        self.config.num_envs_per_env_runner = 1
        try:
            super().make_env()  # type: ignore[misc]  # of RLlib's class
        finally:
            self.config.num_envs_per_env_runner = games
        self._games = kitchen_batch(games, self.config.env_config)
        self._generator = torch.Generator()
        self._generator.manual_seed((self.config.seed or 0) * 1000 + (self.worker_index or 0))
