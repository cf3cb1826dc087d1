"""EnvRunner that plays any PettingZoo parallel game with one module for the whole team."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from pettingzoo import ParallelEnv
from ray.rllib.core import DEFAULT_AGENT_ID
from ray.rllib.env.env_context import EnvContext
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.utils.annotations import override
from ray.rllib.utils.metrics import NUM_AGENT_STEPS_SAMPLED, NUM_AGENT_STEPS_SAMPLED_LIFETIME
from ray.tune.registry import ENV_CREATOR, _global_registry, register_env

from rllib_llm_comm.baselines.value.joint_game import JointGame
from rllib_llm_comm.baselines.value.team_episodes import ACTIONS, MASK, REWARDS, TERMINATED, TeamEpisode
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.rl.plain_errors import PlainErrorsMixin
from rllib_llm_comm.rl.rllib_adapter import ParallelEnvAdapter

_SEEDS_APART = 1000  # of two runners
_GYM_ID = "rllib-single-agent-env-v0"  # under which RLlib makes all games of its runners of one agent


def make_joint_game(env: Any, env_config: Any, mixer_state: str, team_reward: str) -> JointGame:
    """The joint game of a config's `env`.

    Args:
        env: Id of an environment that RLlib knows, or a maker of one.
        env_config: Its settings.
        mixer_state: As of `JointGame`.
        team_reward: As of `JointGame`.

    Raises:
        UserError: If it is no PettingZoo parallel environment, or one that no team of choosers can play.
    """
    known = isinstance(env, str) and _global_registry.contains(ENV_CREATOR, env)
    make = _global_registry.get(ENV_CREATOR, env) if known else env
    if isinstance(make, str) and make in gym.registry:
        raise UserError(
            f"`env` is {env!r}, an environment of Gymnasium for one agent, but value decomposition needs a PettingZoo "
            "ParallelEnv; train stock DQN."
        )
    if not callable(make):
        raise UserError(
            f"`env` is {env!r}, which is not registered; give the id of a PettingZoo parallel environment (`--import` "
            "the module that registers it), or name it with `register_parallel_env`."
        )
    made = make(
        env_config if isinstance(env_config, EnvContext) else EnvContext(dict(env_config or {}), worker_index=0)
    )
    # Only our adapter is taken off: the `env` of a PettingZoo wrapper is the game without what the wrapper does.
    game = made.env if isinstance(made, ParallelEnvAdapter) else made
    if not isinstance(game, ParallelEnv):
        raise UserError(
            f"`env` is {env!r}, which makes a {type(made).__name__}, but value decomposition needs a PettingZoo "
            "ParallelEnv; convert an AEC environment with `pettingzoo.utils.conversions.aec_to_parallel` and register "
            "the game with `register_parallel_env`."
        )
    return JointGame(game, mixer_state, team_reward)


class JointEnvRunner(PlainErrorsMixin, SingleAgentEnvRunner):
    """RLlib's runner of one agent, which here is the team; it also gives whole episodes as arrays."""

    config: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Makes the games, with seeds that no other runner has."""
        super().__init__(*args, **kwargs)
        if self._seed is not None:
            # RLlib adds the runner's index and Gymnasium the game's number, so runners would share games.
            self._seed += _SEEDS_APART * (self.worker_index or 0)

    @override(SingleAgentEnvRunner)
    def make_env(self) -> None:
        """Makes the joint games of `config.env`."""
        config: Any = self.config
        own = f"joint:{config.env}"
        register_env(own, lambda context: make_joint_game(config.env, context, config.mixer_state, config.team_reward))
        self.config = config.copy(copy_frozen=False)
        self.config.env = own
        gym.registry.pop(_GYM_ID, None)  # of an earlier runner in this process; Gymnasium would warn
        try:
            super().make_env()
        finally:
            self.config = config
        self._open: dict[str, list[SingleAgentEpisode]] = {}

    @override(SingleAgentEnvRunner)
    def _increase_sampled_metrics(self, num_steps: int, num_episodes_completed: int) -> int:
        """Counts steps as RLlib does, and as many decisions per step as the team has agents."""
        steps: int = super()._increase_sampled_metrics(num_steps, num_episodes_completed)
        others = (self.module.unwrapped().observation_space[MASK].shape[0] - 1) * num_steps
        self.metrics.log_value((NUM_AGENT_STEPS_SAMPLED, DEFAULT_AGENT_ID), others, reduce="sum")
        self.metrics.log_value((NUM_AGENT_STEPS_SAMPLED_LIFETIME, DEFAULT_AGENT_ID), others, reduce="lifetime_sum")
        return steps

    def roll_out(self, episodes: int, played: int) -> list[TeamEpisode]:
        """Plays until some episodes have ended; those that have not go on in the next call.

        Args:
            episodes: Least number of episodes.
            played: Game steps of all runners so far, for the schedule of `epsilon`.

        Returns:
            All that have ended, as arrays.
        """
        ended: list[TeamEpisode] = []
        runners = self.config.num_env_runners or 1
        while len(ended) < episodes:
            # RLlib tells it once per iteration, in which there are many calls.
            self.num_env_steps_sampled_lifetime = played
            pieces = self.sample()
            played += runners * sum(len(piece) for piece in pieces)
            for piece in pieces:
                self._open.setdefault(piece.id_, []).append(piece)
                if piece.is_done:
                    ended.append(as_arrays(self._open.pop(piece.id_)))
        return ended


def as_arrays(pieces: list[SingleAgentEpisode]) -> TeamEpisode:
    """A whole episode as arrays.

    Args:
        pieces: Its pieces in the order of time, of which each begins with the last observation of the one before.
    """
    parts = [_numpy(piece.get_observations(slice(0, len(piece) + 1))) for piece in pieces]
    joined = {name: np.concatenate([*(part[name][:-1] for part in parts), parts[-1][name][-1:]]) for name in parts[0]}
    actions = np.concatenate([np.asarray(piece.get_actions(slice(0, len(piece)))) for piece in pieces])
    rewards = np.concatenate([np.asarray(piece.get_rewards(slice(0, len(piece)))) for piece in pieces])
    over = np.zeros(len(rewards), np.float32)
    over[-1] = pieces[-1].is_terminated
    return {**joined, ACTIONS: actions.astype(np.int64), REWARDS: rewards.astype(np.float32), TERMINATED: over}


def _numpy(observations: Any) -> dict[str, np.ndarray]:
    if isinstance(observations, dict):
        return {name: np.asarray(values) for name, values in observations.items()}
    return {name: np.stack([one[name] for one in observations]) for name in observations[0]}
