"""Checks an environment's id and settings before anything starts."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium
from pettingzoo.env_registry import registration

from rllib_llm_comm.core.errors import UserError, did_you_mean, one_line, within
from rllib_llm_comm.core.trust import is_vouched_for
from rllib_llm_comm.envs.games import env_ids, make_env, without_subgoals
from rllib_llm_comm.envs.interface import GameInfo
from rllib_llm_comm.experiments.console import say
from rllib_llm_comm.experiments.search_space import search_kind, single_points
from rllib_llm_comm.policies.find_checkpoint import is_shipped

_OWN_CLASSES = "rllib_llm_comm.envs."


def check_environment(stage: str, env: Any, env_config: Mapping[str, Any], trust: bool = False) -> None:
    """Checks that an environment exists and, for PettingZoo's parallel ones, can be made with these settings.

    Args:
        stage: Name of the experiment, for messages.
        env: An id, a class, or `None` (nothing to check).
        env_config: The environment's settings; search spaces are allowed.
        trust: True if it may be a class of any module.

    Raises:
        UserError: If the id is unknown or the environment refuses a setting.
    """
    if env is None or not isinstance(env, str):
        return
    require_known(f"{stage}.env", env, trust)
    if is_parallel(env):
        for settings in single_points(dict(env_config)):
            _try_parallel(stage, env, settings)


def require_known(setting: str, env: Any, trust: bool = False) -> None:
    """Refuses a text that names no environment or, without `trust`, code which the user has not imported.

    `env` is an id, or the path of a class; anything but a text is left to others.
    """
    if not isinstance(env, str) or is_parallel(env):
        return
    from rllib_llm_comm.rl.rllib_adapter import registered_maker

    if registered_maker(env) is None and not (_is_gymnasium(setting, env, trust) or _is_class_path(env, trust)):
        raise UserError(
            f"`{setting}` is {env!r}, which is neither registered with PettingZoo, Gymnasium or Tune nor a class path "
            f"of a module that you import (`--import MODULE`); ours: {', '.join(env_ids())}."
            f"{did_you_mean(env, [*registration.parallel_registry, *gymnasium.registry])}",
            "unknown",
        )


def check_planned_environment(stage: str, config: Any) -> None:
    """Refuses a planner, of training or of the periodic evaluation, that does not know the game or fits nowhere."""
    _check_planned(f"{stage}.config", config)
    if getattr(config, "evaluation_config", None):
        _check_planned(f"{stage}.config.evaluation_config", config.get_evaluation_config_object())


def _check_planned(place: str, config: Any) -> None:
    from rllib_llm_comm.sama.planned_env import PlannedSubgoals

    if getattr(config, "planner", None) is None or not isinstance(config.env, str) or not is_parallel(config.env):
        return
    env, settings = config.env, dict(config.env_config)
    if config.in_evaluation:  # as its own validation does, which is too early where results are still to come
        env, settings = without_subgoals(env, settings)
    with within(place):
        planned = PlannedSubgoals(make_env(env, **settings), **planning_to_check(config))
        check_guesses(config.planner, planned.env)
        planned.close()


def check_guesses(planner: Any, env: Any) -> None:
    """Refuses a planner that guesses what a game hides from its agents where it hides nothing."""
    from rllib_llm_comm.sama.planners import guesses
    from rllib_llm_comm.sama.planners.baselines import hidden_moments
    from rllib_llm_comm.sama.planning_game import planning_game

    if guesses(planner):
        env.reset(seed=0)
        game = planning_game(env)
        hidden_moments(game, game.state())


def planning_to_check(config: Any) -> dict[str, Any]:
    """Settings of `PlannedSubgoals` with which an environment can be made before anything runs.

    The config's own planner and rewards are checked elsewhere; their files may be those of a stage that is still to
    run. A planner that was trained stays if it is there, as it can plan in one game only.
    """
    from rllib_llm_comm.sama.planners import trained_policy

    policy = trained_policy(config.planner)
    there = policy is not None and (is_shipped(policy) or Path(policy).exists())
    planner = config.planner if there else "scripted"
    return {**config.planning_settings(), "planner": planner, "subgoal_rewards": "exact"}


_OF_EXECUTORS = ("greedy", "base_model", "max_prompt_tokens")


def without_missing(settings: Mapping[str, Any], to_come: tuple[str, ...]) -> dict[str, Any]:
    """Settings of an environment, however nested, without texts that name a path `to_come`, at which nothing is yet.

    What is said of an executor that is not there goes with it.
    """
    kept = {
        key: without_missing(value, to_come) if isinstance(value, Mapping) and not search_kind(value) else value
        for key, value in settings.items()
    }
    there = {key: value for key, value in kept.items() if not any(path in str(value) for path in to_come)}
    waits = "executor" in settings and "executor" not in there
    return {key: value for key, value in there.items() if not (waits and key in _OF_EXECUTORS)}


def check_shows_words(stage: str, env: str, env_config: Mapping[str, Any]) -> None:
    """Checks that an environment tells its observations in words, as language models and label collection need.

    Raises:
        UserError: If it has one agent, or observations without `text` and `candidates`.
    """
    if not is_parallel(env):
        raise UserError(
            f"`{stage}.env` is {env!r}, which is no PettingZoo parallel environment; ours: {', '.join(env_ids())}."
        )
    made = make_env(env, **env_config)
    try:
        spaces = {agent: made.observation_space(agent) for agent in made.possible_agents}
    finally:
        made.close()
    for agent, space in spaces.items():
        shown = list(getattr(space, "spaces", {}))
        if not {"text", "candidates"} <= set(shown):
            raise UserError(
                f"`{stage}.env` {env!r} shows agent {agent!r} {', '.join(shown) or 'numbers'}, but `text` and "
                "`candidates` are needed; choose them in its `env_config` (`observe`), or another environment."
            )


def is_parallel(env: str) -> bool:
    """True if PettingZoo's registry of parallel environments knows an id."""
    return env in registration.parallel_registry


def _try_parallel(stage: str, env: str, settings: dict[str, Any]) -> None:
    try:
        with within(f"{stage}.config.env_config"):
            made = make_env(env, **settings)
            made.close()
    except UserError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {one_line(str(error))}"
        raise UserError(f"`{stage}.env` {env!r} cannot be made with {settings!r}: {reason}") from error
    for note in GameInfo(made).notes:
        _tell_once(f"In `{stage}.config.env_config`: {note}")


@functools.cache
def _tell_once(sentence: str) -> None:
    """A stage is checked more than once."""
    say(sentence)


def _is_gymnasium(setting: str, env: str, trust: bool) -> bool:
    module, _, name = env.rpartition(":")
    if module and not (trust or is_vouched_for(env)):
        return False
    if module:
        try:
            importlib.import_module(module)
        except Exception as error:
            raise UserError(f"`{setting}` is {env!r} but module {module!r} cannot be imported: {error}.") from None
    try:
        gymnasium.spec(name)
    except gymnasium.error.Error:
        return False
    return True


def _is_class_path(env: str, trust: bool) -> bool:
    module, _, name = env.rpartition(".")
    if not env.startswith(_OWN_CLASSES) and not (trust or is_vouched_for(env)):
        return False
    try:
        return hasattr(importlib.import_module(module), name)
    except (ImportError, TypeError, ValueError):  # no module, or no name of one, such as ".." and ""
        return False
