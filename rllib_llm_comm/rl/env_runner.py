"""RLlib's runner of several agents with less work around the games; what it samples and logs is the same.

Where games are quick and networks small, RLlib's bookkeeping takes longer than both. Five parts of it can be left out,
or done once for all games:

* RLlib logs six numbers per agent and step. They are sums; here they are added up over all games of a step first.
* It calls `on_episode_step` and the like of every callback for every game, also where nobody has defined them.
* It copies every observation deeply, as a game might write into the last one. Those of this package do not, and say
  so (`shows_copies`). Games of others, and games behind wrappers, are copied.
* What is played in an iteration is so many new objects that Python looks for lost cycles among all objects of the
  process, every few iterations. It now does so far less often; younger objects are looked at as ever.
* Its connectors walk through every observation, and look each agent's episode up among those of all games.
"""

from __future__ import annotations

import copy
import gc
import logging
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import ray
from ray.exceptions import RayError
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.connectors.common import BatchIndividualItems
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.connectors.module_to_env import ListifyDataForVectorEnv, UnBatchToIndividualItems
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModule
from ray.rllib.env.env_runner import EnvRunner
from ray.rllib.env.env_runner import logger as rllib_logger
from ray.rllib.env.env_runner_group import EnvRunnerGroup
from ray.rllib.env.multi_agent_env_runner import MultiAgentEnvRunner
from ray.rllib.env.multi_agent_episode import MultiAgentEpisode
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.env.utils.infinite_lookback_buffer import InfiniteLookbackBuffer
from ray.rllib.env.vector.vector_multi_agent_env import VectorMultiAgentEnv
from ray.rllib.utils.actor_manager import FaultAwareApply
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
from ray.rllib.utils.spaces.space_utils import batch, unbatch

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.rl.rllib_adapter import ParallelEnvAdapter, shows_copies

_SKIPPED = MultiAgentEpisode.SKIP_ENV_TS_TAG
_ALL = frozenset({"__all__"})
_YOUNGER_PER_FULL = 300  # collections of the younger generation before one of all objects; Python's own is 10
# Callbacks that RLlib calls for each game and that do nothing beside: `on_episode_end` also notes the chunks.
_OFTEN = ("on_episode_created", "on_episode_start", "on_episode_step")
VectorMultiAgentEnv.envs = []  # RLlib's None is no list to close, and it complains where a game could not be made


