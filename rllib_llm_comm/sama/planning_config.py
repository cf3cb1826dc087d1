"""What the settings of planning do to the config of an algorithm."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ray.rllib.utils import force_list

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.games import without_subgoals
from rllib_llm_comm.rl.planning import PlanningConfigMixin
from rllib_llm_comm.sama.planned_subgoals import AddPlannedSubgoals
from rllib_llm_comm.sama.planners import make_planner
from rllib_llm_comm.sama.rewards.subgoal_rewards import ERROR, make_rewards
from rllib_llm_comm.sama.subgoal_observations import check_subgoals_to

_SEVERAL = 2


def require_one_budget(where: str, settings: Any, runners: int) -> None:
    """Refuses a budget of a chat model that each of several EnvRunners would spend for itself.

    Args:
        where: Name of the setting, for messages.
        settings: Settings in which `chat` may stand, at any depth.
        runners: Number of EnvRunners.

    Raises:
        UserError: If there is one.
    """
    if not isinstance(settings, Mapping) or runners < _SEVERAL:
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

    Args:
        config: The config, which is being validated.

    Raises:
        UserError: If a setting is not allowed.
    """
    untyped: Any = config
    check_subgoals_to(config.subgoals_to)
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
            f"`planner` is {config.planner!r} but `callbacks` has another AddPlannedSubgoals; leave one of them away."
        )
    config._add_callback(AddPlannedSubgoals)


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
