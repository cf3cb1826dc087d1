"""Prerequisites of a stage beside right settings: a fitting environment, models, adapters, labels, cores."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.places import local_path
from rllib_llm_comm.envs.games import make_env
from rllib_llm_comm.experiments.console import one_line
from rllib_llm_comm.experiments.env_settings import is_parallel, planning_to_check
from rllib_llm_comm.experiments.ray_session import available_cpus

if TYPE_CHECKING:
    from ray.rllib.algorithms.algorithm_config import AlgorithmConfig


def check_prerequisites(stage: str, run: str, config: AlgorithmConfig, unresolved: tuple[str, ...] = ()) -> None:
    """Checks what an algorithm would miss only when it is built, or later.

    Args:
        stage: Name of the experiment, for messages.
        run: Name of the algorithm.
        config: Its checked config.
        unresolved: Paths in it at which nothing is yet.

    Raises:
        UserError: At the first thing that is missing or does not fit.
    """
    try:
        _check_environment(stage, run, config)
        _check_models(config, unresolved)
        _check_labels(config, unresolved)
    except UserError as error:
        sentence = str(error)
        raise UserError(sentence if f"`{stage}." in sentence else f"In `{stage}.config`: {sentence}") from error


def check_cores(stage: str, config: AlgorithmConfig) -> None:
    """Refuses more EnvRunners than this machine has cores for.

    Args:
        stage: Name of the experiment, for messages.
        config: Its checked config.
    """
    cores = available_cpus()
    for setting in ("num_env_runners", "evaluation_num_env_runners"):
        runners = getattr(config, setting, 0) or 0
        if runners > max(cores, 1):
            raise UserError(
                f"`{stage}.config.{setting}` is {runners} but there are {cores} cores here, on which so many processes "
                f"would only wait for each other; set at most {cores} (and more `num_envs_per_env_runner`), or say "
                "with `--ray-num-cpus` how many Ray may count."
            )


def check_base_models(stages: Mapping[str, tuple[str, Mapping[str, str], Mapping[str, str]]]) -> None:
    """Checks that stages that hand on an adapter use the same base model, form of prompts and shape of adapters.

    Args:
        stages: Stage -> its `base_model`, other settings that must be equal, and role -> the stage whose adapter
            of that role it takes over.

    Raises:
        UserError: If two of them differ for certain.
    """
    from rllib_llm_comm.language.base_model import KNOWN

    for name, (base, form, sources) in stages.items():
        for role, source in sources.items():
            other, other_form, _ = stages.get(source, stages[name])
            for setting, value in form.items():
                if other_form.get(setting, value) != value:
                    raise UserError(
                        f"`{name}.config.{setting}` is {value!r}, but the {role} adapter that it takes over from "
                        f"`{source}` is trained with {other_form[setting]!r}; give both stages the same."
                    )
            # Two paths, or a path and a hub id, may be the same model.
            if other != base and {other, base} & set(KNOWN):
                raise UserError(
                    f"`{name}.config.base_model` is {base!r}, but the {role} adapter that it takes over from "
                    f"`{source}` is trained on {other!r}; give both stages the same."
                )


def _check_environment(stage: str, run: str, config: AlgorithmConfig) -> None:
    from rllib_llm_comm.rl.multi_agent_ppo import MultiAgentPPOConfig
    from rllib_llm_comm.verco.verco import VercoConfig

    if not config.is_offline and config.env is None:
        raise UserError(f"`{stage}.env` is missing; say where {run} plays.")
    if not isinstance(config, MultiAgentPPOConfig):
        return
    if isinstance(config.env, str) and is_parallel(config.env):
        _check_observations(stage, run, config)
        if isinstance(config, VercoConfig):
            config.require_possible_messages()
    elif _has_one_agent(config.env):
        raise UserError(
            f"`{stage}.env` is {config.env!r}, in which one agent plays alone, but {run} trains several that play "
            "together; give a PettingZoo parallel environment, or use PPO."
        )


def _has_one_agent(env: Any) -> bool:
    import gymnasium as gym
    from ray.rllib.env.multi_agent_env import MultiAgentEnv

    if inspect.isclass(env):
        return issubclass(env, gym.Env) and not issubclass(env, MultiAgentEnv)
    return isinstance(env, str) and env.rpartition(":")[2] in gym.registry


def _check_observations(stage: str, run: str, config: Any) -> None:
    """Lets the algorithm's own connectors say whether the environment tells what they need."""
    import gymnasium as gym
    from ray.rllib.env import INPUT_ENV_SINGLE_SPACES, INPUT_ENV_SPACES

    from rllib_llm_comm.rl.rllib_adapter import ParallelEnvAdapter

    env = _make(config)
    try:
        game = ParallelEnvAdapter(env)
    finally:
        env.close()
    spaces = (gym.spaces.Dict(game.observation_spaces), gym.spaces.Dict(game.action_spaces))
    try:
        config.build_env_to_module_connector(spaces={INPUT_ENV_SPACES: spaces, INPUT_ENV_SINGLE_SPACES: spaces})
    except UserError as error:
        reason = str(error)
        for space in game.observation_spaces.values():
            names = ", ".join(f"`{name}`" for name in getattr(space, "spaces", {})) or type(space).__name__
            reason = reason.replace(str(space), f"a Dict of {names}")
        hint = " (`env_config.observe` chooses)" if "observe" in (config.env_config or {}) else ""
        raise UserError(
            f"`{stage}.env` {config.env!r} does not show what {run} needs{hint}: {one_line(reason)}"
        ) from error