class LeanEpisode(MultiAgentEpisode):
    """RLlib's `MultiAgentEpisode`, quicker while it is played."""

    __slots__ = ()

    @override(MultiAgentEpisode)
    def validate(self) -> None:
        """Refuses data of different lengths, as RLlib does."""
        for single in self.agent_episodes.values():
            _require_fit(single)

    @property
    def is_reset(self) -> bool:
        """True if there is a first observation."""
        for single in self.agent_episodes.values():
            seen = single.observations
            if (len(seen) if seen.finalized else len(seen.data) - seen.lookback) > 0:
                return True
        return False

    @override(MultiAgentEpisode)
    def get_agents_that_stepped(self) -> set[Any]:
        """The agents that have an observation of the latest step."""
        return {agent for agent in self.agent_episodes if self.env_t_to_agent_t[agent].data[-1] != _SKIPPED}

    @override(MultiAgentEpisode)
    def get_agents_to_act(self) -> set[Any]:
        """Those of them that go on."""
        return {agent for agent in self.get_agents_that_stepped() if not self.agent_episodes[agent].is_done}

    @override(MultiAgentEpisode)
    def cut(self, len_lookback_buffer: int = 0) -> MultiAgentEpisode:
        """The episode that goes on behind this one."""
        successor = super().cut(len_lookback_buffer)
        successor.__class__ = LeanEpisode
        return successor

    @override(MultiAgentEpisode)
    def to_numpy(self) -> MultiAgentEpisode:
        """Turns lists into arrays, once: RLlib comes back to each chunk that is done in every step."""
        for single in self.agent_episodes.values():
            seen = single.observations
            if seen.finalized:
                continue
            if seen.data and is_flat(seen.data[0]):
                seen.data, seen.finalized = batch_by_part(seen.data), True
            single.to_numpy()
        return self

    @override(MultiAgentEpisode)
    def add_env_step(
        self,
        observations: dict[Any, Any],
        actions: dict[Any, Any],
        rewards: dict[Any, Any],
        infos: dict[Any, Any] | None = None,
        *,
        terminateds: dict[Any, bool] | None = None,
        truncateds: dict[Any, bool] | None = None,
        extra_model_outputs: dict[Any, Any] | None = None,
    ) -> None:
        """Adds a step; one in which nobody comes, ends or has ended without RLlib's questions about that."""
        singles, ends = self.agent_episodes, (terminateds or {}, truncateds or {})
        hanging = self._hanging_actions_end
        if (
            not singles
            or self.is_terminated
            or self.is_truncated
            or any(ends[0].values())
            or any(ends[1].values())
            or any(single.is_terminated or single.is_truncated for single in singles.values())
            or not {*observations, *actions, *rewards, *ends[0], *ends[1]} - _ALL <= singles.keys()
            or any(seen is None for seen in observations.values())
            # Somebody chose and was shown what follows: it needs a reward. Or it has chosen before, then or now.
            or not all(agent in rewards if agent in actions else agent in hanging for agent in observations)
            or any(action is None or agent in hanging for agent, action in actions.items())
        ):
            super().add_env_step(
                observations, actions, rewards, infos,
                terminateds=terminateds, truncateds=truncateds, extra_model_outputs=extra_model_outputs,
            )  # fmt: skip
            return
        infos, outputs = infos or {}, extra_model_outputs or {}
        self.env_t += 1
        for agent, single in singles.items():
            steps, paid = self.env_t_to_agent_t[agent], rewards.get(agent) or 0.0
            if agent in observations:
                if agent in actions:
                    action, told = actions[agent], outputs.get(agent)
                else:
                    action, told = hanging.pop(agent), self._hanging_extra_model_outputs_end.pop(agent, None)
                    paid = self._hanging_rewards_end.pop(agent, 0.0) + paid
                _require_fit(single)
                _add_step(single, observations[agent], action, paid, infos.get(agent) or {}, told or {})
                steps.append(single.t - single.t_started + self.agent_t_started[agent])
                continue
            steps.append(_SKIPPED)
            if agent in actions:
                hanging[agent], self._hanging_rewards_end[agent] = actions[agent], paid
                self._hanging_extra_model_outputs_end[agent] = outputs.get(agent)
            elif agent in rewards or any(agent in end for end in ends):
                self._hanging_rewards_end[agent] += paid
        self._last_step_time = time.perf_counter()  # type: ignore[misc]
        if self._start_time is None:  # type: ignore[has-type]
            self._start_time = self._last_step_time  # type: ignore[misc]


def _require_fit(single: SingleAgentEpisode) -> None:
    """Refuses an episode unless it is played and has one observation and one info more than all else."""
    seen = single.observations
    steps = len(seen.data) - seen.lookback - 1
    fits = not seen.finalized and steps >= 0 and len(single.infos.data) - single.infos.lookback == steps + 1
    for column in (single.actions, single.rewards, *single.extra_model_outputs.values()):
        fits = fits and len(column.data) - column.lookback == steps
    if not fits:
        single.validate()  # RLlib has the sentence


def _add_step(
    single: SingleAgentEpisode, observation: Any, action: Any, reward: Any, info: Any, told: dict[str, Any]
) -> None:
    """What RLlib's `add_env_step` does to an episode that goes on and fits."""
    single.observations.data.append(observation)
    single.actions.data.append(action)
    single.rewards.data.append(reward)
    single.infos.data.append(info)
    for name, value in told.items():
        if (column := single.extra_model_outputs.get(name)) is None:
            single.extra_model_outputs[name] = InfiniteLookbackBuffer([value])
        else:
            column.data.append(value)
    single.t += 1
    single._last_added_observation, single._last_added_infos = observation, info
    single._last_step_time = time.perf_counter()
    if single._start_time is None:
        single._start_time = single._last_step_time


