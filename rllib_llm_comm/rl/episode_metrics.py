"""Callback that logs how episodes end (solved or not, game steps, team return), and counts decisions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.utils.metrics import ENV_RUNNER_RESULTS, NUM_AGENT_STEPS_SAMPLED_LIFETIME

from rllib_llm_comm.envs.interface import EPISODE_METRICS, solved

SUCCESS_RATE = "success_rate"
EPISODE_GAME_STEPS = "episode_game_steps"
TEAM_RETURN_MEAN = "team_return_mean"
DECISIONS = "decisions"


class EpisodeMetrics(RLlibCallback):
    """Adds `success_rate`, `episode_game_steps` and `team_return_mean` to the results under `env_runners`.

    RLlib counts environment steps, of which one may last many game steps when agents are busy, and it does not
    say which episodes were solved. Here an episode is solved if its game says so (`task_success` in the last infos)
    or, in games that say nothing, if it ended by a termination (a time limit is a truncation), the same rule as in
    `rllib evaluate`. Both are means over the episodes of RLlib's window
    (`metrics_num_episodes_for_smoothing`).

    `team_return_mean` is the mean return per agent over the same window, and not a number until the window is full
    for the first time (and in an iteration in which no episode ended): the first episodes to end are the short ones,
    so that an early mean flatters any policy, and a stop criterion on it would end a run that has learned nothing.

    `decisions`, at the top of the result, counts the decisions of all agents since the training began. Stop rules,
    schedules and `anneal` count the same.

    A game may count something itself: the numbers under `episode_metrics` in an agent's last info are logged under
    their names, such as `score`.

    `Verco` adds this callback by itself; in a config of your own use `config.callbacks(EpisodeMetrics)`.
    """

    def on_episode_end(self, *, episode: Any, env_runner: Any, metrics_logger: Any, **kwargs: Any) -> None:
        """Logs one episode."""
        window = env_runner.config.metrics_num_episodes_for_smoothing
        metrics_logger.log_value(SUCCESS_RATE, float(was_solved(episode)), window=window)
        metrics_logger.log_value(EPISODE_GAME_STEPS, float(game_steps(episode)), window=window)
        for name, value in games_own_metrics(episode.get_infos(-1)).items():
            metrics_logger.log_value(name, value, window=window)

    def on_train_result(self, *, algorithm: Any, result: dict[str, Any], **kwargs: Any) -> None:
        """Adds the team's return, and the decisions so far."""
        results = result.get(ENV_RUNNER_RESULTS)
        if results is not None:
            result[DECISIONS] = int(sum(results.get(NUM_AGENT_STEPS_SAMPLED_LIFETIME, {}).values()))
            results[TEAM_RETURN_MEAN] = team_return(results, algorithm.config.metrics_num_episodes_for_smoothing)


def team_return(results: dict[str, Any], window: int) -> float:
    """Mean return per agent over the last `window` episodes; NaN while fewer have ended.

    Args:
        results: RLlib's results under `env_runners`.
        window: Number of episodes.
    """
    returns = results.get("agent_episode_returns_mean") or {"": results.get("episode_return_mean", math.nan)}
    if results.get("num_episodes_lifetime", 0) < window:
        return math.nan
    return float(np.mean(list(returns.values())))


def games_own_metrics(infos: Any) -> dict[str, float]:
    """The game's own metrics, from the agents' infos (of one or several agents).

    Args:
        infos: The infos of a step, by agent, or one agent's info.
    """
    parts = [infos, *(info for info in infos.values() if isinstance(info, dict))] if isinstance(infos, dict) else []
    own: dict[str, float] = {}
    for info in parts:
        own.update({str(name): float(value) for name, value in info.get(EPISODE_METRICS, {}).items()})
    return own


def was_solved(episode: Any) -> bool:
    """True if an episode (of one or several agents) ended well (`rllib_llm_comm.envs.interface.solved`)."""
    infos = episode.get_infos(-1)
    by_agent = {agent: info for agent, info in infos.items() if isinstance(info, dict)}
    return solved(bool(episode.is_terminated), {**by_agent, "": infos})


def game_steps(episode: Any) -> int:
    """Length of an episode: its infos' last `game_step`, or environment steps where the game gives none."""
    infos = episode.get_infos(-1)
    found = [infos["game_step"]] if "game_step" in infos else []
    found += [info["game_step"] for info in infos.values() if isinstance(info, dict) and "game_step" in info]
    return int(np.max(found)) if found else int(episode.env_t if hasattr(episode, "env_t") else episode.t)
