"""Checks of a training beside its settings: what is at its paths, models, adapters, labels, cores, its game."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import gymnasium as gym

from rllib_llm_comm.core.errors import UserError, one_line, within
from rllib_llm_comm.core.places import fetched, local_path, scheme_of
from rllib_llm_comm.envs.games import make_env
from rllib_llm_comm.experiments.console import say
from rllib_llm_comm.experiments.env_settings import is_parallel, planning_to_check
from rllib_llm_comm.experiments.ray_session import available_cpus
from rllib_llm_comm.experiments.search_space import single_points
from rllib_llm_comm.experiments.stages import Stage
from rllib_llm_comm.language.prompts import AGENT_TEMPLATES, most_tokens
from rllib_llm_comm.policies.find_checkpoint import is_named, is_shipped, shipped_policy

if TYPE_CHECKING:
    from ray.rllib.algorithms.algorithm_config import AlgorithmConfig


def require_path(setting: str, path: str) -> None:
    """Refuses a path at which nothing is; `setting` names it in messages."""
    if not local_path(path, setting).exists():
        raise UserError(
            f"`{setting}` is {path!r} but nothing is there; give a path that exists, or the `${{NAME}}` of a stage "
            "above."
        )


def require_checkpoint(setting: str, path: str) -> None:
    """Refuses a checkpoint (as of `find_checkpoint`) that is not there; what is on a hub is left to who fetches it."""
    if not is_named(path):
        require_path(setting, path)
    elif is_shipped(path):
        with within(setting):
            shipped_policy(path)


# Settings that are written, too; of all others a stage gets a copy of what lies in a store. To `path` of the judge
# "chat" reward code is written, which "code" only reads from its own.
_WRITTEN = ("adapter_folder", "cache_dir", "cassette", "output", "chat.path")
# RLlib's own algorithms read and write these themselves, wherever pyarrow can.
_OFFLINE_DATA = ("input", "input_", "output")
_PYARROWS = ("abfs", "abfss", "file", "gcs", "gs", "hdfs", "s3", "viewfs")
_ADDRESSES = ("http", "https", "ws", "wss")


def on_this_machine(setting: str, values: Mapping[str, Any], rllibs_own: bool = False) -> dict[str, Any]:
    """Settings with paths of this machine in place of URIs.

    Args:
        setting: The name above them, for messages.
        values: The settings.
        rllibs_own: True if they are of an algorithm of RLlib's own.

    Raises:
        UserError: If a URI is of an unknown kind, leads to nothing, or is of a setting that cannot lie in a store.
    """

    def local(name: str, key: str, value: Any, owner: str = "") -> Any:
        """A value with the paths in it on this machine; `owner` is the `name` that stands beside its key."""
        if isinstance(value, Mapping):
            return {one: local(f"{name}.{one}", one, item, str(value.get("name"))) for one, item in value.items()}
        if isinstance(value, list):
            return [local(name, key, item, owner) for item in value]
        if not isinstance(value, str) or "://" not in value or scheme_of(value) in ("", *_ADDRESSES):
            return value
        if rllibs_own and key in _OFFLINE_DATA and scheme_of(value) in _PYARROWS:
            return value
        written = key in _WRITTEN or f"{owner}.{key}" in _WRITTEN
        return str(local_path(value, name) if written else fetched(value, name))

    return {key: local(f"{setting}.{key}", key, value) for key, value in values.items()}


def check_prerequisites(stage: Stage, config: AlgorithmConfig) -> None:
    """Checks what an algorithm would miss only when it is built, or later.

    Raises:
        UserError: At the first thing that is missing or does not fit.
    """
    try:
        _check_environment(stage.name, stage.experiment.run, config)
        _check_models(config, stage.to_come)
        _check_labels(config, stage.to_come)
    except UserError as error:
        sentence = str(error)
        raise UserError(
            sentence if f"`{stage.name}." in sentence else f"In `{stage.name}.config`: {sentence}", error.code
        ) from error


def check_device(stage: Stage, config: AlgorithmConfig) -> None:
    """Refuses a GPU where this machine has none, in a search, too; for trainings on a Ray of this machine."""
    import torch

    given = stage.experiment.config.get("device", getattr(config, "device", None))
    for point in single_points({"device": given}):
        if str(point["device"]).startswith("cuda") and not torch.cuda.is_available():
            raise UserError(
                f"`{stage.name}.config.device` is {point['device']!r} but this machine has no GPU that torch can use; "
                "set 'auto' or 'cpu', or name a cluster that has one (`--ray-address`)."
            )


def check_cores(stage: str, config: AlgorithmConfig) -> None:
    """Refuses more EnvRunners than this machine has cores for."""
    cores = available_cpus()
    for setting in ("num_env_runners", "evaluation_num_env_runners"):
        runners = getattr(config, setting, 0) or 0
        if runners > max(cores, 1):
            raise UserError(
                f"`{stage}.config.{setting}` is {runners} but there are {cores} cores here, on which so many processes "
                f"would only wait for each other; set at most {cores} (and more `num_envs_per_env_runner`), or say "
                "with `--ray-num-cpus` how many Ray may count."
            )


def _check_environment(stage: str, run: str, config: AlgorithmConfig) -> None:
    from rllib_llm_comm.rl.multi_agent_ppo import MultiAgentPPOConfig
    from rllib_llm_comm.verco.verco import VercoConfig

    if not config.is_offline and config.env is None:
        raise UserError(f"`{stage}.env` is missing; say where {run} plays.", "missing")
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
    from ray.rllib.env.multi_agent_env import MultiAgentEnv

    if inspect.isclass(env):
        return issubclass(env, gym.Env) and not issubclass(env, MultiAgentEnv)
    return isinstance(env, str) and env.rpartition(":")[2] in gym.registry


def _check_observations(stage: str, run: str, config: Any) -> None:
    """Lets the algorithm's own connectors say whether the environment tells what they need."""
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
        hint = " (`env_config.observe` chooses)" if "observe" in (config.env_config or {}) else ""
        raise UserError(
            f"`{stage}.env` {config.env!r} does not show what {run} needs{hint}: {one_line(str(error))}"
        ) from error


