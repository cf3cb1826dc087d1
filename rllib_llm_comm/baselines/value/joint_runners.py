"""EnvRunners that play for a whole team: any game one step at a time, or the onion-soup kitchens as whole arrays."""

from __future__ import annotations

import time
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from pettingzoo import ParallelEnv
from ray.rllib.core import DEFAULT_AGENT_ID
from ray.rllib.env.env_context import EnvContext
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.utils.annotations import override
from ray.rllib.utils.metrics import NUM_AGENT_STEPS_SAMPLED, NUM_AGENT_STEPS_SAMPLED_LIFETIME
from ray.tune.registry import register_env

from rllib_llm_comm.baselines.value.joint_game import (
    ACTIONS,
    ACTIVE,
    MASK,
    REWARDS,
    SEEN,
    STATE,
    TEAM_REWARDS,
    TERMINATED,
    JointGame,
    TeamEpisode,
)
from rllib_llm_comm.baselines.value.q_network import epsilon_greedy
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.phases import ENV, phase
from rllib_llm_comm.envs.overcooked_ai.recipes import SOUP_REWARD
from rllib_llm_comm.envs.overcooked_ai.rules import NUM_ACTIONS
from rllib_llm_comm.rl.env_runner import PlainErrorsMixin
from rllib_llm_comm.rl.kitchen_games import KitchenGames
from rllib_llm_comm.rl.rllib_adapter import ParallelEnvAdapter, registered_maker

_SEEDS_APART = 1000  # of two runners
_GYM_ID = "rllib-single-agent-env-v0"  # under which RLlib makes all games of its runners of one agent


def make_joint_game(env: Any, env_config: Any, mixer_state: str, team_reward: str) -> JointGame:
    """The joint game of a config's `env`.

    Args:
        env: Id of an environment that RLlib knows, or a maker of one.

    Raises:
        UserError: If it is no PettingZoo parallel environment, or one that no team of choosers can play.
    """
    make = registered_maker(env) or env
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


class KitchenTeamRunner(KitchenGames, JointEnvRunner):
    """Plays `num_envs_per_env_runner` compiled games from start to end with one forward pass per step for all cooks.

    Episodes are those that `JointEnvRunner` gives of the same games, but for observations, which are whole numbers of
    one byte. `sample`, which RLlib's evaluations use, still plays one PettingZoo environment.
    """

    @override(JointEnvRunner)
    def make_env(self) -> None:
        """Makes the games, and one PettingZoo environment for spaces and evaluations."""
        super().make_env()
        self._shaping = float(self.config.env_config.get("shaping", 0.0))

    @override(JointEnvRunner)
    def roll_out(self, episodes: int, played: int) -> list[TeamEpisode]:
        """Plays all games from start to end, as often as it takes.

        Args:
            played: Game steps of all runners so far, for the schedule of `epsilon`.
        """
        ended: list[TeamEpisode] = []
        at_once = len(self._games.states) * (self.config.num_env_runners or 1)
        while len(ended) < episodes:
            ended += self._play(played, at_once)
            played += self._games.horizon * at_once
        return ended

    def _play(self, played: int, at_once: int) -> list[TeamEpisode]:
        """Plays all games once; `at_once` game steps are made by all runners in a step."""
        began, games, steps = time.perf_counter(), len(self._games.states), self._games.horizon
        self._games.restart(np.ones(games, bool))
        seen, chosen, rewards, score = [self._planes()], [], [], np.zeros(games)
        shaped_sum = np.zeros(games)
        team = self.module.unwrapped().team.eval()
        memory, last = team.initial_memory(games), torch.full((games, 1, 2), -1)
        for step in range(steps):
            with torch.no_grad():
                out = team.unroll(torch.from_numpy(seen[-1]).unsqueeze(1), last, memory)
            memory = out.memory
            epsilon = self.module.unwrapped().epsilon_at(played + step * at_once)
            last = epsilon_greedy(out.values, torch.ones_like(out.values), epsilon, self._generator)
            actions = last[:, 0].numpy()
            with phase(ENV):
                sparse, shaped, _ = self._games.step(actions)
                seen.append(self._planes())
            served = sparse.sum(1)
            chosen.append(actions.copy())
            rewards.append(TEAM_REWARDS[self.config.team_reward](served[:, None] + self._shaping * shaped, 1))
            score += served
            shaped_sum += shaped.sum(1)
        arrays = {SEEN: np.stack(seen, 1), ACTIONS: np.stack(chosen, 1), REWARDS: np.stack(rewards, 1)}
        self._count(steps, arrays[REWARDS].sum(1), score, shaped_sum, time.perf_counter() - began)
        return [self._episode({name: values[game] for name, values in arrays.items()}) for game in range(games)]

    def _planes(self) -> np.ndarray:
        """uint8 (games, 2, V): what every cook sees."""
        planes = self._games.lossless()
        return planes.reshape(*planes.shape[:2], -1).view(np.uint8).copy()

    def _episode(self, arrays: dict[str, np.ndarray]) -> TeamEpisode:
        steps = len(arrays[REWARDS])
        return {
            SEEN: arrays[SEEN],
            # The first cook's planes hold the whole game, as the environment's `state()` does.
            STATE: arrays[SEEN][:, 0],
            MASK: np.ones((steps + 1, 2, NUM_ACTIONS), np.int8),
            ACTIVE: np.ones((steps + 1, 2), np.int8),
            ACTIONS: arrays[ACTIONS].astype(np.int64),
            REWARDS: arrays[REWARDS].astype(np.float32),
            TERMINATED: np.zeros(steps, np.float32),  # time is up, which is no terminal state
        }

    def _count(self, steps: int, returns: np.ndarray, score: np.ndarray, shaped: np.ndarray, seconds: float) -> None:
        games, window = len(returns), self.config.metrics_num_episodes_for_smoothing
        own: dict[str, Any] = {"score": score, "soups": score / SOUP_REWARD, "shaped": shaped}
        for game in range(games):
            self._log_episode_metrics(steps, float(returns[game]), seconds / games)
            for name, values in own.items():
                self.metrics.log_value(name, float(values[game]), window=window)
        self._increase_sampled_metrics(steps * games, games)
