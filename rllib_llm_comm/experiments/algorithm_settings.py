"""Checks an algorithm's name and `config:` before anything starts.

RLlib sets unknown keys of a config dict silently, so a typo would train with the default. Here every key must
be a setting of that algorithm's `AlgorithmConfig`, and every plain value must fit the setting's type.
"""

from __future__ import annotations

import functools
import inspect
import json
import math
import re
import types
import typing
from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Union

from pydantic import TypeAdapter, ValidationError

from rllib_llm_comm.core.errors import (
    UserError,
    as_in_files,
    did_you_mean,
    names_and_hint,
    one_line,
    placed,
    require_choice,
    shown,
    within,
)
from rllib_llm_comm.core.settings import Settings, describe
from rllib_llm_comm.core.trust import DATA, READERS, is_vouched_for, is_word, names_code, texts_in
from rllib_llm_comm.experiments.console import cause_of, state
from rllib_llm_comm.experiments.env_settings import require_known
from rllib_llm_comm.experiments.ray_session import quiet_loggers
from rllib_llm_comm.experiments.search_space import check_by_seed, check_search, search_kind, seeds_of, single_points
from rllib_llm_comm.rl.algorithms import ALGORITHMS as OURS

if TYPE_CHECKING:
    from ray.rllib.algorithms.algorithm import Algorithm
    from ray.rllib.algorithms.algorithm_config import AlgorithmConfig

# Settings of RLlib's old API stack and what took their place.
_RENAMED = {
    "num_sgd_iter": "num_epochs",
    "sgd_minibatch_size": "minibatch_size",
    "num_envs_per_worker": "num_envs_per_env_runner",
    "num_gpus_per_worker": "num_gpus_per_env_runner",
    "num_cpus_per_worker": "num_cpus_per_env_runner",
    "num_rollout_workers": "num_env_runners",
    "evaluation_num_workers": "evaluation_num_env_runners",
    "num_gpus": "num_gpus_per_learner",
    "num_learner_workers": "num_learners",
    "num_gpus_per_learner_worker": "num_gpus_per_learner",
    "num_cpus_per_learner_worker": "num_cpus_per_learner",
}
_OF_OLD_STACK = ("model", "optimizer")  # which RLlib still takes
# Ranges that RLlib itself does not check: (setting, smallest, largest value).
_RANGES = (
    (
        re.compile(
            r"(.*_)?batch_size(_.*)?|minibatch_size|num_epochs|num_envs_per_env_runner|rollout_fragment_length"
            r"|evaluation_duration|metrics_num_episodes_for_smoothing"
        ),
        1,
        math.inf,
    ),
    (
        re.compile(r"(.*_)?num_.*|lr|.*_lr|.*clip(_param)?|kl_target|vf_loss_coeff|evaluation_interval"),
        0,
        math.inf,
    ),
    (re.compile(r"gamma|lambda_"), 0, 1),
)
# Words that RLlib itself checks in its fluent methods alone, which values of files do not pass.
_WORDS = {
    "batch_mode": ("truncate_episodes", "complete_episodes"),
    "grad_clip_by": ("value", "norm", "global_norm"),
    "log_level": ("DEBUG", "INFO", "WARN", "WARNING", "ERROR"),
    "placement_strategy": ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"),
}
_CLASSES = re.compile(r"callbacks|callbacks_class|sample_collector|.*_(cls|class)")
_FUNCTIONS = re.compile(r"callbacks_on_.*|.*_fn")
_STACK_SWITCHES = ("enable_rl_module_and_learner", "enable_env_runner_and_connector_v2")
# Pydantic's names of problems with types of plain values, and the types that have them. RLlib takes some lists where an
# annotation has functions.
_PROBLEMS = re.compile(
    "((bool|int|float|string|list|tuple|set|dict)_type|int_from_float|literal_error|missing|too_(long|short)) "
    "(?!NoneType).*|callable_type str"
)
# Written differently in a dict than as an attribute.
_ALIASES = ("callbacks", "framework", "lambda", "input", "num_workers", "num_cpus_for_driver")


def algorithm_names() -> list[str]:
    """Names that `run:` may hold for an algorithm: ours, then RLlib's."""
    from ray.rllib.algorithms.registry import ALGORITHMS

    return [*OURS, *ALGORITHMS]