def _make(config: Any) -> Any:
    from rllib_llm_comm.sama.planned_env import PlannedSubgoals

    env = make_env(config.env, **(config.env_config or {}))
    if getattr(config, "planner", None) is None:
        return env
    return PlannedSubgoals(env, **planning_to_check(config))


def _check_models(config: Any, to_come: tuple[str, ...]) -> None:
    from rllib_llm_comm.language.adapters import ACTION, MESSAGE, check_targets
    from rllib_llm_comm.language.base_model import (
        check_base_model,
        check_lora_layers,
        check_positions,
        check_quantization,
        torch_device,
    )
    from rllib_llm_comm.verco.module import LanguageModelConfigMixin
    from rllib_llm_comm.verco.policy import check_adapter_of
    from rllib_llm_comm.verco.settings import WRITTEN_WORD_BY_WORD

    if not isinstance(config, LanguageModelConfigMixin):
        return
    base = config.base_model
    if base not in to_come:
        check_base_model(str(base))
        check_lora_layers(str(base), config.lora_layers)
        check_targets(str(base), config.lora_target_modules)
        freely = config.messages in WRITTEN_WORD_BY_WORD and not config.message_menu
        tokens = most_tokens(config.max_message_words) if freely else 0
        check_positions(str(base), config.max_prompt_tokens + max(tokens, config.max_candidate_tokens))
    check_quantization(config.quantization)
    if config.device != "auto":
        torch_device(config.device)  # whether it is there is for the trial's process to find out
    for role in (MESSAGE, ACTION):
        adapter = getattr(config, f"{role}_checkpoint", None)
        if adapter and adapter not in to_come:
            check_adapter_of(adapter, str(base), config.prompt_format, str(config.prompt_date), role)
            tell_other_prompts(adapter, config, role)
    for setting, path, _ in config.member_adapters():  # those that are there were checked with the settings
        if path not in to_come:
            require_checkpoint(setting, path)


def tell_other_prompts(path: str, config: Any, role: str | None = None) -> None:
    """Says that what is taken over, an adapter of a role or a whole run, was trained with other prompts.

    The user sees it here: a trial's process logs into its own files.
    """
    from rllib_llm_comm.policies.policy_folder import find_policy
    from rllib_llm_comm.policies.policy_manifest import read_manifest
    from rllib_llm_comm.verco.module import LanguageModelConfigMixin
    from rllib_llm_comm.verco.policy import TEMPLATES_OF, other_prompts

    if not isinstance(config, LanguageModelConfigMixin):
        return

    try:
        manifest = read_manifest(find_policy(path))
    except UserError:  # a PEFT folder tells no prompts
        return
    settings = config.language_model_settings()
    told = other_prompts(path, manifest, settings, AGENT_TEMPLATES if role is None else TEMPLATES_OF[role])
    if told:
        say(told)


def _check_labels(config: Any, to_come: tuple[str, ...]) -> None:
    from rllib_llm_comm.verco.sft import AdapterSFTConfig, check_rows

    labels = config.input_
    if isinstance(config, AdapterSFTConfig) and isinstance(labels, str) and labels not in to_come:
        path = local_path(labels, "input_")
        if path.exists():  # a pattern is for Ray Data
            check_rows(path, config.form)
