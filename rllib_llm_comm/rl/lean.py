"""RLlib's runner of several agents with less work around the games; what it samples and logs is the same.

Where games are quick and networks small, RLlib's bookkeeping takes longer than both. Three parts of it do nothing that
could not be left out or done for all games at once:

* RLlib logs six numbers per agent and step. They are sums; here they are added up over all games of a step first.
* It calls `on_episode_step` and the like of every callback for every game, also where nobody has defined them.
* It copies every observation deeply, as a game might write into the last one. Those of this package do not, and say
  so (`shows_copies`). Games of others, and games behind wrappers, are copied.
"""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.env.multi_agent_env_runner import MultiAgentEnvRunner
from ray.rllib.env.multi_agent_episode import MultiAgentEpisode
from ray.rllib.utils.annotations import override
from ray.rllib.utils.metrics import (
    NUM_AGENT_STEPS_SAMPLED,
    NUM_AGENT_STEPS_SAMPLED_LIFETIME,
    NUM_ENV_STEPS_SAMPLED,
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
    NUM_EPISODES,
    NUM_EPISODES_LIFETIME,
    NUM_MODULE_STEPS_SAMPLED,
    NUM_MODULE_STEPS_SAMPLED_LIFETIME,
)
from ray.rllib.utils.pre_checks.env import check_multiagent_environments

from rllib_llm_comm.rl.lean_episode import LeanEpisode
from rllib_llm_comm.rl.plain_errors import PlainErrorsMixin
from rllib_llm_comm.rl.rllib_adapter import ParallelEnvAdapter, shows_copies

# Callbacks that RLlib calls for each game and that do nothing beside: `on_episode_end` also notes the chunks.
_OFTEN = ("on_episode_created", "on_episode_start", "on_episode_step")


class LeanEnvRunner(PlainErrorsMixin, MultiAgentEnvRunner):
    """RLlib's `MultiAgentEnvRunner`, quicker: the same episodes, callbacks, connectors, metrics and random numbers.

    It is the default of PPO's configs here. RLlib's own one comes back by
    `config.env_runners(env_runner_cls=MultiAgentEnvRunner)`. What a game does wrong it raises in the game's own
    sentence, without RLlib's traceback. Observations of other people's games are copied as ever.

    Args:
        config: As of `MultiAgentEnvRunner`.
        **kwargs: Likewise.
    """

    config: Any

    def __init__(self, config: Any, **kwargs: Any) -> None:
        self._steps = 0
        self._episodes = 0
        self._agent_steps: Counter[str] = Counter()
        self._module_steps: Counter[str] = Counter()
        self._shown_are_copies = False
        super().__init__(config=config, **kwargs)

    @override(MultiAgentEnvRunner)
    def make_env(self) -> None:
        """Makes the games; those that show copies are not copied again.

        RLlib's check of environments plays an action that a mask may forbid, and hides what the game says to it. Games
        behind our adapter are checked in play; all others are checked as ever, unless `disable_env_checking` is set.
        """
        config = self.config
        self.config = copy.copy(config)
        vars(self.config)["disable_env_checking"] = True  # the config may be frozen
        try:
            super().make_env()
        finally:
            self.config = config
        games: Any = self.env
        for game in [] if config.disable_env_checking else games.envs:
            if not isinstance(game.unwrapped, ParallelEnvAdapter):
                check_multiagent_environments(game.unwrapped)
        self._shown_are_copies = hasattr(games, "copy") and all(shows_copies(game.unwrapped) for game in games.envs)
        if self._shown_are_copies:
            games.copy = False

    @override(MultiAgentEnvRunner)
    def _try_env_reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> Any:
        """Resets; the list of observations is a new one, as connectors may keep it."""
        results = super()._try_env_reset(seed=seed, options=options)
        return (list(results[0]), *results[1:]) if self._shown_are_copies else results

    @override(MultiAgentEnvRunner)
    def _try_env_step(self, actions: Any) -> Any:
        """Steps; the list of observations is a new one, as connectors may keep it."""
        results = super()._try_env_step(actions)
        kept = self._shown_are_copies and isinstance(results, tuple)
        return (list(results[0]), *results[1:]) if kept else results

    @override(MultiAgentEnvRunner)
    def _new_episode(self, env_index: int, episodes: list[Any] | None = None) -> None:
        """Begins an episode, one that is quicker to play."""
        super()._new_episode(env_index, episodes)
        (self._ongoing_episodes if episodes is None else episodes)[env_index].__class__ = LeanEpisode

    @override(MultiAgentEnvRunner)
    def _log_env_steps(self, metric: Any, num_steps: int) -> None:
        """Leaves the count for Prometheus to `_log_steps`."""

    @override(MultiAgentEnvRunner)
    def _make_on_episode_callback(self, which: str, idx: int, episodes: list[MultiAgentEpisode]) -> None:
        """Calls a callback if somebody defines it; RLlib does so behind the steps of all games."""
        if self._steps:
            self._log_steps()
        if which not in _OFTEN or self._listens(which):
            super()._make_on_episode_callback(which, idx, episodes)

    def _listens(self, which: str) -> bool:
        nothing = getattr(RLlibCallback, which)
        own = any(getattr(getattr(one, which, None), "__func__", None) is not nothing for one in self._callbacks)
        return own or bool(getattr(self.config, f"callbacks_{which}"))

    @override(MultiAgentEnvRunner)
    def _increase_sampled_metrics(self, num_steps: int, next_obs: Any, episode: MultiAgentEpisode) -> int:
        """Counts a step of one game for `_log_steps`."""
        self._steps += num_steps
        self._episodes += bool(episode.is_done)
        for agent in next_obs:
            self._agent_steps[str(agent)] += 1
            self._module_steps[episode.module_for(agent)] += 1
        return num_steps

    def _log_steps(self) -> None:
        """Logs what was counted, as RLlib does it step by step."""
        super()._log_env_steps(self._metrics_num_env_steps_sampled, self._steps)
        counts: list[tuple[Any, Any, int]] = [
            (NUM_ENV_STEPS_SAMPLED, NUM_ENV_STEPS_SAMPLED_LIFETIME, self._steps),
            (NUM_EPISODES, NUM_EPISODES_LIFETIME, self._episodes),
        ]
        for agent, steps in self._agent_steps.items():
            counts.append(((NUM_AGENT_STEPS_SAMPLED, agent), (NUM_AGENT_STEPS_SAMPLED_LIFETIME, agent), steps))
        for module, steps in self._module_steps.items():
            counts.append(((NUM_MODULE_STEPS_SAMPLED, module), (NUM_MODULE_STEPS_SAMPLED_LIFETIME, module), steps))
        for now, lifetime, count in counts:
            if count:
                self.metrics.log_value(now, count, reduce="sum")
                # RLlib asks for the throughput of the environment's steps only.
                throughput = lifetime == NUM_ENV_STEPS_SAMPLED_LIFETIME
                self.metrics.log_value(lifetime, count, reduce="lifetime_sum", with_throughput=throughput)
        self._steps = self._episodes = 0
        self._agent_steps.clear()
        self._module_steps.clear()