# ---- connectors in place of RLlib's own -------------------------------------------------------------------------


class UnBatchByTable(UnBatchToIndividualItems):
    """As RLlib's, for several agents."""

    @override(UnBatchToIndividualItems)
    def __call__(
        self, *, batch: dict[str, Any], episodes: list[Any], shared_data: dict[str, Any] | None = None, **kwargs: Any
    ) -> Any:
        """Gives every agent of every episode its own items."""
        memorized = (shared_data or {}).get("memorized_map_structure")
        if not isinstance(memorized, dict) or any(module_id not in memorized for module_id in batch):
            return super().__call__(batch=batch, episodes=episodes, shared_data=shared_data, **kwargs)
        renamed = (shared_data or {}).get("vector_env_episodes_map", {})
        known = {episode.id_: episode for episode in episodes}
        for module_id, columns in batch.items():
            keys = [(episode_id, agent, module_id) for episode_id, agent in memorized[module_id]]
            for episode_id, agent, _ in keys:
                episode = known.get(renamed.get(episode_id, episode_id))
                if episode is None or not _may_act(episode, agent):  # RLlib has the sentence
                    return super().__call__(batch=batch, episodes=episodes, shared_data=shared_data, **kwargs)
            for column, values in columns.items():
                items = list(values) if isinstance(values, np.ndarray) else unbatch(values)
                columns[column] = {key: [item] for key, item in zip(keys, items, strict=True)}
        return batch


def _may_act(episode: Any, agent: Any) -> bool:
    if not episode.agent_episodes or episode.is_done:
        return True
    single = episode.agent_episodes.get(agent)
    return single is not None and not single.is_done


class ListifyByTable(ListifyDataForVectorEnv):
    """As RLlib's, for several agents."""

    @override(ListifyDataForVectorEnv)
    def __call__(
        self, *, batch: dict[str, Any], episodes: list[Any], shared_data: dict[str, Any] | None = None, **kwargs: Any
    ) -> Any:
        """Makes a list of every column, with a dict by agent for every game."""
        if not isinstance(episodes[0], MultiAgentEpisode):
            return super().__call__(batch=batch, episodes=episodes, shared_data=shared_data, **kwargs)
        renamed = (shared_data or {}).get("old_episode_ids", {})
        numbers = {episode.id_: number for number, episode in enumerate(episodes)}
        for column, items in batch.items():
            listed: list[dict[Any, Any]] = [{} for _ in episodes]
            for (episode_id, agent, _), (item,) in items.items():
                listed[numbers.get(renamed.get(episode_id, episode_id), 0)][agent] = item
            batch[column] = listed
        return batch


class BatchByPart(BatchIndividualItems):
    """As RLlib's, for observations that are dicts of arrays: part by part, without a walk through each of them."""

    @override(BatchIndividualItems)
    def __call__(self, *, rl_module: Any, batch: dict[str, Any], **kwargs: Any) -> Any:
        """Batches the items of every column of every module."""
        for module_id in batch.keys() & rl_module.keys() if isinstance(rl_module, MultiRLModule) else ():
            for column, items in batch[module_id].items():
                if isinstance(items, list) and items and is_flat(items[0]):
                    batch[module_id][column] = batch_by_part(items)
        return super().__call__(rl_module=rl_module, batch=batch, **kwargs)


def is_flat(item: Any) -> bool:
    """True of a dict of arrays."""
    return type(item) is dict and all(isinstance(part, np.ndarray) for part in item.values())


