"""Callback that lets games side by side begin alike in groups."""

from __future__ import annotations

from typing import Any

from ray.rllib.callbacks.callbacks import RLlibCallback

from rllib_llm_comm.envs.equal_starts import EqualStarts
from rllib_llm_comm.envs.rllib_adapter import start_alike


class StartAlike(RLlibCallback):
    """Gives `group_size` neighbouring games of every EnvRunner the same starts, as group baselines need them.

    `Verco` adds it with `advantages` "rloo" or "grpo". EnvRunners for evaluation are left alone.
    """

    def __init__(self) -> None:
        """Nothing has begun."""
        super().__init__()
        self._starts: EqualStarts | None = None

    def on_environment_created(self, *, env_runner: Any, env: Any, **kwargs: Any) -> None:
        """Joins the games.

        Raises:
            UserError: If the environment is no PettingZoo environment behind our adapter.
        """
        config = env_runner.config
        if config.in_evaluation:
            return
        # Games that are made anew after a failure go on where those before them stopped.
        rounds = self._starts.rounds if self._starts else 0
        runner = env_runner.worker_index or 0
        self._starts = EqualStarts(len(env.envs), config.group_size, config.seed, runner, rounds)
        start_alike(env, self._starts, "Episodes of equal start need")
