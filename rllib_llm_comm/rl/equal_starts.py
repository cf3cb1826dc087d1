"""Callbacks for `complete_episodes` that say how games side by side begin: alike in groups, or each by itself."""

from __future__ import annotations

from typing import Any

from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.callbacks.callbacks import RLlibCallback

from rllib_llm_comm.envs.equal_starts import EqualStarts
from rllib_llm_comm.rl.rllib_adapter import start_alike


class StartAlike(RLlibCallback):
    """Gives `group_size` neighbouring games of every EnvRunner the same starts, as group baselines need them.

    `Verco` adds it with `advantages` "rloo" or "grpo". EnvRunners for evaluation are left alone.

    Attributes:
        wanted: Beginning of the sentence that refuses an environment for which this cannot be.
    """

    wanted = "Episodes of equal start need"

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

        def played() -> (
            int
        ):  # a round has at least one step; a run that goes on learns of them after its games are made
            return int(env_runner.num_env_steps_sampled_lifetime)

        self._starts = EqualStarts(
            len(env.envs), self.size_of_groups(config), config.seed, runner, rounds, played=played
        )
        start_alike(env, self._starts, self.wanted)

    def size_of_groups(self, config: AlgorithmConfig) -> int:
        """Neighbours that begin alike.

        Args:
            config: Of the EnvRunner.
        """
        return int(config.group_size)


class StartApart(StartAlike):
    """Gives every game of every EnvRunner a start of its own in each round, and one episode.

    RLlib's `complete_episodes` resets all games at every call, with the seed of the run: training would see no other
    starts than the first ones. It would also throw away the episodes that last longest.

    `RED` adds it. EnvRunners for evaluation are left alone.
    """

    wanted = "Whole games from different starts need"

    def size_of_groups(self, config: AlgorithmConfig) -> int:
        """One.

        Args:
            config: Of the EnvRunner.
        """
        return 1