def batch_by_part(items: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """What RLlib's `batch` makes of dicts of arrays.

    Args:
        items: At least one; all have the same parts.
    """
    return {
        name: batch([one[name] for one in items], individual_items_already_have_batch_dim="auto") for name in items[0]
    }


OWN_CONNECTORS: dict[type[ConnectorV2], Callable[[Any, Any], ConnectorV2]] = {
    BatchIndividualItems: partial(BatchByPart, multi_agent=True),
    UnBatchToIndividualItems: UnBatchByTable,
    ListifyDataForVectorEnv: ListifyByTable,
}
"""RLlib's connector -> what makes ours that replaces it, from the spaces in front of it."""


def with_own_connectors(pipeline: Any) -> Any:
    """Puts our connectors in the places of RLlib's.

    Args:
        pipeline: A pipeline of RLlib's for several agents, or `None`; it is changed in place.
    """
    for place, theirs in enumerate(pipeline.connectors if pipeline is not None else ()):
        if make := OWN_CONNECTORS.get(type(theirs)):
            pipeline.connectors[place] = make(theirs.input_observation_space, theirs.input_action_space)
    return pipeline


# ---- the runner, and errors as they are -------------------------------------------------------------------------


_MOST_SECONDS = 10.0


class PlainErrorsMixin(EnvRunner):
    """Raises an error of a game as what it is; of a `UserError` it drops RLlib's log, too.

    Where RLlib is told to make failed games anew (`restart_failed_sub_environments`), it does so and logs each. A
    remote runner stays there for `raise_user_errors`; all other errors end it, as RLlib has it.

    Attributes:
        user_error: The sentence of what a game did wrong; `None` for nothing.
    """

    user_error: str | None = None

    @override(FaultAwareApply)
    def apply(self, func: Any, *args: Any, **kwargs: Any) -> Any:
        """Calls a function with this runner, for a driver elsewhere."""
        try:
            return func(self, *args, **kwargs)
        except UserError as error:
            self.user_error = str(error)
            raise
        except Exception as error:
            return super().apply(_raise, error)

    @override(EnvRunner)
    def _try_env_step(self, actions: Any) -> Any:
        if self.config.restart_failed_sub_environments:
            return super()._try_env_step(actions)
        rllib_logger.addFilter(_is_no_user_error)
        try:
            return super()._try_env_step(actions)
        except RuntimeError as error:
            raise error.__cause__ or error from None
        finally:
            rllib_logger.removeFilter(_is_no_user_error)


def _is_no_user_error(record: logging.LogRecord) -> bool:
    """False of records about errors that are raised in a sentence."""
    return not (record.exc_info and isinstance(record.exc_info[1], UserError))


def raise_user_errors(group: EnvRunnerGroup) -> None:
    """Raises what a remote EnvRunner told: RLlib takes it for a fault of the machine, and goes on without samples.

    Args:
        group: The EnvRunners of an algorithm; those that are well are not asked.

    Raises:
        UserError: If one of them saw a game do what it must not.
    """
    manager = group._worker_manager
    for number in manager.actor_ids():
        if manager.is_actor_healthy(number):
            continue
        try:
            error = ray.get(manager.actors()[number].apply.remote(_told), timeout=_MOST_SECONDS)
        except RayError:  # it is gone, and RLlib makes it anew
            continue
        if error is not None:
            raise UserError(error)


def _told(runner: Any) -> str | None:
    error: str | None = getattr(runner, "user_error", None)
    return error


def _raise(runner: Any, error: Exception) -> None:
    raise error


class LeanEnvRunner(PlainErrorsMixin, MultiAgentEnvRunner):
    """RLlib's `MultiAgentEnvRunner`, quicker: the same episodes, callbacks, connectors, metrics and random numbers.

    It is the default of PPO's configs here. RLlib's own one comes back by
    `config.env_runners(env_runner_cls=MultiAgentEnvRunner)`. What a game does wrong it raises in the game's own
    sentence, without RLlib's traceback. Observations of other people's games are copied as ever.
    """

    config: Any

    def __init__(self, config: Any, **kwargs: Any) -> None:
        self._steps = 0
        self._episodes = 0
        self._agent_steps: Counter[str] = Counter()
        self._module_steps: Counter[str] = Counter()
        self._shown_are_copies = False
        self._listening: dict[str, bool] = {}  # of the present step
        first, second, third = gc.get_threshold()
        gc.set_threshold(first, second, max(third, _YOUNGER_PER_FULL))
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
            self._listening.clear()
        if which in _OFTEN and which not in self._listening:
            self._listening[which] = self._listens(which)
        if self._listening.get(which, True):
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