def _make(config: Any) -> Any:
    from rllib_llm_comm.sama.planned_env import PlannedSubgoals

    env = make_env(config.env, **(config.env_config or {}))
    if getattr(config, "planner", None) is None:
        return env
    return PlannedSubgoals(env, **planning_to_check(config))


def _check_models(config: Any, unresolved: tuple[str, ...]) -> None:
    from rllib_llm_comm.language.adapter_layers import check_targets
    from rllib_llm_comm.language.adapters import ACTION, MESSAGE
    from rllib_llm_comm.language.base_model import (
        check_base_model,
        check_positions,
        check_quantization,
        torch_device,
    )
    from rllib_llm_comm.language.layer_cut import check_lora_layers
    from rllib_llm_comm.language.message_words import TOKENS_PER_WORD
    from rllib_llm_comm.policies.policy_folder import check_adapter_of

    base = getattr(config, "base_model", None)
    if base is None:
        return
    if base not in unresolved:
        check_base_model(str(base))
        check_lora_layers(str(base), getattr(config, "lora_layers", "all"))
        check_targets(str(base), getattr(config, "lora_target_modules", "all-linear"))
        tokens = TOKENS_PER_WORD * config.max_message_words if config.messages == "student" else 0
        check_positions(str(base), config.max_prompt_tokens + max(tokens, config.max_candidate_tokens))
    check_quantization(str(getattr(config, "quantization", "none")))
    device = str(getattr(config, "device", "cpu"))
    if device != "auto":
        torch_device(device)  # whether it is there is for the trial's process to find out
    for role in (MESSAGE, ACTION):
        adapter = getattr(config, f"{role}_checkpoint", None)
        if adapter and adapter not in unresolved:
            check_adapter_of(adapter, str(base), config.prompt_format, str(config.prompt_date), role)


def _check_labels(config: Any, unresolved: tuple[str, ...]) -> None:
    from rllib_llm_comm.verco.sft import AdapterSFTConfig, check_rows

    labels = config.input_
    if isinstance(config, AdapterSFTConfig) and isinstance(labels, str) and labels not in unresolved:
        path = local_path(labels, "input_")
        if path.exists():  # a pattern is for Ray Data
            check_rows(path, config.rows.form)