def find_algorithm(name: str, others: Iterable[str] = ()) -> type[Algorithm]:
    """The algorithm class of a name: one of ours, of RLlib's, or one that was registered with Tune (by `--import`).

    Raises:
        UserError: If no algorithm has this name; `others` are further things that can run, for the hint.
    """
    from ray.rllib.algorithms.algorithm import Algorithm
    from ray.rllib.algorithms.registry import ALGORITHMS
    from ray.tune.registry import TRAINABLE_CLASS, _global_registry

    quiet_loggers(state.verbosity)
    if name in OURS:
        return OURS[name]
    if name in ALGORITHMS:
        # Not `get_trainable_cls`, which imports every algorithm of RLlib.
        return typing.cast("type[Algorithm]", ALGORITHMS[name]()[0])
    if _global_registry.contains(TRAINABLE_CLASS, name):
        found = _global_registry.get(TRAINABLE_CLASS, name)
        if isinstance(found, type) and issubclass(found, Algorithm):
            return found
        raise UserError(f"`run` is {name!r}, which is registered but is no RLlib Algorithm.")
    known = [*algorithm_names(), *others]
    raise UserError(
        f"`run` is {name!r} but must be one of {names_and_hint(name, known)} "
        "An algorithm of your own is known where `--import MODULE` names the module that registers it.",
        "unknown",
    )


def default_config(run: str) -> AlgorithmConfig | None:
    """The default settings of an algorithm; `None` if its name is unknown, which the check of its stage tells."""
    try:
        return find_algorithm(run).get_default_config()
    except UserError:
        return None


def check_config(
    stage: str,
    algorithm: type[Algorithm],
    config: Mapping[str, Any],
    to_come: tuple[str, ...] = (),
    trust: bool = False,
) -> AlgorithmConfig:
    """Checks all keys and values of a `config:` as plain data, with `env` in it; search spaces are allowed.

    Complaints about the paths `to_come`, at which nothing is yet, are ignored. With `trust` settings may name any
    code and reader.

    Returns:
        The algorithm's config object with these settings (of a search space: its first point).

    Raises:
        UserError: At the first unknown key, impossible value, or name of code that the user has not imported.
    """
    default = algorithm.get_default_config()
    _check_settings(f"{stage}.config", algorithm.__name__, config, default, trust, to_come)
    check_by_seed(f"{stage}.config", config, seeds_of(config))
    # Every point of a search space is built, so that each of them is validated.
    built = [_build(stage, algorithm.get_default_config(), point, to_come) for point in single_points(dict(config))]
    return built[0]


def check_mutations(place: str, algorithm: type[Algorithm], mutations: Any, trust: bool = False) -> None:
    """Checks settings that a scheduler changes while trials run (`hyperparam_mutations`).

    `mutations` are setting -> values; anything but a mapping is for the scheduler to refuse.

    Raises:
        UserError: If one is no setting, or a value names code that the user has not imported.
    """
    default = algorithm.get_default_config()
    for key, values in mutations.items() if isinstance(mutations, Mapping) else ():
        setting, attribute = f"{place}.{key}", _attribute(default, key)
        _check_key(setting, algorithm.__name__, key, config_settings(default), default)
        if trust:
            continue
        listed = isinstance(values, list)  # else a mapping of settings, each with its own values
        for value in values if listed else [values]:
            _refuse_code(setting, attribute, value, None, default)
            for where, inner in _inner_configs(setting, attribute, value):
                if listed:
                    _check_settings(where, algorithm.__name__, inner, default, trust)
                else:
                    check_mutations(where, algorithm, inner, trust)


def _check_settings(
    place: str,
    algorithm: str,
    config: Mapping[str, Any],
    default: AlgorithmConfig,
    trust: bool,
    to_come: tuple[str, ...] = (),
) -> None:
    """Checks each key and value by itself; `place` is where they stand, for messages."""
    known = config_settings(default)
    models = getattr(default, "settings_models", {}).values()
    own = {name: model for model in models for name in model.model_fields}
    annotations = config_annotations(type(default))
    for key, value in config.items():
        setting = f"{place}.{key}"
        _check_key(setting, algorithm, key, known, default)
        if key in _STACK_SWITCHES and value is not True:
            given = as_in_files(value)
            raise UserError(f"`{setting}` is {given} but must be true: only the new API stack is supported.")
        if key in _OF_OLD_STACK and own and value != default_of(default, key):
            raise UserError(
                f"`{setting}` is of RLlib's old API stack and changes nothing of {algorithm}; omit it.", "unknown"
            )
        if key == "framework" and value not in ("torch", None):
            raise UserError(f"`{setting}` is {value!r} but must be 'torch'.")
        values = check_search(setting, value) if search_kind(value) else [value]
        attribute = _attribute(default, key)
        annotation = annotations.get(attribute)
        # Some of RLlib's annotations are wrong about RLlib's own defaults.
        if not fits(default_of(default, attribute), annotation):
            annotation = None
        for single in values:
            inner = _inner_configs(setting, attribute, single)
            if attribute in own:
                with within(setting if key == attribute else place, to_come):
                    _alone(own[attribute], attribute).from_mapping({attribute: single})
            else:
                check_type(setting, single, annotation)
                if attribute in _WORDS and single is not None:
                    require_choice(setting, single, _WORDS[attribute])
                _check_range(setting, attribute, single)
            if single is not None and single != default_of(default, attribute):
                _check_code(setting, attribute, single)
            if not trust:
                _refuse_code(setting, attribute, single, annotation, default)
            for where, values_of_inner in inner:
                _check_settings(where, algorithm, values_of_inner, default, trust, to_come)


