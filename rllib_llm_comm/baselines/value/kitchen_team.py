"""EnvRunner of teams that learn by value decomposition in the onion-soup kitchens: whole arrays of games."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
from ray.rllib.utils.annotations import override

from rllib_llm_comm.baselines.value.joint import JointEnvRunner
from rllib_llm_comm.baselines.value.joint_game import TEAM_REWARDS
from rllib_llm_comm.baselines.value.q_network import epsilon_greedy
from rllib_llm_comm.baselines.value.team_episodes import (
    ACTIONS,
    ACTIVE,
    MASK,
    REWARDS,
    SEEN,
    STATE,
    TERMINATED,
    TeamEpisode,
)
from rllib_llm_comm.core.phases import ENV, phase
from rllib_llm_comm.envs.overcooked_ai.rules import NUM_ACTIONS
from rllib_llm_comm.rl.kitchen_games import KitchenGames

POINTS_PER_SOUP = 20


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
        self._generator = torch.Generator()
        self._generator.manual_seed((self.config.seed or 0) * 1000 + (self.worker_index or 0))

    @override(JointEnvRunner)
    def roll_out(self, episodes: int, played: int) -> list[TeamEpisode]:
        """Plays all games from start to end, as often as it takes.

        Args:
            episodes: Least number of episodes.
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
        own: dict[str, Any] = {"score": score, "soups": score / POINTS_PER_SOUP, "shaped": shaped}
        for game in range(games):
            self._log_episode_metrics(steps, float(returns[game]), seconds / games)
            for name, values in own.items():
                self.metrics.log_value(name, float(values[game]), window=window)
        self._increase_sampled_metrics(steps * games, games)
