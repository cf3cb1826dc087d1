"""What the settings of planning do to an algorithm's config, and the callback that lets a planner into its games."""

from __future__ import annotations

import math
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.utils import force_list

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.games import without_subgoals
from rllib_llm_comm.policies.planning_settings import RECORDED, PlanningSettings
from rllib_llm_comm.rl.callbacks import ChatCost, EpisodeMetrics, games_own_metrics
from rllib_llm_comm.rl.partners_and_planning import PlanningConfigMixin
from rllib_llm_comm.rl.rllib_adapter import wrap_games
from rllib_llm_comm.sama.planned_env import JudgedSubgoals, PlannedSubgoals
from rllib_llm_comm.sama.planners import make_planner, planner_model
from rllib_llm_comm.sama.rewards.subgoal_rewards import ERROR, make_rewards

_BESIDE = ("subgoal_rewards", "in_vector")  # arguments of `PlannedSubgoals` that are no `PlanningSettings`


class AddPlannedSubgoals(RLlibCallback):
    """Wraps the games of every EnvRunner in `PlannedSubgoals`; works with any algorithm whose policy reads `subgoal`.

    Our algorithms add it when `planner` is set, and it reads their settings. In a config of your own use
    `AddPlannedSubgoals.of("scripted")` in `config.callbacks`. All environments of a runner share one chat model and its
    budget, the rewards that were written, and a pool of threads in which slow planners think. What `PlannedSubgoals`
    counts (plans, subgoals, who answered, cost) is logged with the episode metrics, and all that was asked under
    `chat` (`rllib_llm_comm.rl.callbacks.ChatCost`).
    """

    planner: ClassVar[Any] = None
    settings: ClassVar[Mapping[str, Any]] = {}

    @classmethod
    def of(cls, planner: str | Mapping[str, Any] = "scripted", **settings: Any) -> type[AddPlannedSubgoals]:
        """The callback class for a given planner.

        Args:
            planner: As of `make_planner`.
            **settings: The other arguments of `PlannedSubgoals`.

        Raises:
            UserError: If the planner's settings, or these, are not allowed.
        """
        make_planner(planner)
        PlanningSettings(**{name: value for name, value in settings.items() if name not in _BESIDE})
        return type("AddPlannedSubgoals", (cls,), {"planner": planner, "settings": settings})

    @classmethod
    def policy_record(cls) -> dict[str, Any]:
        """What a policy folder tells of the planning, as far as a file can hold it."""
        if not isinstance(cls.planner, str | Mapping):
            return {}
        given = {**PlanningSettings.defaults(), "in_vector": False, **cls.settings, "planner": cls.planner}
        return {"planning": {name: given[name] for name in RECORDED}}

    def on_environment_created(self, *, env_runner: Any, env: Any, **kwargs: Any) -> None:
        """Puts the wrapper between adapter and game, in each sub-environment.

        Raises:
            UserError: If the environment is no PettingZoo environment behind our adapter, or planners do not know it.
        """
        planner, settings = self.planner, dict(self.settings)
        if planner is None:
            settings = dict(env_runner.config.planning_settings())
            planner = settings.pop("planner")
        settings["subgoal_rewards"] = rewards = make_rewards(settings.get("subgoal_rewards", "exact"))
        model = None if planner is None else planner_model(planner)
        slow = model is not None or rewards.slow
        threads = ThreadPoolExecutor(len(env.envs), thread_name_prefix="planner") if slow else None
        self._cost = ChatCost([model, getattr(rewards, "model", None)])

        def wrapped(game: Any, number: int) -> Any:
            if planner is None:
                return JudgedSubgoals(game, rewards)
            return PlannedSubgoals(game, make_planner(planner, model), threads=threads, **settings)

        wrap_games(env, wrapped, "A planner needs")

    def on_sample_end(self, *, env_runner: Any, metrics_logger: Any, samples: Any, **kwargs: Any) -> None:
        """Logs what the questions of planner and judge have cost."""
        self._cost.log(metrics_logger)

    def on_episode_end(self, *, episode: Any, env_runner: Any, metrics_logger: Any, **kwargs: Any) -> None:
        """Logs what was planned, unless `EpisodeMetrics` does."""
        callbacks = env_runner.config.callbacks_class
        used = callbacks if isinstance(callbacks, list | tuple) else [callbacks]
        if any(isinstance(one, type) and issubclass(one, EpisodeMetrics) for one in used):
            return
        window = env_runner.config.metrics_num_episodes_for_smoothing
        for name, value in games_own_metrics(episode.get_infos(-1)).items():
            metrics_logger.log_value(name, value, window=window)


def require_one_budget(where: str, settings: Any, runners: int) -> None:
    """Refuses a budget of a chat model that each of several EnvRunners would spend for itself.

    Args:
        where: Name of the setting, for messages.
        settings: Settings in which `chat` may stand, at any depth.

    Raises:
        UserError: If there is one.
    """
    if not isinstance(settings, Mapping) or runners < 2:
        return
    chat = settings.get("chat")
    if isinstance(chat, Mapping) and chat.get("budget") is not None and not chat.get("cache_dir"):
        raise UserError(
            f"`{where}.chat.budget` is {chat['budget']!r} but each of {runners} EnvRunners would spend as much; set "
            f"`{where}.chat.cache_dir`, a folder in which they keep one account, or `num_env_runners` to at most 1."
        )
    for name, value in settings.items():
        require_one_budget(f"{where}.{name}", value, runners)


def apply_planning(config: PlanningConfigMixin) -> None:
    """Checks planner and rewards of a config in which somebody plans or judges, and lets them into its games.

    Raises:
        UserError: If a setting is not allowed.
    """
    untyped: Any = config
    if config.planner is not None:
        make_planner(config.planner)
    make_rewards(config.subgoal_rewards)
    for name in ("planner", "subgoal_rewards"):
        require_one_budget(name, getattr(config, name), untyped.num_env_runners)
    if config.planner is not None and untyped.in_evaluation:
        _prepare_evaluation(untyped)
    present: list[Any] = force_list(untyped.callbacks_class)
    if any(isinstance(one, type) and issubclass(one, AddPlannedSubgoals) and one.planner for one in present):
        raise UserError(
            f"`planner` is {config.planner!r} but `callbacks` has another AddPlannedSubgoals; omit one of them."
        )
    config.add_callback(AddPlannedSubgoals)


def _prepare_evaluation(config: Any) -> None:
    """Makes the periodic evaluation under a planner one of whole games, and of no more games than are counted."""
    if isinstance(config.subgoal_rewards, Mapping) and config.subgoal_rewards.get("fallback") == ERROR:
        raise UserError(
            "`evaluation_config` has `planner` and `subgoal_rewards` with `fallback: error`, but planners give "
            "subgoals without code, too, which would end the training; set `subgoal_rewards: exact` in "
            "`evaluation_config`."
        )
    if isinstance(config.env, str):  # agents that learn on sampled subgoals are evaluated in whole games
        config.env, config.env_config = without_subgoals(config.env, dict(config.env_config or {}))
    if config.evaluation_duration_unit == "episodes" and isinstance(config.evaluation_duration, int):
        # Games that nobody counts would ask the planner, too.
        counted = math.ceil(config.evaluation_duration / max(1, config.evaluation_num_env_runners))
        config.num_envs_per_env_runner = min(config.num_envs_per_env_runner, counted)