@functools.cache
def _alone(model: type[Settings], name: str) -> type[Settings]:
    """The model of one setting of another."""
    from rllib_llm_comm.rl.strict_config import select_fields

    return select_fields(model, name)


def _check_code(setting: str, attribute: str, value: Any) -> None:
    """Refuses what is no class or function, of settings that are some; RLlib itself may only notice in mid-run."""
    if _FUNCTIONS.fullmatch(attribute):
        allowed = "a function (in a Python file)"
    elif _CLASSES.fullmatch(attribute):
        allowed = "a class (in a Python file), or the name of one, such as 'my_package.my_module.MyClass'"
    else:
        return
    for one in value if isinstance(value, list | tuple) and value else [value]:
        named = isinstance(one, str) and not is_word(one) and not _FUNCTIONS.fullmatch(attribute)
        if not (callable(one) or named):
            raise UserError(f"`{setting}` is {shown(value)} but must be {allowed}.")


def _inner_configs(setting: str, attribute: str, value: Any) -> list[tuple[str, Mapping[str, Any]]]:
    """Places and contents of configs in a config."""
    inner = []
    if attribute == "evaluation_config" and value is not None:
        inner = [(setting, value)]
    if attribute == "algorithm_config_overrides_per_module" and isinstance(value, Mapping):
        inner = [(f"{setting}.{module}", one) for module, one in value.items()]
    for where, one in inner:
        if not isinstance(one, Mapping):
            raise UserError(f"`{where}` is {shown(one)} but must be a mapping of settings.", "type")
    return inner


def _refuse_code(setting: str, attribute: str, value: Any, annotation: Any, default: AlgorithmConfig) -> None:
    """Refuses names of code that the user has not imported, and readers that run what they read.

    RLlib makes a class of a text in settings of many types, so texts with dots, colons or slashes are taken only where
    the type says that a text is meant.
    """
    if value == default_of(default, attribute) or _inner_configs(setting, attribute, value):
        return
    if attribute == DATA and default.offline_data_class is not None:  # a reader of ours, or of the user's own
        return
    if attribute in READERS or attribute == DATA:
        raise UserError(
            f"`{setting}` is {one_line(repr(value), 80)}, by which RLlib may run code that lies in data; say `--trust` "
            "if you know where file and data come from, or leave it out."
        )
    if attribute == "env":
        require_known(setting, value)
    elif attribute in ("env_config", "pool"):
        _refuse(setting, (text for text in texts_in(value) if names_code(text)))
    elif attribute in _rllib_names(typing.cast("Hashable", type(default))) and not holds_plain_values(annotation):
        _refuse(setting, (text for text in texts_in(value) if not (is_word(text) or is_vouched_for(text))))


def _refuse(setting: str, names: Iterable[str]) -> None:
    for name in names:
        raise UserError(
            f"`{setting}` names {one_line(repr(name), 80)}, which may be code; import its module with `--import "
            "MODULE`, or say `--trust` if you know where the file comes from."
        )


def default_of(default: AlgorithmConfig, attribute: str) -> Any:
    """A setting's value in a default config; `None` of RLlib's old names, which raise when they are read."""
    try:
        return getattr(default, attribute, None)
    except ValueError:
        return None


@functools.cache
def _rllib_names(config_class: Any) -> frozenset[str]:
    """Settings that RLlib itself has, not our configs or a user's."""
    rllib = next(base for base in config_class.__mro__ if base.__module__.startswith("ray."))
    return frozenset(vars(rllib()))


def _attribute(default: AlgorithmConfig, key: Any) -> str:
    """The attribute that a key of a dict sets."""
    return str(default._translate_special_keys(key, warn_deprecated=False))


def config_settings(default: AlgorithmConfig) -> list[str]:
    """Names that are settings of a default config: public attributes, and properties that can be set."""
    from ray._common.deprecation import DEPRECATED_VALUE

    attributes = [
        name
        for name, value in vars(default).items()
        if not name.startswith("_")
        and name not in ("algo_class", "in_evaluation", "fake_sampler", "env_task_fn")
        and not (isinstance(value, int) and value == DEPRECATED_VALUE)
    ]
    properties = [
        name
        for name, value in inspect.getmembers(type(default), lambda member: isinstance(member, property))
        if value.fset is not None and not name.startswith("_")
    ]
    return [*attributes, *properties, *_ALIASES]


def _check_key(setting: str, algorithm: str, key: str, known: list[str], default: AlgorithmConfig) -> None:
    if key in _RENAMED and _RENAMED[key] in known:
        raise UserError(
            f"`{setting}` is a setting of RLlib's old API stack. Did you mean {_RENAMED[key]!r}?", "unknown"
        )
    if key in known or _attribute(default, key) in known:
        return
    if key in vars(default):
        raise UserError(f"`{setting}` is not for users (or of RLlib's old API stack); remove it.")
    hint = did_you_mean(str(key), known)
    if not hint and algorithm in OURS:
        hint = f" `rllib example defaults {algorithm}` lists all."
    own = type(default).__name__
    of = algorithm if own == f"{algorithm}Config" else f"{algorithm}, whose config is {own}"
    raise UserError(f"`{setting}` is no setting of {of}.{hint}", "unknown")


def _build(stage: str, config: AlgorithmConfig, values: dict[str, Any], to_come: tuple[str, ...]) -> AlgorithmConfig:
    try:
        config.update_from_dict(values)
        config.validate()
        if config.evaluation_config:  # RLlib itself looks at it when the algorithm is built
            with within("evaluation_config"):
                config.get_evaluation_config_object().validate()
    except Exception as error:
        if any(text in str(error) for text in to_come):
            return config
        name, message = cause_of(error)
        prefix = "" if name in ("UserError", "ValueError") else f"{name}: "
        message = message.split(" To suppress all validation errors")[0]
        inner = re.match(r"`(\w+)\.", message)  # such as `planner.seed`
        place = f"{stage}.config.{inner[1]}" if inner and inner[1] in values else f"{stage}.config"
        code = error.code if isinstance(error, UserError) else "invalid"
        raise UserError(placed(place, f"{prefix}{one_line(message)}"), code) from error
    return config


def config_annotations(config_class: type[AlgorithmConfig]) -> dict[str, Any]:
    """Setting -> annotation of the parameter of that name in the config's fluent methods."""
    found: dict[str, Any] = {}
    for base in reversed(config_class.__mro__):
        for method in vars(base).values():
            if inspect.isfunction(method) and not method.__name__.startswith("_"):
                found |= annotations_of(method)
    of_models = getattr(config_class, "setting_types", None)
    return found | (of_models() if of_models else {})


def annotations_of(function: Any) -> dict[str, Any]:
    """Parameter -> annotation of a function; `Any` where the annotation has a name that only type checkers see."""
    namespace = getattr(function, "__globals__", {})
    found: dict[str, Any] = {}
    for name, annotation in function.__annotations__.items():
        try:
            found[name] = eval(annotation, dict(namespace), vars(typing)) if isinstance(annotation, str) else annotation
        except Exception:
            found[name] = Any
    return found


def _check_range(setting: str, attribute: str, value: Any) -> None:
    if isinstance(value, str) and value != "auto" and attribute.startswith("num_"):
        raise UserError(f"`{setting}` is {shown(value)} but must be a number, or 'auto' where RLlib has that.", "type")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    low, high = range_of(attribute)
    if not low <= value <= high:
        allowed = f"at least {low:g}" if high == math.inf else f"in [{low:g}, {high:g}]"
        raise UserError(f"`{setting}` is {value!r} but must be {allowed}.", "range")


def range_of(attribute: str) -> tuple[float, float]:
    """The smallest and the largest value that makes sense for a setting of RLlib's; infinite without a bound."""
    found = [(low, high) for pattern, low, high in _RANGES if pattern.fullmatch(attribute)]
    return max((low for low, _ in found), default=-math.inf), min((high for _, high in found), default=math.inf)


def check_type(setting: str, value: Any, annotation: Any) -> None:
    """Raises a `UserError` unless a plain value may be meant by an annotation (`fits`)."""
    if not fits(value, annotation):
        raise UserError(f"`{setting}` is {one_line(as_in_files(value))} but must be {describe(annotation)}.", "type")


def fits(value: Any, annotation: Any) -> bool:
    """True if a plain value may be meant by an annotation; `None`, for what is not given, always may.

    It is `True`, too, for values that are not plain, and where an annotation allows some of these.
    """
    try:
        adapter = TypeAdapter(annotation, config={"arbitrary_types_allowed": True})
        adapter.validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        problems = (f"{one['type']} {type(one['input']).__name__}" for one in error.errors())
        return not all(map(_PROBLEMS.fullmatch, problems))
    except Exception:  # an annotation that only type checkers can read, or an object
        return True
    return True


def holds_plain_values(annotation: Any) -> bool:
    """True for annotations of numbers, texts, and lists and mappings of such: nothing is looked up by their texts."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal:
        return True
    if origin in (Union, types.UnionType) or (isinstance(origin, type) and issubclass(origin, Collection)):
        return bool(arguments) and all(one is Ellipsis or holds_plain_values(one) for one in arguments)
    return annotation in (bool, int, float, str, type(None))
